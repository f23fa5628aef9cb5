"""The scenarios of `tests/scenarios` in the simulated world: the same steps, in milliseconds, and always alike."""
