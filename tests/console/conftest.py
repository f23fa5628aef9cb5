"""Fixtures of the console's tests: a visitor of a console that is connected to the test's broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from console.visitor import Visitor
from semel import Admin
from semel._command_line.client_settings import ClientSettings
from semel_broker.testing.in_process import EphemeralBroker
from semel_console.guard import ConsoleGuard
from semel_console.link import ClusterLink

SETTINGS = {"max_block_ms": 2_000, "request_timeout_ms": 2_000, "retry_backoff_ms": 20}


def opened(address: Callable[[], str]) -> Callable[[], AbstractAsyncContextManager[Admin]]:
    """Open the console's connections to the current value of `address`."""
    return lambda: ClientSettings({"bootstrap_servers": address()}, {}).admin(SETTINGS, quiet=True)


@pytest.fixture
async def visitor(semel_broker: EphemeralBroker) -> AsyncIterator[Visitor]:
    """A visitor that has entered and may write."""
    address = semel_broker.bootstrap_servers
    link = ClusterLink(opened(lambda: address))
    client = ClientSettings({"bootstrap_servers": address}, {})
    made = Visitor(link, ConsoleGuard(may_write=True), producing=lambda: client.producer({}, SETTINGS))
    await made.enter()
    yield made
    await link.close()
