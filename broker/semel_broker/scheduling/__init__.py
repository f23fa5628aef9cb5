"""How requests share the event loop: turns, slices of long work, and futures for what is not there yet."""
