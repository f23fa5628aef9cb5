"""Checks the segment files of a data directory against the invariants of the log, as a Spark job."""
