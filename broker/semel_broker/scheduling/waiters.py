"""The futures that wait for a partition: waiting fetches by bytes, producers and coordinators by offset.

A waiter is a future, not a task and not a poll; the partitions that may complete it keep it.
"""

from __future__ import annotations

import heapq
from asyncio import AbstractEventLoop, Future


class FetchWaiter:
    """One waiting Fetch, registered with every partition it reads; done once `bytes_missing` bytes became readable."""

    __slots__ = ("bytes_missing", "future")

    def __init__(self, loop: AbstractEventLoop, bytes_missing: int) -> None:
        self.future: Future[None] = loop.create_future()
        self.bytes_missing = bytes_missing

    def wake(self, bytes_more: int) -> None:
        """`bytes_more` became readable in one of the partitions."""
        self.bytes_missing -= bytes_more
        if self.bytes_missing <= 0:
            self.release()

    def release(self) -> None:
        """Wake the Fetch regardless of bytes: its deadline has passed, or a partition was deleted or truncated."""
        if not self.future.done():
            self.future.set_result(None)


class OffsetWaiters:
    """Futures by the offset they wait for; each is done once the high watermark has reached it."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Future[None]]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def wait_for(self, offset: int, loop: AbstractEventLoop) -> Future[None]:
        """A future that is done once `reached(offset)` was called with this offset or a higher one."""
        future: Future[None] = loop.create_future()
        self._count += 1
        heapq.heappush(self._heap, (offset, self._count, future))
        return future

    def reached(self, offset: int) -> None:
        """Everything below `offset` is committed."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        """No offset will be reached any more: every waiter gets `error`."""
        for _, _, future in sorted(self._heap):
            if not future.done():
                future.set_exception(error)
        self._heap.clear()
