"""PURE: which errors that the event loop reports come from a connection that is gone."""

from __future__ import annotations

from collections.abc import Mapping

SSL_MESSAGE = "Fatal error on SSL protocol"
CLOSED = "the handler is closed"


def is_of_a_closed_connection(context: Mapping[str, object]) -> bool:
    """Whether uvloop's TLS has written to a transport that was closed meanwhile (0.23).

    It still reads what had been received, and then sends what OpenSSL has to say. The connection ends as any other;
    no byte that a client waits for is lost by this. asyncio's own TLS ignores such writes.
    """
    error = context.get("exception")
    return isinstance(error, RuntimeError) and context.get("message") == SSL_MESSAGE and CLOSED in str(error)
