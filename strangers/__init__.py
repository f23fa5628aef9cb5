"""Other people's programs against semel: `make strangers` (strangers/README.md)."""
