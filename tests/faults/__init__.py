"""Faults on real processes: `make faults`, and the scenarios of `tests/scenarios` against `semel serve`."""
