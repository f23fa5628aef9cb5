"""What the connections of one server share: the loop, the dispatcher, scratch memory, and bounds over all of them."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Handle, Task, TimerHandle
from collections.abc import Callable
from typing import Any

from semel_broker.config.loading import BrokerConfig
from semel_broker.net.dispatch import Dispatcher
from semel_broker.net.frame_buffer import SCRATCH_BYTES
from semel_broker.scheduling.answer_memory import AnswerMemory
from semel_broker.scheduling.frame_memory import FrameMemory
from semel_broker.scheduling.turns import Turns
from semel_broker.world import Logger

LOOKS = 4
"""For peers that do not take their answers, in the time after which one is closed."""


class ConnectionContext:
    """One for all connections. `tasks`: the requests that wait for something, kept until they are done. `memory`: of
    requests; `answers`: of answers. `unacknowledged`: see `World`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        config: BrokerConfig,
        log: Logger,
        loop: AbstractEventLoop,
        turns: Turns,
        unacknowledged: Callable[[int], int],
    ) -> None:
        self.dispatcher = dispatcher
        self.config = config
        self.log = log
        self.loop = loop
        self.limits = config.limits
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.turns = turns
        limits = config.limits
        self.memory = FrameMemory(limits.total_in_flight_bytes_max, limits.small_frame_bytes)
        self.answers = AnswerMemory(
            limits.total_write_buffer_bytes_max,
            limits.answer_part_of_free,
            limits.answer_bytes_min,
            loop.time,
            self._watch_answers,
        )
        self.tasks: dict[Task[Any], None] = {}
        self.connections_made = 0
        self.unacknowledged = unacknowledged
        self._watch: TimerHandle | None = None
        self._answers_watch: Handle | None = None

    @property
    def produce_bytes_max(self) -> int:
        return self.config.socket_request_max_bytes

    @property
    def other_bytes_max(self) -> int:
        """Of a request that is not a Produce."""
        return min(self.limits.control_frame_bytes_max, self.config.socket_request_max_bytes)

    @property
    def idle_s(self) -> float:
        return self.config.connections_max_idle_ms / 1000

    @property
    def partial_s(self) -> float:
        return self.limits.partial_frame_timeout_ms / 1000

    def watch_memory(self) -> None:
        """A connection waits for memory: look after a while whether others hold some and do not move."""
        if self._watch is None:
            self._watch = self.loop.call_later(self.limits.stalled_frame_timeout_ms / 1000, self._look_for_stalled)

    def _look_for_stalled(self) -> None:
        self._watch = None
        if not self.memory.has_waiting:
            return
        for holding in self.memory.stalled(self.limits.stalled_frame_bytes):
            holding.evict()
        self.watch_memory()

    def close(self) -> None:
        """No connection is left."""
        for watch in (self._watch, self._answers_watch):
            if watch is not None:
                watch.cancel()

    def _watch_answers(self) -> None:
        """A Fetch waits for memory: look whether others hold some and do not take their answers, now and again."""
        if self._answers_watch is None:
            self._answers_watch = self.loop.call_soon(self._look_for_stalled_readers)

    def _look_for_stalled_readers(self) -> None:
        self._answers_watch = None
        if not self.answers.waiting:
            return
        stalled_s = self.limits.stalled_reader_timeout_ms / 1000
        for holding in self.answers.stalled(self.limits.stalled_frame_bytes, stalled_s):
            holding.evict()
        self._answers_watch = self.loop.call_later(stalled_s / LOOKS, self._look_for_stalled_readers)
