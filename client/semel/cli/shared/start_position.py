"""PURE: a start position in a partition, parsed from text: earliest, latest, an offset, or a time."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import msgspec

from semel.admin import EARLIEST, LATEST

WORDS = {"earliest": EARLIEST, "latest": LATEST}
EXAMPLE = "2026-11-22T08:00"
FORMS = f"earliest, latest, an offset, or a time such as {EXAMPLE} (UTC without a zone)"


class StartPosition(msgspec.Struct, frozen=True):
    """Either an offset or a `timestamp` in ms for Admin.list_offsets, which may be EARLIEST or LATEST."""

    timestamp: int | None = None
    offset: int | None = None


def parse(words: str, option: str) -> StartPosition:
    """Parses a start position. Raises click.BadParameter, with the option that the text was given to."""
    if words in WORDS:
        return StartPosition(timestamp=WORDS[words])
    if words.isascii() and words.isdigit():
        return StartPosition(offset=int(words))
    try:
        moment = datetime.fromisoformat(words)
    except ValueError:
        raise click.BadParameter(
            f"{words!r} is neither earliest, latest, an offset nor a time such as {EXAMPLE}", param_hint=option
        ) from None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return StartPosition(timestamp=max(0, round(aware.timestamp() * 1000)))
