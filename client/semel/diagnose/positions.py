"""PURE: a start position in a partition, parsed from text: earliest, latest, an offset, a time, or one before now."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec
from semel_protocol.errors import PortableError

from semel.admin import EARLIEST, LATEST

WORDS = {"earliest": EARLIEST, "latest": LATEST, "beginning": EARLIEST, "end": LATEST}
"""Kafka's words, and those of kcat."""
EXAMPLE = "2026-11-22T08:00"
FORMS = (
    f"earliest or beginning, latest or end, an offset, a time such as {EXAMPLE} (UTC without a zone), or one before "
    "now such as -1h"
)
AGO = re.compile(r"-(\d+)(s|m|min|h|d|w)", re.ASCII)
UNIT_MS = {"s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
LAST = re.compile(r"-(\d+)", re.ASCII)


class StartPositionError(PortableError, ValueError):
    """A text that is no start position."""


class StartPosition(msgspec.Struct, frozen=True):
    """An offset, a `timestamp` in ms for Admin.list_offsets (it may be EARLIEST or LATEST), or the `last` N records."""

    timestamp: int | None = None
    offset: int | None = None
    last: int | None = None


def start_position(words: str, now_ms: int, *, may_be_last: bool = False) -> StartPosition:
    """The start position that a text means, in one of FORMS. Raises StartPositionError.

    may_be_last: whether `-5` stands for the last 5 records.
    """
    if words in WORDS:
        return StartPosition(timestamp=WORDS[words])
    if words.isascii() and words.isdigit():
        return StartPosition(offset=int(words))
    if (ago := AGO.fullmatch(words)) is not None:
        return StartPosition(timestamp=max(0, now_ms - int(ago[1]) * UNIT_MS[ago[2]]))
    if may_be_last and (last := LAST.fullmatch(words)) is not None:
        return StartPosition(last=int(last[1]))
    try:
        moment = datetime.fromisoformat(words)
    except ValueError:
        more = " or -5 for the last 5 records" if may_be_last else ""
        raise StartPositionError(
            f"{words!r} is neither earliest, latest, an offset nor a time such as {EXAMPLE} or -1h{more}"
        ) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return StartPosition(timestamp=max(0, round(aware.timestamp() * 1000)))
