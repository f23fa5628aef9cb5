"""What `Admin` asks of brokers, one file a subject."""
