"""Shared by the coordinators of groups and of transactions: shards, journal, engine, producer ids, error codes."""
