"""Removal of what a log no longer needs: by key (compaction), by age and size (retention)."""
