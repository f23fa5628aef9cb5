"""The life of a client object: it starts once and stops once, each in a task of its own.

    NEW -> RUNNING -> STOPPED

A caller of `stop` waits for the task of the closing and does not own it. So a cancelled caller gets its CancelledError
at once, at whichever await, and the closing continues for a moment (MOMENT_S). Every other caller, before or after,
waits for the same closing. Libraries such as anyio cancel each await of a cancelled scope again: the closing does not
notice it. At the end of `asyncio.run` the closing itself is cancelled: it says its last words and closes at once.
"""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from enum import Enum
from typing import Any, Protocol

from semel._net.cluster import Cluster
from semel._net.dropped import DropWarning
from semel.errors import IllegalStateError, KafkaError

MOMENT_S = 1.0
"""The time that the closing has left from the moment when a caller of `stop` or `start` is cancelled."""
LAST_WORDS_S = 0.25
"""The time for the last request of a closing that is cancelled, such as LeaveGroup."""


class ClientState(Enum):
    """A stopped client cannot start again: its membership, positions and sequences are lost."""

    NEW = "created, not started"
    RUNNING = "started"
    STOPPED = "stopped, or being stopped"


class Parts(Protocol):
    """The parts of a client object, as its Lifecycle needs them."""

    async def _open(self) -> None:
        """Connect. Is cancelled when the client is stopped meanwhile."""

    async def _close(self) -> None:
        """Complete the client's work, and leave its group. May follow an `_open` that has failed or was cancelled at
        any of its awaits.
        """

    async def _last_words(self) -> None:
        """Send what others wait for, in a closing that was cancelled at any await of `_close`, or before it."""

    def _hurry(self) -> None:
        """The closing has a moment left: ends all that would keep the client alive for others, such as heartbeats."""

    def _cut(self) -> list[asyncio.Task[Any]]:
        """Close every connection, end every task and timer, and fail every future. Returns the tasks, which are
        cancelled and end soon.
        """

    def _losses(self) -> str:
        """The losses if the client is dropped without `stop`, for a warning; "" when nothing is."""


class ConnectionParts:
    """The parts of a client that has nothing but connections, such as an Admin."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def _open(self) -> None:
        await self._cluster.start()

    async def _close(self) -> None:
        """There is no work to complete."""

    async def _last_words(self) -> None:
        """Nothing waits for such a client."""

    def _hurry(self) -> None:
        """As `_last_words`."""

    def _cut(self) -> list[asyncio.Task[Any]]:
        return self._cluster.cut()

    def _losses(self) -> str:
        return ""


class _Callback:
    """A call of the application's code by a client, which `stop` must not wait for."""

    def __init__(self, life: Lifecycle) -> None:
        self.life: Lifecycle | None = life


_callback: ContextVar[_Callback | None] = ContextVar("semel_callback", default=None)


class Lifecycle:
    """Starts and stops one client object, which has these parts.

    kind: the word for the client in messages, such as "consumer". stopped: the class of the error for calls of a
    stopped client.
    """

    def __init__(
        self, client: object, kind: str, client_id: str, *, parts: Parts, stopped: type[KafkaError] = IllegalStateError
    ) -> None:
        self._kind, self._parts, self._stopped = kind, parts, stopped
        self.name = f"{type(client).__name__} {client_id!r}"
        self.state = ClientState.NEW
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_reported = False
        self._drop_warning = DropWarning(self._unfinished)

    @property
    def is_running(self) -> bool:
        return self.state is ClientState.RUNNING

    @property
    def is_stopped(self) -> bool:
        """Whether the client is stopped, or being stopped."""
        return self.state is ClientState.STOPPED

    def check_running(self) -> None:
        """Raise IllegalStateError before `start`, the error of a stopped client after `stop`."""
        self.check_not_stopped()
        if self.state is ClientState.NEW:
            raise IllegalStateError(f"the {self._kind} is not started: await start(), or use `async with`")

    def check_not_stopped(self) -> None:
        """Raise the error of a stopped client."""
        if self.state is ClientState.STOPPED:
            raise self._stopped(f"the {self._kind} is stopped")

    async def start(self) -> None:
        """Open the client. Leaves nothing behind when that fails, or when this call is cancelled.

        Raises the error of `_open`; IllegalStateError for a second call; the error of a stopped client when it was
        stopped meanwhile.
        """
        if self.state is not ClientState.NEW:
            raise IllegalStateError(f"the {self._kind} is {self.state.value}: create a new one")
        self.state = ClientState.RUNNING
        opening = self._opening = asyncio.create_task(self._parts._open(), name=f"start of {self.name}")
        try:
            await asyncio.wait((opening,))
        except asyncio.CancelledError:
            opening.add_done_callback(_discard_exception)
            closing = self.begin_to_stop()
            self._hurry()
            await asyncio.wait((closing,))
            raise
        if self.is_stopped:
            _discard_exception(opening)
            raise self._stopped(f"the {self._kind} was stopped while it started")
        if opening.cancelled() or opening.exception() is not None:
            await self.stop()
        opening.result()

    async def stop(self) -> None:
        """Close the client, and wait until it is closed. Raises the error of `_close` to the first caller that waits.

        A call from inside a callback of the client begins the closing, which waits for the callback, and returns.
        """
        closing = self.begin_to_stop()
        callback = _callback.get()
        if callback is not None and callback.life is self:
            return
        if not closing.done():
            try:
                await asyncio.wait((closing,))
            except asyncio.CancelledError:
                self._hurry()
                raise
        if not self._has_reported and not closing.cancelled():
            self._has_reported = True
            closing.result()

    def begin_to_stop(self) -> asyncio.Task[None]:
        """From here on the client refuses calls. The task ends when it is closed."""
        if self._closing is None:
            self.state = ClientState.STOPPED
            closing = self._close()
            closing.send(None)  # up to `_begun`, so that a cancellation before the first step is noticed
            self._closing = asyncio.create_task(closing, name=f"stop of {self.name}")
            self._closing.add_done_callback(self._closed)
        return self._closing

    @contextmanager
    def calling_back(self) -> Iterator[None]:
        """Mark a call of the application's code that the closing waits for, also in tasks that the code makes."""
        callback = _Callback(self)
        token = _callback.set(callback)
        try:
            yield
        finally:
            callback.life = None
            _callback.reset(token)

    async def _close(self) -> None:
        try:
            await _begun()
            opening = self._opening
            if opening is not None and not opening.done():
                opening.cancel()
                await asyncio.wait((opening,))
            await self._parts._close()
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._parts._last_words()
            raise
        finally:
            if tasks := self._parts._cut():
                await asyncio.wait(tasks)

    def _hurry(self) -> None:
        """A caller that waits for the closing was cancelled: the closing has MOMENT_S left."""
        closing = self._closing
        if closing is not None and not closing.done() and self._timer is None:
            self._parts._hurry()
            self._timer = asyncio.get_running_loop().call_later(MOMENT_S, closing.cancel)

    def _closed(self, closing: asyncio.Task[None]) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _unfinished(self) -> str:
        """The words for a client that is dropped now; "" if it was stopped, or never started."""
        if self.state is not ClientState.RUNNING:
            return ""
        losses = self._parts._losses()
        return f"{self.name} was never stopped{losses and ': '}{losses}"


@types.coroutine
def _begun() -> Generator[None, None, None]:
    """One turn of the loop."""
    yield


def is_interrupted() -> bool:
    """Whether the running task is being cancelled, or handles an exception: it may have left its work unfinished."""
    task = asyncio.current_task()
    return sys.exc_info()[1] is not None or (task is not None and task.cancelling() > 0)


def _discard_exception(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
