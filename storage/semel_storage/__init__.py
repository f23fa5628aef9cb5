"""Stores partitions: segments, indexes, producer state, recovery, compaction. Imports only the protocol package."""
