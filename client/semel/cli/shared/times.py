"""PURE: times, durations and counts as text."""

from __future__ import annotations

from datetime import UTC, datetime

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
