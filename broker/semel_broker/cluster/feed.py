"""The feed: applies the changes of the store to the image, in order, and calls listeners.

`open` returns once the image holds one whole revision. Then a task applies all later changes. A caller that has written
waits with `reached` until the image shows the change. So the image has every change that this broker has confirmed.
"""

from __future__ import annotations

from asyncio import Task, get_running_loop, sleep, wait
from collections.abc import Callable

from semel_broker.cluster.image import Image, ImageDelta
from semel_broker.cluster.records import BARRIER
from semel_broker.cluster.store import CompactedError, Put, Store, StoreClosedError, StoreUnavailableError, Watch
from semel_broker.scheduling.waiters import OffsetWaiters
from semel_broker.world import Logger

EVERYTHING = ""
RETRY_S = 0.2

Listener = Callable[[ImageDelta], None]


class Feed:
    """One per broker. `listeners` are called in order, in the turn of the loop in which `image` has changed."""

    def __init__(self, store: Store, image: Image, log: Logger) -> None:
        self.image = image
        self.listeners: list[Listener] = []
        self._store = store
        self._log = log
        self._waiters = OffsetWaiters()
        self._watch: Watch | None = None
        self._task: Task[None] | None = None

    @classmethod
    async def open(cls, store: Store, log: Logger) -> Feed:
        """A feed whose image is current. Raises StoreUnavailableError."""
        feed = cls(store, Image(), log)
        feed.image.replace(await store.list(EVERYTHING))
        feed._task = get_running_loop().create_task(feed._follow(), name="cluster feed")
        return feed

    async def reached(self, revision: int) -> None:
        """Wait until the image is at `revision` or later. Raises StoreClosedError if the feed has ended."""
        if self.image.revision >= revision:
            return
        if self._task is None or self._task.done():
            raise StoreClosedError("the feed of the store has ended")
        await self._waiters.wait_for(revision, get_running_loop())

    async def barrier(self) -> None:
        """Wait until the image shows everything written before this call. Raises what `Store.transact` raises."""
        revision = await self._store.transact([], [Put(BARRIER, b"")])
        assert revision is not None, "it expects nothing"
        await self.reached(revision)

    async def close(self) -> None:
        """Stop following the store. Callers of `reached` get StoreClosedError."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await wait((self._task,))
        if self._watch is not None:
            await self._watch.close()
        self._waiters.fail(StoreClosedError("the broker is stopping"))

    async def _follow(self) -> None:
        while True:
            self._watch = watch = self._store.watch(EVERYTHING, self.image.revision)
            try:
                async for changes in watch:
                    self._notify(self.image.apply(changes.changes, changes.revision))
            except CompactedError:
                await watch.close()
                await self._list_again()
            except StoreClosedError:
                return

    async def _list_again(self) -> None:
        """List everything, because the store no longer has all changes since the image's revision."""
        while True:
            try:
                listing = await self._store.list(EVERYTHING)
            except StoreUnavailableError as error:
                self._log.warning("store_unavailable", error=str(error))
                await sleep(RETRY_S)
                continue
            self._notify(self.image.replace(listing))
            return

    def _notify(self, delta: ImageDelta) -> None:
        for listener in self.listeners:
            try:
                listener(delta)
            except Exception:  # a bug of semel: the other listeners must be called
                self._log.exception("cluster_listener_failed", listener=repr(listener))
        self._waiters.reached(self.image.revision)
