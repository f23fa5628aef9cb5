"""`semel produce`: writes lines to a topic."""
