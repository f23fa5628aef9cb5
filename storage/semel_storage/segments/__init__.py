"""Segment files with their indexes and leader epochs: writes, searches and checks them."""
