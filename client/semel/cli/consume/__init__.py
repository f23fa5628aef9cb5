"""`semel consume`: prints records of a topic."""
