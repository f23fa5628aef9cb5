"""What a checker finds."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Anomaly(msgspec.Struct, frozen=True):
    """Something that must never happen. `checker`: its name; `text`: what, where, who, when."""

    checker: str
    text: str

    def __str__(self) -> str:
        return f"{self.checker}: {self.text}"


def few(things: Iterable[object], count: int = 5) -> str:
    """The first of them, and how many more there are."""
    listed = list(things)
    more = f", ... ({len(listed) - count} more)" if len(listed) > count else ""
    return ", ".join(str(each) for each in listed[:count]) + more
