"""How requests share the event loop and memory: turns, slices of long work, bounds, futures of waiting requests."""
