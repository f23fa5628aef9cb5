"""SASL: which request is allowed in which state of a connection, and the mechanisms that find its principal."""
