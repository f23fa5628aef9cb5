"""`semel acl`: lists, adds and removes access control entries."""
