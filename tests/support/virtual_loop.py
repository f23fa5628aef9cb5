"""An event loop with virtual time and a network in memory: no waiting, no ports, the same run every time.

Time stands still while any callback is ready, and jumps to the next timer when none is, so that a long poll costs
nothing. Without a timer no further event is possible: `NothingScheduledError`. Each turn of the loop is measured in CPU
time of its thread, so that a busy machine does not count.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import Context
from time import thread_time
from typing import Any, cast

FIRST_PORT = 9092
START_S = 1_000.0
TICK_S = 1e-9
RECEIVED_BYTES_MAX = 1 << 18
HIGH_WATER_BYTES = 64 << 10


class NothingScheduledError(Exception):
    """All tasks wait, and there is neither a timer nor a message in transit."""


class _Clock(selectors.DefaultSelector):  # type: ignore[misc, valid-type, unused-ignore]
    """The virtual clock. It advances where a real loop would sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = START_S
        self.longest_turn_s = 0.0
        self.calls = 0
        self.most_calls = 0
        self._began = thread_time()

    def begin(self) -> None:
        """Begin to count CPU time for the loop's turn."""
        self._began = thread_time()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Do not count the CPU time inside this context."""
        began = thread_time()
        try:
            yield
        finally:
            self._began += thread_time() - began

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.longest_turn_s = max(self.longest_turn_s, thread_time() - self._began)
        self.most_calls = max(self.most_calls, self.calls)
        self.calls = 0
        if timeout is None:
            raise NothingScheduledError("nothing can run, and no timer is set")
        if timeout > 0:
            self.now_s += timeout + TICK_S  # so that no clock that is read as a float still says "not yet"
        self.begin()
        return []


ENDED = asyncio.Protocol()
"""The protocol of a closed connection."""


class Transport(asyncio.Transport):
    """One end of a connection. Written bytes wait at the other end until that end reads; `kernel_bytes` of it are in
    the kernel, and the rest is in the transport's buffer."""

    def __init__(self, loop: VirtualLoop, protocol: asyncio.BaseProtocol, port: int) -> None:
        super().__init__({"peername": ("127.0.0.1", port)})
        self._loop = loop
        self._protocol = protocol
        self._inbox: deque[bytes | memoryview] = deque()
        self._inbox_bytes = 0
        self._reads = True
        self._is_delivering = False
        self._is_closing = False
        self._peer_closed = False
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._write_paused = False
        self._written = 0
        self._writes: deque[tuple[int, int]] = deque()  # where each ends, and its size
        self.other = self

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    # Writing

    def write(self, data: Any) -> None:
        if self._is_closing or not len(data):
            return
        other = self.other
        other._inbox.append(bytes(data))
        other._inbox_bytes += len(data)
        other._deliver_soon()
        self._written += len(data)
        self._drop_taken()
        self._writes.append((self._written, len(data)))
        if self.get_write_buffer_size() > self._high and not self._write_paused:
            self._write_paused = True
            cast(asyncio.Protocol, self._protocol).pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return max(0, self.other._inbox_bytes - self._loop.kernel_bytes)

    def kept_bytes(self) -> int:
        """The bytes of each write of which the kernel has not taken the last byte; uvloop keeps whole buffers."""
        self._drop_taken()
        return sum(size for _, size in self._writes)

    def _drop_taken(self) -> None:
        taken = self._written - self.get_write_buffer_size()
        while self._writes and self._writes[0][0] <= taken:
            self._writes.popleft()

    # Reading

    def is_reading(self) -> bool:
        return self._reads

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True
        self._deliver_soon()

    def _deliver_soon(self) -> None:
        if not self._is_delivering and not self._is_closing:
            self._is_delivering = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._is_delivering = False
        if not self._reads or self._is_closing:
            return
        if self._inbox:
            self._hand_over(self._inbox.popleft())
            self._deliver_soon()
        elif self._peer_closed:
            cast(asyncio.Protocol, self._protocol).eof_received()
            self.close()

    def _hand_over(self, data: bytes | memoryview) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(protocol.get_buffer(-1))
            size = min(len(view), len(data), RECEIVED_BYTES_MAX)
            view[:size] = data[:size]
            if size < len(data):
                self._inbox.appendleft(memoryview(data)[size:])  # not copied: it may be large
            self._taken(size)
            protocol.buffer_updated(size)
        else:
            self._taken(len(data))
            cast(asyncio.Protocol, protocol).data_received(bytes(data))

    def _taken(self, size: int) -> None:
        self._inbox_bytes -= size
        other = self.other
        if other._write_paused and other.get_write_buffer_size() <= other._low and not other._is_closing:
            other._write_paused = False
            cast(asyncio.Protocol, other._protocol).resume_writing()

    # The end

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._inbox.clear()
        self._inbox_bytes = 0
        self._loop.call_soon(self._lose)
        self.other._peer_closed = True
        self.other._deliver_soon()

    def abort(self) -> None:
        self.close()

    def _lose(self) -> None:
        """Drop the protocol, as the transports of asyncio and uvloop do."""
        protocol, self._protocol = self._protocol, ENDED
        protocol.connection_lost(None)


