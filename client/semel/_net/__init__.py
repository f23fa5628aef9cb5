"""Connections to brokers, the cluster's metadata, and retries."""
