"""The truth of one partition: segments, indexes, producer state, recovery, compaction. Imports the protocol only."""
