"""Runs third-party clients, tools and test suites against semel: `make strangers` (strangers/README.md)."""
