"""Figures of semel, measured: `make bench`. A table, never a timed test."""
