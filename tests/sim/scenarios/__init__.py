"""Plays the scenarios of `tests/scenarios` in the simulated world: the same steps, in virtual time, deterministic."""
