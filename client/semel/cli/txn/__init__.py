"""`semel txn`: transactions, their timeline, who fenced a producer."""
