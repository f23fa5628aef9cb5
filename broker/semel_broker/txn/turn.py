"""Whose turn it is: the requests of one transactional id are answered one after the other, first come, first served."""

from __future__ import annotations

from asyncio import CancelledError, Future, get_running_loop
from collections import deque


class Turn:
    """A lock whose owner may be found out at once, and that can be taken without waiting."""

    __slots__ = ("_queue", "is_taken")

    def __init__(self) -> None:
        self.is_taken = False
        self._queue: deque[Future[None]] | None = None  # made when first needed: most ids never have one

    def take(self) -> bool:
        """Take the turn if nobody has it."""
        if self.is_taken:
            return False
        self.is_taken = True
        return True

    async def wait(self) -> None:
        """Take the turn once those who came before have had theirs."""
        if self.take():
            return
        if self._queue is None:
            self._queue = deque()
        mine: Future[None] = get_running_loop().create_future()
        self._queue.append(mine)
        try:
            await mine
        except CancelledError:
            if mine.done() and not mine.cancelled():
                self.give()  # it was ours already
            raise

    def give(self) -> None:
        """Let the next one have it."""
        while self._queue:
            following = self._queue.popleft()
            if not following.done():
                following.set_result(None)
                return
        self.is_taken = False
