"""Removes old records of a log: by key (compaction), by age and size (retention)."""
