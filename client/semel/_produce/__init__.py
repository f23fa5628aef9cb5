"""Sends records: buffers, batches, sequences, Produce requests and their outcomes."""
