"""`semel txn`: transactions, transaction groups, and timelines."""
