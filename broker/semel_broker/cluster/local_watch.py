"""The watches of a `LocalStore`: its last transactions in memory, and readers with a revision each.

A reader holds only a revision, so a slow reader costs no memory. A reader that needs an older transaction than the
oldest in memory gets CompactedError, as from etcd.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from semel_broker.cluster.store import Changes, CompactedError, RemovedKey, StoreClosedError, StoreEntry

TRANSACTIONS_KEPT: Final = 1024


class StoreHistory:
    """The last transactions, one per revision without a gap, and the readers that wait for the next one."""

    def __init__(self, revision: int) -> None:
        self.durable_revision = revision
        self.is_closed = False
        self._written: deque[Changes] = deque()
        self._before = revision  # the revision before the oldest that is kept
        self._waiting: list[Future[None]] = []

    def add(self, changes: tuple[StoreEntry | RemovedKey, ...], revision: int) -> None:
        """Add an applied transaction. Readers get it after `reached`, when it is durable."""
        assert revision == self._before + len(self._written) + 1, (revision, self._before, len(self._written))
        self._written.append(Changes(changes, revision))
        if len(self._written) > TRANSACTIONS_KEPT:
            self._before = self._written.popleft().revision

    def reached(self, revision: int) -> None:
        """Note that everything up to `revision` is durable."""
        self.durable_revision = revision
        self.wake()

    def after(self, revision: int) -> Iterator[Changes]:
        """The durable transactions after `revision`, oldest first. Raises CompactedError."""
        if revision < self._before:
            raise CompactedError(
                f"the changes after revision {revision} are no longer kept, only those after {self._before}; list again"
            )
        return islice(self._written, revision - self._before, max(0, self.durable_revision - self._before))

    async def moved(self) -> None:
        """Return at the next call of `wake`."""
        future: Future[None] = get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def wake(self) -> None:
        """Make all waiting readers check for new transactions."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        """Make readers raise StoreClosedError."""
        self.is_closed = True
        self.wake()


class LocalWatch:
    """`Watch` over a `StoreHistory`."""

    def __init__(self, history: StoreHistory, prefix: str, revision: int) -> None:
        self._history = history
        self._prefix = prefix
        self._revision = revision
        self._is_closed = False

    @property
    def revision(self) -> int:
        """See `Watch`."""
        return self._revision

    def __aiter__(self) -> LocalWatch:
        return self

    async def __anext__(self) -> Changes:
        while not self._is_closed:
            if self._history.is_closed:
                raise StoreClosedError("the store was closed during the watch")
            for written in self._history.after(self._revision):
                self._revision = written.revision
                changes = tuple(each for each in written.changes if each.key.startswith(self._prefix))
                if changes:
                    return Changes(changes, written.revision)
            await self._history.moved()
        raise StopAsyncIteration

    async def close(self) -> None:
        """See `Watch`."""
        self._is_closed = True
        self._history.wake()
