"""`semel cluster`: brokers, what they lead, partitions that are not well."""
