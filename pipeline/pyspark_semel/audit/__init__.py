"""The audit: the raw segment files of a data directory as a distributed data set, and the invariants of the log."""
