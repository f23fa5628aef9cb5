"""PURE: times, durations, counts, partitions and similar names as text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from semel.structs import TopicPartition

UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def duration(length_ms: float) -> str:
    """`950 ms`, `12.3 s`, `2 min 3 s`, `3 h 20 min`: the two largest units."""
    left = max(0, round(length_ms))
    if left < 1_000:
        return f"{left} ms"
    if left < 60_000:
        return f"{left / 1_000:.1f} s"
    parts = []
    for unit, unit_ms in UNITS:
        count, left = divmod(left, unit_ms)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def moment(at_ms: int, now_ms: int | None = None) -> str:
    """A time in UTC to the second, without the date if it is the date of `now_ms`."""
    try:
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(at_ms)
    today = now_ms is not None and at.date() == datetime.fromtimestamp(now_ms / 1000, UTC).date()
    return at.strftime("%H:%M:%S UTC" if today else "%Y-%m-%d %H:%M:%S UTC")


def iso(at_ms: int | None) -> str | None:
    """A time in UTC as ISO 8601 with milliseconds, for JSON; None without a time (-1, None)."""
    if at_ms is None or at_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return None


def plural(count: int, noun: str) -> str:
    """`1 partition`, `1,234 partitions`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def compact(partitions: Iterable[TopicPartition], after_topic: str = ": ") -> str:
    """Partitions in one text: `orders: 0-11, 14; payments: 3`. Within a sentence `after_topic` is a space."""
    by_topic: dict[str, list[list[int]]] = {}
    for topic, index in sorted(partitions):
        runs = by_topic.setdefault(topic, [])
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return "; ".join(
        f"{topic}{after_topic}{', '.join(str(a) if a == b else f'{a}-{b}' for a, b in runs)}"
        for topic, runs in by_topic.items()
    )


def spoken(places: Sequence[TopicPartition]) -> str:
    """Partitions within a sentence: `flights 0-3, 5 and orders 1`."""
    return " and ".join(compact(places, " ").split("; "))


def names_of(partitions: Iterable[TopicPartition]) -> list[str]:
    """Each partition as Kafka's tools name it: `orders-0`."""
    return [f"{at.topic}-{at.partition}" for at in partitions]


def one_of(names: Sequence[str]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def similar(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'flights'?`, with the known names that are most like it; or ""."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
