"""PURE: reads the counters of requests and connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode

from semel_broker.counters.requests import RequestCounters
from semel_broker.metrics.families import Section
from semel_broker.metrics.page import Page
from semel_broker.node import Node

SECTION: Final = Section("Requests")
REQUESTS = SECTION.counter("requests_total", "Requests that were started; source: client or broker.", "source", "api")
REQUEST_ERRORS = SECTION.counter(
    "request_errors_total", "Error codes in responses, each partition or row by itself.", "source", "api", "code"
)
REQUEST_BYTES = SECTION.counter("request_bytes_total", "Bytes of requests.", "source", "api")
RESPONSE_BYTES = SECTION.counter("response_bytes_total", "Bytes of responses.", "source", "api")
QUEUE = SECTION.histogram(
    "request_queue_seconds", "Time from the last byte of a request to its start.", "source", "api"
)
HANDLE = SECTION.histogram(
    "request_handle_seconds", "Work of the event loop until a request is answered or waits.", "source", "api"
)
WAIT = SECTION.histogram(
    "request_wait_seconds", "Time from there to the answer, of requests that wait (sync, replicas).", "source", "api"
)
SEND = SECTION.histogram(
    "request_send_seconds", "Time that an answer waited for the answers of earlier requests.", "source", "api"
)
CONNECTIONS = SECTION.gauge(
    "connections", "Open connections, by what the client says it is (KIP-511).", "listener", "software", "version"
)
CONNECTIONS_OPENED = SECTION.counter("connections_opened_total", "Connections that were accepted.", "listener")
CONNECTIONS_CLOSED = SECTION.counter("connections_closed_total", "Connections that have ended.", "listener", "reason")


def read(node: Node, page: Page) -> Iterator[None]:
    """Add all series of this section; yields between pieces of work."""
    counters = node.broker.counters
    for source, requests in (("client", counters.requests), ("broker", counters.peer_requests)):
        yield from _requests(source, requests, page)
    connections = counters.connections
    for (listener, (name, version)), count in sorted(connections.open.items()):
        page.add(CONNECTIONS, count, listener, name, version)
    for listener, count in sorted(connections.opened.items()):
        page.add(CONNECTIONS_OPENED, count, listener)
    for (listener, reason), count in sorted(connections.closed.items()):
        page.add(CONNECTIONS_CLOSED, count, listener, reason)


def _requests(source: str, requests: RequestCounters, page: Page) -> Iterator[None]:
    for key, api in sorted(requests.by_api.items()):
        name = APIS[key].name if key in APIS else "unknown"
        page.add(REQUESTS, api.requests, source, name)
        page.add(REQUEST_BYTES, api.bytes_in, source, name)
        page.add(RESPONSE_BYTES, api.bytes_out, source, name)
        for code, count in sorted(api.errors.items()):
            page.add(REQUEST_ERRORS, count, source, name, code_name(code))
        phases = (
            (QUEUE, api.whole_queue),
            (HANDLE, api.whole_handle),
            (WAIT, api.wait),
            (SEND, api.send),
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
