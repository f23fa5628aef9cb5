"""PURE: counts what the coordinators of transactions and groups do."""

from __future__ import annotations

from semel_storage.histogram import Histogram


class TransactionCounters:
    """One per broker. `aborted`, `fenced`: by cause."""

    def __init__(self) -> None:
        self.begun = self.committed = self.resumed = 0
        self.aborted: dict[str, int] = {}
        self.fenced: dict[str, int] = {}
        self.marker_retries = 0
        self.seconds = Histogram((0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0, 900.0))
        """From the begin of a transaction to its decision."""


class GroupCounters:
    """One per broker. `rebalances`: by cause."""

    def __init__(self) -> None:
        self.rebalances: dict[str, int] = {}


def count(counts: dict[str, int], cause: str) -> None:
    """Add one to the count of a cause."""
    counts[cause] = counts.get(cause, 0) + 1
