"""Limits log lines: of a failure that repeats, one every ten seconds; of a fact that lasts, one in all."""

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from semel._edge import Edge

F = TypeVar("F", bound=Hashable)

REMIND_S = 10.0


class Outage:
    """A row of failures of one kind. `is_due` asks whether this failure is to be logged; `end` ends the row."""

    __slots__ = ("_edge", "_logged_at")

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._logged_at: float | None = None

    def is_due(self) -> bool:
        """Count a failure. True for the first one, and for the first one after each ten seconds."""
        now = self._edge.monotonic()
        if self._logged_at is not None and now - self._logged_at < REMIND_S:
            return False
        self._logged_at = now
        return True

    def end(self) -> None:
        """A success: the next failure is logged at once."""
        self._logged_at = None


class LastingFacts(Generic[F]):
    """Facts that are logged once, when they have lasted for some time. A fact that has ended may be logged again."""

    __slots__ = ("_edge", "_is_told", "_since")

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._since: dict[F, float] = {}
        self._is_told: dict[F, None] = {}

    def due(self, present: Mapping[F, float]) -> list[F]:
        """The facts to log now. present: all that hold, each with the seconds that it has to last."""
        now = self._edge.monotonic()
        self._since = {fact: self._since.get(fact, now) for fact in present}
        self._is_told = {fact: None for fact in self._is_told if fact in present}
        due = [fact for fact, after_s in present.items() if now - self._since[fact] >= after_s]
        fresh = [fact for fact in due if fact not in self._is_told]
        self._is_told.update(dict.fromkeys(fresh))
        return fresh
