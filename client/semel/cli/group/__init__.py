"""`semel group`: consumer groups, their offsets, their deletion."""
