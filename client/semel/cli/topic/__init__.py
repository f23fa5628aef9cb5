"""`semel topic`: topics, their settings, elections, and reassignments."""
