"""What the connections of one server share: the loop, the dispatcher, scratch memory, and bounds over all of them."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Task, TimerHandle
from collections.abc import Callable
from typing import Any

from semel_broker.config.loading import BrokerConfig
from semel_broker.net.dispatch import Dispatcher
from semel_broker.net.frame_buffer import SCRATCH_BYTES
from semel_broker.net.frame_memory import FrameMemory
from semel_broker.scheduling.turns import Turns
from semel_broker.world import Logger


class Commons:
    """One for all connections. `tasks`: the requests that wait for something, kept until they are done. `answers_wait`:
    called when an answer cannot be made because others are not taken."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        config: BrokerConfig,
        log: Logger,
        loop: AbstractEventLoop,
        turns: Turns,
        answers_wait: Callable[[], None],
    ) -> None:
        self.dispatcher = dispatcher
        self.config = config
        self.log = log
        self.loop = loop
        self.limits = config.limits
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.turns = turns
        self.memory = FrameMemory(config.limits.total_in_flight_bytes_max, config.limits.small_frame_bytes)
        self.tasks: dict[Task[Any], None] = {}
        self.connections_made = 0
        self._unsent_bytes = 0
        self._fetches_held: dict[Callable[[], None], None] = {}
        self._answers_wait = answers_wait
        self._watch: TimerHandle | None = None

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

    @property
    def stalled_s(self) -> float:
        return self.limits.stalled_reader_timeout_ms / 1000

    @property
    def unsent_exhausted(self) -> bool:
        """Peers have let as many bytes of answers pile up as may be."""
        return self._unsent_bytes > self.limits.total_write_buffer_bytes_max

    @property
    def answer_bytes_max(self) -> int:
        """Of an answer that can be as large as one likes: a part of what may still pile up."""
        free = self.limits.total_write_buffer_bytes_max - self._unsent_bytes
        return max(self.limits.answer_bytes_min, free // self.limits.answer_part_of_free)

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
        if self._watch is not None:
            self._watch.cancel()

    def may_fetch(self, once_it_may: Callable[[], None]) -> bool:
        """Whether an answer that may be large can be made now; if not, `once_it_may` is called when it can."""
        if not self.unsent_exhausted:
            return True
        self._fetches_held[once_it_may] = None
        self._answers_wait()
        return False

    def forget_fetch(self, once_it_may: Callable[[], None]) -> None:
        self._fetches_held.pop(once_it_may, None)

    def note_unsent(self, change: int) -> None:
        """The bytes of answers that peers have not taken yet have changed by so much."""
        self._unsent_bytes += change
        while change < 0 and self._fetches_held and not self.unsent_exhausted:
            once_it_may = next(iter(self._fetches_held))
            del self._fetches_held[once_it_may]
            self.turns.queue(once_it_may)
