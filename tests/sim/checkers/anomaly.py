"""Anomaly: the finding of a checker."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Anomaly(msgspec.Struct, frozen=True):
    """A result that must never happen. `checker`: its name. `text`: the fact, the place, the client and the time."""

    checker: str
    text: str

    def __str__(self) -> str:
        return f"{self.checker}: {self.text}"


def few(things: Iterable[object], count: int = 5) -> str:
    """The first `count` things as text, and the number of the others."""
    listed = list(things)
    more = f", ... ({len(listed) - count} more)" if len(listed) > count else ""
    return ", ".join(str(each) for each in listed[:count]) + more
