"""Checks the segment files of a data directory against the invariants of the log: `semel log check`.

It reads the files by itself and uses nothing else of this package, so that a mistake of the log is not repeated here.
"""
