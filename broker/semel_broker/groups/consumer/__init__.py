"""The consumer protocol of groups (KIP-848): epochs, assignments by the broker, and reconciliation *(pure)*."""
