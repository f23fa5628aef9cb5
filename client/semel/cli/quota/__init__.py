"""`semel quota`: lists, sets and removes quotas of clients."""
