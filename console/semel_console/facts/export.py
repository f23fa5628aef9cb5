"""Found records as a file: one JSON object a line, or CSV. The records come in pieces, so that no piece is large."""

from __future__ import annotations

import csv
import io
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec
from semel import Admin, TopicPartition

from semel_console.facts.filters import filter_of
from semel_console.facts.records import FILTERED_OFFSETS_MAX, Lookup, RecordRow, bounds_of, names_for, start_of
from semel_console.query import QueryParameters

ROWS_DEFAULT, ROWS_MAX = 10_000, 1_000_000
PIECE_ROWS = 50
PARAMETERS = ("topic", "partition", "format", "from", "contains", "key", "header", "path", "limit", "committed")
MEDIA_TYPES = {"jsonl": "application/jsonl", "csv": "text/csv; charset=utf-8"}
COLUMNS = (
    "offset", "timestamp", "outcome", "producer_id", "producer_epoch", "transactional_id", "key", "key_base64",
    "value", "value_base64", "headers",
)  # fmt: skip
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet takes a text that begins so for a formula. CSV has an apostrophe before it."""
Call = Callable[[Callable[[Admin], Awaitable[Any]]], Awaitable[Any]]


class Export:
    """The export that a request asks for. Raises ValueError for wrong parameters.

    Parameters: those of the message browser; `format` jsonl or csv; `limit`; `committed=1` leaves out what a
    read_committed consumer does not get.
    """

    def __init__(self, query: QueryParameters, now_ms: int) -> None:
        self.at: TopicPartition = query.place
        query.only(*PARAMETERS)
        self.form = query.choice("format", MEDIA_TYPES, "jsonl")
        self._left = query.number("limit", ROWS_DEFAULT, most=ROWS_MAX)
        self._only_committed = bool(query.number("committed", 0, most=1))
        self._query, self._now_ms = query, now_ms

    @property
    def file_name(self) -> str:
        """Letters, digits, dots, lines: topics have no others."""
        return f"{self.at.topic}-{self.at.partition}.{self.form}"

    async def pieces(self, call: Call) -> AsyncIterator[bytes]:
        """The file, piece by piece. call: runs a function with an Admin. Raises what the first request raises at once,
        later errors while the file is sent: then it has no end.
        """
        bounds = await call(lambda admin: bounds_of(admin, self.at))
        wanted = filter_of(self._query)
        position = await call(lambda admin: start_of(admin, self.at, self._query, self._now_ms, bounds))
        if self.form == "csv":
            yield ",".join(COLUMNS).encode() + b"\r\n"
        else:
            yield b""
        while position < bounds.high_watermark and self._left > 0:
            looked = Lookup(self.at, min(PIECE_ROWS, self._left), wanted)
            last = bounds.high_watermark
            if wanted is not None:
                last = min(last, position + FILTERED_OFFSETS_MAX)

            async def look(
                admin: Admin, looked: Lookup = looked, position: int = position, last: int = last
            ) -> Mapping[int, str]:
                await looked.run(admin, position, last, bounds)
                return await names_for(admin, looked.rows)

            names = await call(look)
            rows = [row for row in looked.rows if not row.marker and self._is_wanted(row, bounds.last_stable)]
            self._left -= len(rows)
            position = looked.at
            yield b"".join(self._line(row, names) for row in rows)

    def _is_wanted(self, row: RecordRow, stable: int) -> bool:
        return not self._only_committed or (row.outcome in ("plain", "committed") and row.offset < stable)

    def _line(self, row: RecordRow, names: Mapping[int, str]) -> bytes:
        found = facts_of(row, names.get(row.producer_id))
        if self.form == "jsonl":
            return msgspec.json.encode({"topic": self.at.topic, "partition": self.at.partition, **found}) + b"\n"
        found["headers"] = msgspec.json.encode(found["headers"]).decode() if found["headers"] else None
        out = io.StringIO()
        csv.writer(out).writerow([_cell(found[name]) for name in COLUMNS])
        return out.getvalue().encode()


def facts_of(row: RecordRow, transactional_id: str | None) -> dict[str, Any]:
    """PURE. A record with texts where its bytes are UTF-8, and base64 where they are not."""
    return {
        "offset": row.offset,
        "timestamp": row.timestamp,
        "outcome": row.outcome,
        "producer_id": row.producer_id,
        "producer_epoch": row.producer_epoch,
        "transactional_id": transactional_id,
        **_text("key", row.key),
        **_text("value", row.value),
        "headers": [
            {"name": name.encode(errors="backslashreplace").decode(), **_text("value", value)}
            for name, value in row.headers
        ],
    }


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode(), f"{name}_base64": None}
    except UnicodeDecodeError:
        assert data is not None
        return {name: None, f"{name}_base64": b64encode(data).decode()}


def _cell(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
