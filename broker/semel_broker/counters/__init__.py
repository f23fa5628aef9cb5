"""Counters that the parts of a broker own: plain fields that they increment, and that `metrics` reads."""
