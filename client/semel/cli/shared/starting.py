"""EDGE: starts a command's client: says what it waits for, and gives up early on addresses that refuse connections."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click
from semel_protocol.visible import visible

from semel import Admin, Consumer, Producer
from semel._config.client import DEFAULT_PORT
from semel._edge import Edge
from semel._edge import P as Protocol
from semel.cli.shared.common import say

C = TypeVar("C", Admin, Consumer, Producer)
SAY_AFTER_S = 1.0
REFUSED_S = 3.0
"""A refused connection is tried again for this long: a broker may be starting."""


class UnreachableError(click.ClickException):
    """No address accepts a connection. reason: the addresses with their failures, in one clause."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(visible(f"{reason}{advice}"))
        self.reason = reason


class ObservedEdge(Edge):
    """The real edge, which remembers why connections failed.

    failures: by address, the reason of the last failure. reached: whether any connection was opened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.failures: dict[str, OSError] = {}
        self.reached = False

    async def create_connection(
        self, factory: Callable[[], Protocol], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, Protocol]:
        try:
            made = await super().create_connection(factory, host, port, tls)
        except OSError as e:
            self.failures[f"{host}:{port}"] = e
            raise
        self.reached = True
        return made

    @property
    def is_refused(self) -> bool:
        """Whether no address has accepted a connection, and each attempt failed at once."""
        return not self.reached and bool(self.failures) and all(map(_is_final, self.failures.values()))

    def reasons(self) -> str:
        """`127.0.0.1:9092: connection refused`, for each address."""
        return "; ".join(f"{address}: {_reason(error)}" for address, error in self.failures.items())


@asynccontextmanager
async def started(kind: Callable[..., C], settings: Mapping[str, Any], *, quiet: bool = False) -> AsyncIterator[C]:
    """A client that is started, and stopped at the end. quiet: do not say what the start waits for.

    Raises UnreachableError when all addresses refuse connections, unless `bootstrap_timeout_ms` is given.
    """
    edge = ObservedEdge()
    client = kind(**settings, edge=edge)
    await _start(client, edge, settings, quiet)
    try:
        yield client
    finally:
        await client.__aexit__(None, None, None)


async def _start(
    client: Admin | Consumer | Producer, edge: ObservedEdge, settings: Mapping[str, Any], quiet: bool
) -> None:
    starting = asyncio.ensure_future(client.start())
    try:
        done, _ = await asyncio.wait([starting], timeout=SAY_AFTER_S)
        if not done and not edge.reached and not quiet:
            say(f"waiting for {edge.reasons() or settings['bootstrap_servers']}", err=True)
        if "bootstrap_timeout_ms" not in settings:
            await asyncio.wait([starting], timeout=REFUSED_S - SAY_AFTER_S)
            if not starting.done() and edge.is_refused:
                raise UnreachableError(
                    f"cannot connect to {edge.reasons()}",
                    f"{_assumed(settings)}. Check the address (-b) and that the broker runs. Tried for "
                    f"{REFUSED_S:.0f} s; -X bootstrap_timeout_ms=60000 waits longer",
                )
        await starting
    finally:
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)


def _assumed(settings: Mapping[str, Any]) -> str:
    """A note about addresses without a port."""
    listed = [each.strip() for each in str(settings["bootstrap_servers"]).split(",")]
    bare = [each for each in listed if each and ":" not in each]
    return f" ({', '.join(bare)} names no port: {DEFAULT_PORT} is assumed)" if bare else ""


def _is_final(error: OSError) -> bool:
    """Whether the attempt failed at once: refused, or a name that does not exist."""
    if isinstance(error, socket.gaierror):
        return error.errno != socket.EAI_AGAIN
    return isinstance(error, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in str(error)


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved ({error.strerror})"
    if _is_final(error):
        return "connection refused"
    return error.strerror or str(error)
