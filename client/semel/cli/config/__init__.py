"""`semel config`: the dynamic settings of brokers."""
