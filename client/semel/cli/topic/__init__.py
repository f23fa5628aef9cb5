"""`semel topic`: topics, their settings, their leaders and moves."""
