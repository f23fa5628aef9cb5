"""PURE: counts the requests of a server: by API, with errors, bytes and the time of each phase."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec
from semel_protocol.api import APIS
from semel_protocol.fields import Array, Encoded, fields_of
from semel_storage.histogram import Histogram

ROWS_MAX: Final = 1_000
"""Rows of one array of a response whose error codes are counted; a longer one would take long."""
UNKNOWN: Final = -1
"""The key under which requests of APIs that do not exist are counted."""


class ApiCounters:
    """The requests of one API. `errors`: by error code, each row of a response counts. Times in seconds:

    `queue`: from the last byte of a request to its start. `handle`: the work of the event loop until it is answered or
    waits. `wait`: from there to the answer, of requests that wait. `send`: from the answer until it is given to the
    socket, of answers that wait for earlier ones or for the peer.
    """

    __slots__ = ("bytes_in", "bytes_out", "errors", "handle", "queue", "requests", "send", "wait")

    def __init__(self) -> None:
        self.requests = self.bytes_in = self.bytes_out = 0
        self.errors: dict[int, int] = {}
        self.queue, self.handle, self.wait, self.send = Histogram(), Histogram(), Histogram(), Histogram()


class RequestCounters:
    """The requests of one server. `by_api`: by API key, with one entry for all keys that do not exist."""

    def __init__(self) -> None:
        self.by_api: dict[int, ApiCounters] = {}

    def of(self, api_key: int) -> ApiCounters:
        """The counters of an API."""
        found = self.by_api.get(api_key)
        if found is None:
            key = api_key if api_key in APIS else UNKNOWN
            found = self.by_api.setdefault(key, ApiCounters())
        return found


class _Codes(msgspec.Struct, frozen=True):
    """Where a struct has error codes: in itself, and in the rows of its arrays."""

    is_here: bool
    below: tuple[tuple[str, _Codes], ...]


@cache
def _codes_of(cls: type[msgspec.Struct]) -> _Codes | None:
    is_here, below = False, []
    for field in fields_of(cls):
        if field.name == "error_code":
            is_here = True
        elif isinstance(field.type, Array) and isinstance(field.type.element, type):
            codes = _codes_of(field.type.element)
            if codes is not None:
                below.append((field.name, codes))
    return _Codes(is_here, tuple(below)) if is_here or below else None


def count_errors(response: msgspec.Struct, errors: dict[int, int]) -> None:
    """Add each error code of a response to `errors`."""
    codes = _codes_of(type(response))
    if codes is not None:
        _count(response, codes, errors)


def _count(row: Any, codes: _Codes, errors: dict[int, int]) -> None:
    if codes.is_here and (code := row.error_code):
        errors[code] = errors.get(code, 0) + 1
    for name, below in codes.below:
        rows = getattr(row, name)
        if rows and not isinstance(rows, Encoded):
            for each in rows if len(rows) <= ROWS_MAX else rows[:ROWS_MAX]:
                _count(each, below, errors)


class Work:
    """The request that the event loop works on now; a watchdog reads it from another thread.

    `api`: its name, empty between requests. `request`: once it is decoded.
    """

    __slots__ = ("api", "client_id", "request", "size")

    def __init__(self) -> None:
        self.api = self.client_id = ""
        self.size = 0
        self.request: Any = None
