"""SASL: the mechanisms by which clients authenticate."""
