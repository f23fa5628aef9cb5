"""The listening socket, its connections, and the bounds over all of them together."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, Task
from typing import Any

from semel_broker.byte_budget import ByteBudget
from semel_broker.config import BrokerConfig
from semel_broker.connection import Connection
from semel_broker.dispatch import Dispatcher
from semel_broker.frame_buffer import SCRATCH_BYTES
from semel_broker.world import Logger

SWEEP_S_MAX = 5.0
BACKLOG = 1024


class Server:
    """Accepts connections and keeps what they share. Their order is the order they came in."""

    def __init__(self, dispatcher: Dispatcher, config: BrokerConfig, log: Logger, loop: AbstractEventLoop) -> None:
        self.dispatcher = dispatcher
        self.log = log
        self.loop = loop
        self.limits = limits = config.limits
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.produce_bytes_max = config.socket_request_max_bytes
        self.other_bytes_max = min(limits.control_frame_bytes_max, config.socket_request_max_bytes)
        self.in_flight = ByteBudget(limits.total_in_flight_bytes_max)
        self.tasks: dict[Task[Any], None] = {}
        self._unsent_bytes = 0
        self._fetches_held: dict[Connection, None] = {}
        self._connections: dict[Connection, None] = {}
        self._config = config
        self._listener: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self._all_lost: asyncio.Event = asyncio.Event()
        self._all_lost.set()

    @property
    def idle_s(self) -> float:
        return self._config.connections_max_idle_ms / 1000

    @property
    def partial_s(self) -> float:
        return self.limits.partial_frame_timeout_ms / 1000

    @property
    def stalled_s(self) -> float:
        return self.limits.stalled_reader_timeout_ms / 1000

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def listen(self, host: str, port: int) -> int:
        """Start to accept; returns the port. Raises OSError (EADDRINUSE, ...)."""
        self._listener = await self.loop.create_server(lambda: Connection(self), host, port, backlog=BACKLOG)
        self._sweep_later()
        bound: int = self._listener.sockets[0].getsockname()[1]
        return bound

    # --- for connections -------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> None:
        self._connections[connection] = None
        self._all_lost.clear()
        if len(self._connections) > self._config.max_connections:
            connection.close("too_many_connections", max_connections=self._config.max_connections)

    def lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._fetches_held.pop(connection, None)
        if not self._connections:
            self._all_lost.set()

    @property
    def unsent_exhausted(self) -> bool:
        """Peers have let as many bytes of answers pile up as may be."""
        return self._unsent_bytes > self.limits.total_write_buffer_bytes_max

    def may_fetch(self, connection: Connection) -> bool:
        """Whether an answer that may be large can be made now; if not, the connection advances once it can."""
        if not self.unsent_exhausted:
            return True
        self._fetches_held[connection] = None
        return False

    def note_unsent(self, change: int) -> None:
        """The bytes of answers that peers have not taken yet have changed by so much."""
        self._unsent_bytes += change
        while change < 0 and self._fetches_held and not self.unsent_exhausted:
            connection = next(iter(self._fetches_held))
            del self._fetches_held[connection]
            connection.advance()

    # --- time ------------------------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        shortest = min(self.idle_s, self.partial_s, self.stalled_s)
        self._sweep = self.loop.call_later(min(SWEEP_S_MAX, shortest / 4), self._sweep_now)

    def _sweep_now(self) -> None:
        """Close the connections whose time is up: one timer for all of them."""
        now = self.loop.time()
        for connection in list(self._connections):
            if reason := connection.expired(now):
                connection.abort(reason)
        self._sweep_later()

    # --- the end ---------------------------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        """No new connections, no new requests; what is in progress is still answered."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.finish()

    async def stop(self, grace_s: float) -> None:
        """Wait until everything in progress is answered and taken, at most `grace_s`; then close what is left."""
        self.stop_accepting()
        try:
            async with asyncio.timeout(grace_s):
                await self._all_lost.wait()
        except TimeoutError:
            self.log.warning("stop_grace_exceeded", connections=len(self._connections), requests=len(self.tasks))
        for connection in list(self._connections):
            connection.abort("stopping")
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._sweep is not None:
            self._sweep.cancel()
        if self._listener is not None:
            await self._listener.wait_closed()
