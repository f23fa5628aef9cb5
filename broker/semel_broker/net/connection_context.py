"""The shared state of one server's connections: loop, dispatcher, scratch memory and memory bounds."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Handle, Task, TimerHandle
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from semel_broker.config.loading import BrokerConfig
from semel_broker.net.dispatch import Dispatcher
from semel_broker.net.entrances import Entrances
from semel_broker.net.frame_buffer import SCRATCH_BYTES
from semel_broker.net.handshakes import Handshakes
from semel_broker.scheduling.answer_memory import AnswerMemory
from semel_broker.scheduling.frame_memory import FrameMemory
from semel_broker.scheduling.turns import Turns
from semel_broker.security.quotas.client_quotas import ClientQuotas
from semel_broker.world import Logger

STALL_CHECKS = 4
"""Checks for peers that do not read, within the timeout after which they are closed."""

TLS_SCRATCH_BYTES = 64 << 10
"""The largest receive of a TLS connection. As much can lie undecrypted in a connection that is not read at present."""


NO_DESCRIPTOR = -1


class Unread(Protocol):
    """A connection that is not read for now. `descriptor`: of its socket, or NO_DESCRIPTOR."""

    @property
    def descriptor(self) -> int: ...

    def abort(self, reason: str) -> None:
        """Close it at once."""
        ...


class ConnectionContext:
    """The shared state of all connections of a server.

    `tasks`: the tasks of unanswered requests. `memory` bounds the bytes of requests, `answers` those of answers.
    `logins`: the connections with SASL that are not authenticated yet. `unacknowledged`, `hung_up`: see `World`.
    `quotas`: of clients; None: there are none. `entrances`: where new connections wait whose client is above one.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        config: BrokerConfig,
        log: Logger,
        loop: AbstractEventLoop,
        turns: Turns,
        unacknowledged: Callable[[int], int],
        hung_up: Callable[[Sequence[int]], Collection[int]],
        quotas: ClientQuotas | None,
    ) -> None:
        self.dispatcher = dispatcher
        self.config = config
        self.log = log
        self.loop = loop
        self.limits = config.limits
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.tls_scratch = memoryview(bytearray(TLS_SCRATCH_BYTES))
        self.turns = turns
        self.requests = dispatcher.counters
        self.work = dispatcher.work
        self.connections = dispatcher.connections
        limits = config.limits
        self.memory = FrameMemory(limits.total_in_flight_bytes_max, limits.small_frame_bytes)
        self.answers = AnswerMemory(
            limits.total_write_buffer_bytes_max,
            limits.answer_part_of_free,
            limits.answer_bytes_min,
            loop.time,
            self._watch_answers,
        )
        self.logins = Handshakes(
            limits.unauthenticated_connections_max,
            limits.unauthenticated_connections_per_address_max,
            limits.unauthenticated_stalled_ms,
            "authentication_stalled",
        )
        self.tasks: dict[Task[Any], None] = {}
        self.connections_made = 0
        self.unacknowledged = unacknowledged
        self.quotas = quotas
        self.entrances = Entrances(loop, quotas, limits)
        self._hung_up = hung_up
        self._unread: dict[Unread, None] = {}
        self._hang_up_timer: TimerHandle | None = None
        self._frame_timer: TimerHandle | None = None
        self._reader_timer: Handle | None = None

    @property
    def produce_bytes_max(self) -> int:
        return self.config.socket_request_max_bytes

    @property
    def other_bytes_max(self) -> int:
        """The largest frame of a request other than Produce."""
        return min(self.limits.control_frame_bytes_max, self.config.socket_request_max_bytes)

    @property
    def idle_s(self) -> float:
        return self.config.connections_max_idle_ms / 1000

    @property
    def partial_s(self) -> float:
        return self.limits.partial_frame_timeout_ms / 1000

    def watch_memory(self) -> None:
        """A connection waits for memory: start the timer that closes connections that hold memory without progress."""
        if self._frame_timer is None:
            self._frame_timer = self.loop.call_later(self.limits.stalled_frame_timeout_ms / 1000, self._close_stalled)

    def _close_stalled(self) -> None:
        self._frame_timer = None
        if not self.memory.has_waiting:
            return
        for holding in self.memory.stalled(self.limits.stalled_frame_bytes):
            holding.evict()
        self.watch_memory()

    def watch_unread(self, connection: Unread) -> None:
        """The connection is not read for now, so its transport does not notice when the peer goes: look for that."""
        if connection.descriptor == NO_DESCRIPTOR:
            return
        self._unread[connection] = None
        if self._hang_up_timer is None:
            self._hang_up_timer = self.loop.call_later(self.limits.hang_up_check_ms / 1000, self._close_hung_up)

    def is_read(self, connection: Unread) -> None:
        """The connection is read again, or closed."""
        self._unread.pop(connection, None)

    def _close_hung_up(self) -> None:
        self._hang_up_timer = None
        if not self._unread:
            return
        by_descriptor = {each.descriptor: each for each in self._unread}
        for descriptor in self._hung_up(list(by_descriptor)):
            by_descriptor[descriptor].abort("peer_closed")
        self._hang_up_timer = self.loop.call_later(self.limits.hang_up_check_ms / 1000, self._close_hung_up)

    def close(self) -> None:
        """Cancel the timers; no connection is left."""
        self.entrances.close()
        for timer in (self._frame_timer, self._reader_timer, self._hang_up_timer):
            if timer is not None:
                timer.cancel()

    def _watch_answers(self) -> None:
        """A Fetch waits for memory: check repeatedly for connections whose peers do not read their answers."""
        if self._reader_timer is None:
            self._reader_timer = self.loop.call_soon(self._close_stalled_readers)

    def _close_stalled_readers(self) -> None:
        self._reader_timer = None
        if not self.answers.waiting:
            return
        stalled_s = self.limits.stalled_reader_timeout_ms / 1000
        for holding in self.answers.stalled(self.limits.stalled_frame_bytes, stalled_s):
            holding.evict()
        self._reader_timer = self.loop.call_later(stalled_s / STALL_CHECKS, self._close_stalled_readers)
