"""The client's edge on a simulated host: clocks, random numbers and connections."""

from __future__ import annotations

import ssl
from asyncio import BaseProtocol, Transport
from collections.abc import Callable
from random import Random
from typing import TypeVar

from semel._edge import Edge

from sim.host import Host

P = TypeVar("P", bound=BaseProtocol)


class SimEdge(Edge):
    """Pass `edge=SimEdge(host)` to a Producer, Consumer or Admin in a process of `host`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.rng: Random = host.rng

    def now_ms(self) -> int:
        return self._host.now_ms()

    def monotonic(self) -> float:
        return self._host.monotonic()

    async def create_connection(
        self, factory: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[Transport, P]:
        assert tls is None, "the simulated network has no TLS"
        assert self._host.loop is not None
        return await self._host.loop.create_connection(factory, host, port)
