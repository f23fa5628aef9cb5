"""Alters answers on their way from a broker to a client.

Replaces the client's `Edge`, in the virtual time of the loop. While `is_altering`, some answers are mutated, cut,
spliced with others, or replaced by an earlier answer under the correlation id of this one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from random import Random
from typing import TypeVar

from fuzz.fuzzed_broker import WALL_MS
from fuzz.mutations import SIZE_BYTES, framed, misframed, mutate, splice
from semel._edge import Edge
from support.virtual_loop import Transport, VirtualLoop

P = TypeVar("P", bound=asyncio.BaseProtocol)

KEPT = 30
CORRELATION_BYTES = 4


class AlteringEdge(Edge):
    """`likelihood`: the chance that an answer is altered. `altered_count`: the number of altered answers."""

    def __init__(self, loop: VirtualLoop, random: Random, likelihood: float) -> None:
        super().__init__(seed=1)
        self.loop, self.random, self.likelihood = loop, random, likelihood
        self.is_altering = True
        self.altered_count = 0
        self.recent: list[bytes] = []

    def now_ms(self) -> int:
        return WALL_MS + int(self.loop.time() * 1000)

    def monotonic(self) -> float:
        return self.loop.time()

    async def create_connection(
        self, factory: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, P]:
        inner = factory()
        transport, _ = await self.loop.create_connection(lambda: AlteringProtocol(self, inner), host, port)
        return transport, inner

    def altered(self, answer: bytes) -> bytes:
        """The frame that the client gets instead of `answer` (which is without its size)."""
        random = self.random
        self.recent = [*self.recent[-KEPT:], answer]
        if not self.is_altering or random.random() > self.likelihood:
            return framed(answer)
        self.altered_count += 1
        head, body = answer[:CORRELATION_BYTES], answer[CORRELATION_BYTES:]
        other = random.choice(self.recent)[CORRELATION_BYTES:]
        match random.randrange(8):
            case 0:
                return framed(mutate(answer, random))
            case 1:
                return misframed(answer, random)
            case 2:
                return framed(head + other)
            case 3:
                return framed(head + splice(body, other, random))
            case _:
                return framed(head + mutate(body, random, times=random.choice((1, 1, 2, 5))))


class AlteringProtocol(asyncio.Protocol):
    """The protocol of the transport: passes each answer to the client's protocol as the edge altered it."""

    def __init__(self, edge: AlteringEdge, inner: asyncio.BaseProtocol) -> None:
        self._edge, self._inner = edge, inner
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(self._buffer[:SIZE_BYTES], "big")
            if len(self._buffer) < end:
                return
            answer = bytes(self._buffer[SIZE_BYTES:end])
            del self._buffer[:end]
            self._pass_on(self._edge.altered(answer))

    def _pass_on(self, data: bytes) -> None:
        inner = self._inner
        while data and isinstance(self._transport, Transport) and not self._transport.is_closing():
            if not isinstance(inner, asyncio.BufferedProtocol):
                assert isinstance(inner, asyncio.Protocol)
                inner.data_received(data)
                return
            view = memoryview(inner.get_buffer(len(data)))
            size = min(len(view), len(data))
            view[:size] = data[:size]
            data = data[size:]
            inner.buffer_updated(size)

    def eof_received(self) -> bool | None:
        assert isinstance(self._inner, asyncio.Protocol | asyncio.BufferedProtocol)
        return self._inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
