"""A real broker for tests: the pytest plugin, and a broker inside the process of a test."""
