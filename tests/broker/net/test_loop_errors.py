"""Errors that the event loop reports: errors of closed connections are not logged as errors of the broker."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from semel_broker.net.loop_errors import SSL_MESSAGE, is_of_a_closed_connection


@pytest.mark.real_time
def test_a_write_of_tls_to_a_closed_transport_is_of_a_closed_connection() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        error = runner.run(error_of_a_closed_transport())
    assert is_of_a_closed_connection({"message": SSL_MESSAGE, "exception": error})
    assert not is_of_a_closed_connection({"message": "Exception in callback", "exception": error})


async def error_of_a_closed_transport() -> RuntimeError:
    """The error that uvloop raises, also under TLS."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    transport, _ = await loop.create_connection(asyncio.Protocol, *server.sockets[0].getsockname())
    transport.abort()
    while True:
        try:
            transport.write(b"x")
        except RuntimeError as error:
            server.close()
            return error
        await asyncio.sleep(0)


@pytest.mark.parametrize("error", [None, RuntimeError("a bug"), ValueError("the handler is closed")])
def test_other_errors_under_tls_are_errors(error: Exception | None) -> None:
    assert not is_of_a_closed_connection({"message": SSL_MESSAGE, "exception": error})
