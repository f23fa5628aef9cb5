"""The event loop of one simulated process: asyncio's interface over the world's scheduler and virtual time.

It has only the methods that broker and client use. Other methods raise NotImplementedError (from asyncio's base class),
other keywords raise TypeError: a feature that the simulator does not model must not appear to work.
"""

from __future__ import annotations

import asyncio
import math
from asyncio import AbstractServer, BaseProtocol, Future, Handle, Task, TimerHandle, Transport
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from sim.host import Host
    from sim.world import SimWorld

T = TypeVar("T")
P = TypeVar("P", bound=BaseProtocol)
NS = 1_000_000_000


class ProcessEnded(BaseException):
    """Unwinds the code of a process that has ended itself. The process is already dead when this is raised."""


class SimTask(Task[T]):
    """A task whose hash is the number of its creation, so that the order in a set does not depend on addresses."""

    def __init__(
        self, coro: Coroutine[Any, Any, T], *, loop: SimLoop, name: str | None = None, context: Context | None = None
    ) -> None:
        loop.tasks_created += 1
        self._number = loop.tasks_created
        super().__init__(coro, loop=loop, name=name or f"task-{self._number}", context=context)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimHandle(Handle):
    """asyncio's handle without its debug mode: a world makes some hundred thousand of them."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop, context: Context | None
    ) -> None:
        self._callback, self._args, self._loop = callback, args, loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        """Cancel the callback. The objects that it refers to are freed at once, as in asyncio."""
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]  # typeshed knows no cancelled handle

    def failed(self, error: BaseException) -> None:
        """Tell the loop that the callback has raised."""
        self._loop.call_exception_handler({"message": f"Exception in callback {self._callback!r}", "exception": error})


class SimLoop(asyncio.AbstractEventLoop):
    """The loop of one process: callbacks run in FIFO order; the world runs the loop. A `dead` loop runs nothing.

    `time()` is the host's monotonic clock; it differs from that of other hosts. A timer is a handle without `when`: on
    uvloop, where time passes within a turn, each timer may turn out to be due at once, and then it is such a handle.
    """

    def __init__(self, world: SimWorld, host: Host) -> None:
        self.world, self.host = world, host
        self.number = world.next_number()
        self.ready: deque[SimHandle] = deque()
        self.queued = False  # whether it is in the world's list of runnable loops
        self.paused = False  # it runs nothing: it is stopped, or in a blocking call
        self.stopped = False
        self.busy_until_ns = 0
        self.dead = False
        self.tasks_created = 0
        self.turns = 0
        self._clock_offset_ns = host.clock.monotonic_offset_ns

    # Callbacks and timers

    def call_soon(  # type: ignore[override]  # typeshed ties the arguments to the callback
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Handle:
        handle = SimHandle(callback, args, self, context)
        if not self.dead:
            self.ready.append(handle)
            if not self.queued:
                self.queued = True
                self.world.runnable.append(self)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self._call_at_ns(self.world.now_ns + math.ceil(delay * NS), callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self._call_at_ns(math.ceil(when * NS) - self._clock_offset_ns, callback, args, context)

    def _call_at_ns(
        self, due_ns: int, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> TimerHandle:
        # One nanosecond later: a clock that is read as a float must not be before the requested time.
        due_ns = max(due_ns, self.world.now_ns) + 1
        handle = SimHandle(callback, args, self, context)
        self.world.at(due_ns, self._timer_due, handle)
        return cast(TimerHandle, handle)

    def _timer_due(self, handle: SimHandle) -> None:
        if not handle._cancelled and not self.dead:
            self.ready.append(handle)
            if not self.queued:
                self.queued = True
                self.world.runnable.append(self)

    def time(self) -> float:
        return (self.world.now_ns + self._clock_offset_ns) / NS

    # Futures and tasks

    def create_future(self) -> Future[Any]:
        return Future(loop=self)

    def create_task(  # type: ignore[override]  # typeshed types it as a plain Task
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> Task[T]:
        if self.dead:
            self.world.keep_until_close(coro)
            raise ProcessEnded
        return SimTask(coro, loop=self, name=name, context=context)

    # The network

    async def create_server(  # type: ignore[override]  # fewer keywords, on purpose
        self,
        protocol_factory: Callable[[], BaseProtocol],
        host: str,
        port: int,
        *,
        backlog: int = 100,
        start_serving: bool = True,
    ) -> AbstractServer:
        return self.world.network.listen(self, protocol_factory, port, accepts=start_serving)

    async def create_connection(  # type: ignore[override]  # fewer keywords, on purpose
        self, protocol_factory: Callable[[], P], host: str, port: int, *, ssl: None = None
    ) -> tuple[Transport, P]:
        if ssl is not None:
            raise NotImplementedError("the simulated network has no TLS")
        return await self.world.network.connect(self, protocol_factory, host, port)

    # Called by asyncio

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.world.fail(self.host.name, str(context.get("message")), context.get("exception"))
