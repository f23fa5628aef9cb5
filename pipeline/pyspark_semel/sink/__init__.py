"""The sink of the format "semel": writes data frames into topics, exactly once."""
