"""The sink: writes data frames into topics, exactly once."""
