"""PURE: counts the requests of a server: by API, with errors, bytes and the time of each phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import msgspec
from semel_protocol.api import APIS
from semel_protocol.fields import Array, Encoded, fields_of
from semel_storage.histogram import SECONDS, Histogram

ROWS_MAX: Final = 1_000
"""Rows of one array of a response whose error codes are counted; a longer one would take long."""
AT_ONCE_S: Final = SECONDS[0]
"""A request that is started within this time has not waited."""
UNKNOWN: Final = -1
"""The key under which requests of APIs that do not exist are counted."""


class ApiCounters:
    """The requests of one API. `errors`: by error code, each row of a response counts. Times in seconds:

    `queue`: from the last byte of a request to its start, of those that are not started within AT_ONCE_S. `handle`: the
    work of the event loop until it is answered or waits. `wait`: from there to the answer, of requests that wait.
    `send`: from the answer until it is given to the socket, of answers that wait for earlier ones or for the peer.
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


Counting = Callable[[Any, dict[int, int]], None]
"""(response, errors): add the error codes of the response to `errors`."""


def count_errors(response: msgspec.Struct, errors: dict[int, int]) -> None:
    """Add each error code of a response to `errors`."""
    _counting(type(response))(response, errors)


@cache
def _counting(cls: type[msgspec.Struct]) -> Counting:
    """The function for one class of responses, generated: it runs for each request."""
    lines = list(_lines(cls, "response", 1)) or ["    pass"]
    source = "\n".join(["def count(response, errors):", *lines])
    namespace: dict[str, Any] = {"some": _some}
    exec(compile(source, f"<errors of {cls.__name__}>", "exec"), namespace)  # noqa: S102 (our own text)
    counting: Counting = namespace["count"]
    return counting


def _lines(cls: type[msgspec.Struct], name: str, depth: int) -> Iterator[str]:
    indent = "    " * depth
    for field in fields_of(cls):
        if field.name == "error_code":
            yield f"{indent}if {name}.error_code:"
            yield f"{indent}    errors[{name}.error_code] = errors.get({name}.error_code, 0) + 1"
        elif isinstance(field.type, Array) and isinstance(field.type.element, type):
            inner = list(_lines(field.type.element, f"row{depth}", depth + 1))
            if inner:
                yield f"{indent}for row{depth} in some({name}.{field.name}):"
                yield from inner


def _some(rows: Any) -> Any:
    """The rows that are looked at."""
    if not rows or isinstance(rows, Encoded):
        return ()
    return rows if len(rows) <= ROWS_MAX else rows[:ROWS_MAX]


class Work:
    """The request that the event loop works on now; a watchdog reads it from another thread.

    `api`: its name, empty between requests. `request`: once it is decoded.
    """

    __slots__ = ("api", "client_id", "request", "size")

    def __init__(self) -> None:
        self.api = self.client_id = ""
        self.size = 0
        self.request: Any = None
