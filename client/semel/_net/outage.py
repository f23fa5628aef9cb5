"""Limits the log lines of a failure that repeats: one when it begins, then one every ten seconds."""

from semel._edge import Edge

REMIND_S = 10.0


class Outage:
    """A row of failures of one kind. `is_due` asks whether this failure is to be logged; `end` ends the row."""

    __slots__ = ("_edge", "_logged_at")

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._logged_at: float | None = None

    def is_due(self) -> bool:
        """Counts a failure. True for the first one, and for the first one after each ten seconds."""
        now = self._edge.monotonic()
        if self._logged_at is not None and now - self._logged_at < REMIND_S:
            return False
        self._logged_at = now
        return True

    def end(self) -> None:
        """A success: the next failure is logged at once."""
        self._logged_at = None
