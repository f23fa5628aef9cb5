"""Connections to brokers, what is known of the cluster, and retries."""
