"""Reads records: positions, fetches, buffers, commits, and scans of a log."""