class _Listening:
    """The methods of a listening socket that servers use."""

    def __init__(self, port: int) -> None:
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self._port


class VirtualServer:
    """The methods of asyncio.Server that are used."""

    def __init__(self, loop: VirtualLoop, port: int) -> None:
        self._loop, self._port = loop, port
        self.sockets = [_Listening(port)]

    def close(self) -> None:
        self._loop.listeners.pop(self._port, None)

    async def start_serving(self) -> None:
        """Do nothing: the server serves from the start."""

    async def wait_closed(self) -> None:
        """Return at once."""


class Timer(asyncio.Handle):
    """The timer of a virtual loop: a handle without `when`. On uvloop, where time passes within a turn, each timer may
    turn out to be due at once, and then it is such a handle."""

    __slots__ = ("_inner",)

    def __init__(self, inner: asyncio.TimerHandle, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(self.cancel, (), loop)
        self._inner = inner

    def cancel(self) -> None:
        self._inner.cancel()

    def cancelled(self) -> bool:
        return self._inner.cancelled()


class VirtualLoop(asyncio.SelectorEventLoop):
    """`errors`: exceptions that reached the loop because no code caught them.

    `longest_turn_s`: CPU time between two looks. `kernel_bytes`: the bytes that the kernel takes of a connection in
    each direction before its peer reads.
    """

    def __init__(self) -> None:
        self._clock = _Clock()
        super().__init__(self._clock)
        self.listeners: dict[int, Callable[[], asyncio.BaseProtocol]] = {}
        self.errors: list[str] = []
        self.kernel_bytes = 0
        self._next_port = FIRST_PORT
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self._clock.now_s

    def call_at(  # type: ignore[override]  # typeshed ties the arguments to the callback
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return cast(asyncio.TimerHandle, Timer(super().call_at(when, callback, *args, context=context), self))

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    @property
    def longest_turn_s(self) -> float:
        return self._clock.longest_turn_s

    def _write_to_self(self) -> None:
        """No thread ever wakes this loop: it never sleeps."""

    def run_forever(self) -> None:
        self._clock.begin()
        super().run_forever()

    def uncounted(self) -> AbstractContextManager[None]:
        """Do not count the work of a test inside this context."""
        return self._clock.stopped()

    @contextmanager
    def counting_calls(self) -> Iterator[Callable[[], int]]:
        """Counts calls of functions; tells how many there were at most between two looks: a measure of the longest turn
        that is the same on each machine."""
        clock = self._clock

        def count(_: object, event: str, __: object) -> None:
            if event in ("call", "c_call"):
                clock.calls += 1

        clock.calls = clock.most_calls = 0
        sys.setprofile(count)
        try:
            yield lambda: clock.most_calls
        finally:
            sys.setprofile(None)

    def forget_turns(self) -> None:
        self._clock.longest_turn_s = 0.0

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int = 0, **_: object
    ) -> VirtualServer:
        if not port:
            port = self._next_port
            self._next_port += 1
        self.listeners[port] = protocol_factory
        return VirtualServer(self, port)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_: object
    ) -> tuple[Transport, asyncio.BaseProtocol]:
        """Raise ConnectionRefusedError without a listener, socket.gaierror for another host than this one."""
        if host not in ("127.0.0.1", "localhost"):
            raise socket.gaierror(socket.EAI_NONAME, f"no such host: {host!r}")
        if port not in self.listeners:
            raise ConnectionRefusedError(f"nobody listens on port {port}")
        ends = [Transport(self, factory(), port) for factory in (protocol_factory, self.listeners[port])]
        ends[0].other, ends[1].other = ends[1], ends[0]
        for end in reversed(ends):
            end.get_protocol().connection_made(end)
        return ends[0], ends[0].get_protocol()

    def _note(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")
