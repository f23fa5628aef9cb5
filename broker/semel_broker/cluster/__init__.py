"""What brokers agree on: topics, settings and producer ids behind one store."""
