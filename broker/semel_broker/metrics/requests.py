"""PURE: reads the counters of requests and connections."""

from __future__ import annotations

from collections.abc import Iterator

from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode

from semel_broker.counters.requests import RequestCounters
from semel_broker.metrics import families
from semel_broker.metrics.page import Page
from semel_broker.node import Node


def read(node: Node, page: Page) -> Iterator[None]:
    """Add all series of this section; yields between pieces of work."""
    counters = node.broker.counters
    for source, requests in (("client", counters.requests), ("broker", counters.peer_requests)):
        yield from _requests(source, requests, page)
    connections = counters.connections
    for (listener, (name, version)), count in sorted(connections.open.items()):
        page.add(families.CONNECTIONS, count, listener, name, version)
    for listener, count in sorted(connections.opened.items()):
        page.add(families.CONNECTIONS_OPENED, count, listener)
    for (listener, reason), count in sorted(connections.closed.items()):
        page.add(families.CONNECTIONS_CLOSED, count, listener, reason)


def _requests(source: str, requests: RequestCounters, page: Page) -> Iterator[None]:
    for key, api in sorted(requests.by_api.items()):
        name = APIS[key].name if key in APIS else "unknown"
        page.add(families.REQUESTS, api.requests, source, name)
        page.add(families.REQUEST_BYTES, api.bytes_in, source, name)
        page.add(families.RESPONSE_BYTES, api.bytes_out, source, name)
        for code, count in sorted(api.errors.items()):
            page.add(families.REQUEST_ERRORS, count, source, name, code_name(code))
        phases = (
            (families.QUEUE, api.whole_queue),
            (families.HANDLE, api.whole_handle),
            (families.WAIT, api.wait),
            (families.SEND, api.send),
        )
        for family, histogram in phases:
            page.add_histogram(family, histogram, source, name)
        yield


def code_name(code: int) -> str:
    """The name of an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
