"""Segment files with their indexes and leader epochs; finding records in them; checking them at a start."""
