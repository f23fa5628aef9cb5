"""Replication between brokers: connections, followers that fetch, and leaders that keep the ISR."""
