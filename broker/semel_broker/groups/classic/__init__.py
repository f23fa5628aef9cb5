"""Groups of the classic protocol (KIP-62): the group, its state machine, its records, its requests."""
