"""Measures the performance figures of semel (`make bench`); prints tables and is not a test."""
