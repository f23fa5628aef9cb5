"""How requests share the event loop and memory: turns, slices of long work, memory bounds, and waiting requests."""
