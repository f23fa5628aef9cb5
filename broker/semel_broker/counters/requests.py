"""PURE: counts the requests of a server: by API, with errors, bytes and the time of each phase."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import msgspec
from semel_protocol.api import APIS, Api
from semel_protocol.codegen import is_flat
from semel_protocol.fields import Array, Encoded, fields_of
from semel_protocol.refusals import ERROR_CODES
from semel_storage.histogram import SECONDS, Histogram

ROWS_MAX: Final = 1_000
"""Rows of one array of a response whose error codes are counted; a longer one would take long."""
AT_ONCE_S: Final = SECONDS[0]
"""The first bound: requests that wait, or take, no longer are counted together."""
UNKNOWN: Final = -1
"""The key under which requests of APIs that do not exist are counted."""


class ApiCounters:
    """The requests of one API. `errors`: by error code, each row of a response counts. Times in seconds:

    `queue`: from the last byte of a request to its start. `handle`: the work of the event loop until it is answered or
    waits. Both leave out the requests of at most AT_ONCE_S in their counts, and `handle_s` is the sum of all (`whole`).
    `wait`: from there to the answer, of requests that wait. `send`: from the answer until it is given to the socket, of
    answers that wait for earlier ones or for the peer.

    `count_errors(response)` adds the error codes of a response to `errors`. `response`: its class; None: any.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "count_errors",
        "errors",
        "handle",
        "handle_s",
        "queue",
        "requests",
        "send",
        "wait",
    )

    def __init__(self, response: type[msgspec.Struct] | None = None) -> None:
        self.requests = self.bytes_in = self.bytes_out = 0
        self.errors: dict[int, int] = {}
        self.handle_s = 0.0
        self.queue, self.handle, self.wait, self.send = Histogram(), Histogram(), Histogram(), Histogram()
        self.count_errors: Counting = self._count_any if response is None else _counting(response)(self.errors)

    def _count_any(self, response: msgspec.Struct) -> None:
        _counting(type(response))(self.errors)(response)

    @property
    def whole_queue(self) -> Histogram:
        """`queue`, with the requests that were started at once."""
        return self._whole(self.queue, self.queue.sum)

    @property
    def whole_handle(self) -> Histogram:
        """`handle`, with the requests that took at most AT_ONCE_S."""
        return self._whole(self.handle, self.handle_s)

    def _whole(self, slow: Histogram, total_s: float) -> Histogram:
        whole = Histogram(slow.bounds)
        whole.counts, whole.sum = list(slow.counts), total_s
        whole.counts[0] += self.requests - slow.count
        return whole


class RequestCounters:
    """The requests of one server. `by_api`: by API key, with one entry for all keys that do not exist."""

    def __init__(self) -> None:
        self.by_api: dict[int, ApiCounters] = {}

    def of(self, api_key: int) -> ApiCounters:
        """The counters of an API."""
        found = self.by_api.get(api_key)
        if found is None:
            key = api_key if api_key in APIS else UNKNOWN
            found = self.by_api.get(key)
            if found is None:
                found = self.by_api[key] = ApiCounters(APIS[key].response if key in APIS else None)
        return found


Counting = Callable[[Any], None]
"""Adds the error codes of a response to a dict."""


@cache
def _counting(cls: type[msgspec.Struct]) -> Callable[[dict[int, int]], Counting]:
    """Make the function for one class of responses from the dict. Generated, because it runs for each request."""
    lines = list(_lines(cls, "response", 2)) or ["        pass"]
    source = "\n".join(["def counting(errors):", "    def count(response):", *lines, "    return count"])
    namespace: dict[str, Any] = {"some": _some}
    exec(compile(source, f"<errors of {cls.__name__}>", "exec"), namespace)  # noqa: S102 (our own text)
    counting: Callable[[dict[int, int]], Counting] = namespace["counting"]
    return counting


def _lines(cls: type[msgspec.Struct], name: str, depth: int) -> Iterator[str]:
    indent = "    " * depth
    for field in fields_of(cls):
        if field.name in ERROR_CODES:
            code = f"{name}.{field.name}"
            yield f"{indent}if {code}:"
            yield f"{indent}    errors[{code}] = errors.get({code}, 0) + 1"
        elif isinstance(field.type, Array) and isinstance(field.type.element, type):
            inner = list(_lines(field.type.element, f"row{depth}", depth + 1))
            if inner:
                rows = f"rows{depth}"
                may_be_other = field.nullable_since is not None or is_flat(field.type.element)
                is_list = f"{rows}.__class__ is list and " if may_be_other else ""
                yield f"{indent}{rows} = {name}.{field.name}"
                yield f"{indent}for row{depth} in {rows} if {is_list}len({rows}) <= {ROWS_MAX} else some({rows}):"
                yield from inner


def _some(rows: Any) -> Any:
    """The rows that are looked at, of an array that is long, None or encoded."""
    return () if rows is None or isinstance(rows, Encoded) else rows[:ROWS_MAX]


class CurrentRequest:
    """The request that the event loop works on now; a watchdog reads it from another thread.

    `api`: None between requests. `request`: once it is decoded.
    """

    __slots__ = ("api", "client_id", "request", "size")

    def __init__(self) -> None:
        self.api: Api | None = None
        self.client_id = ""
        self.size = 0
        self.request: Any = None
