"""Runs third-party clients, tools and test suites against semel: `make strangers` (tools/strangers/README.md)."""
