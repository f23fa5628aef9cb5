"""`semel cluster`: the brokers, and the health of partitions."""
