"""The store's changes, one after the other, into an image; then everybody hears of them who wants to.

`open` returns once the image is that of some revision; a task goes on from there. Who has changed something waits with
`reached` until it is seen here as well: what is answered by this broker is known to it.
"""

from __future__ import annotations

from asyncio import Task, get_running_loop, sleep, wait
from collections.abc import Callable

from semel_broker.cluster.image import Image, Touched
from semel_broker.cluster.records import BARRIER
from semel_broker.cluster.store import CompactedError, Put, Store, StoreClosedError, StoreUnavailableError, Watch
from semel_broker.scheduling.waiters import OffsetWaiters
from semel_broker.world import Logger

EVERYTHING = ""
RETRY_S = 0.2

Listener = Callable[[Touched], None]


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
        """The image as of now. Raises StoreUnavailableError."""
        feed = cls(store, Image(), log)
        feed.image.replace(await store.list(EVERYTHING))
        feed._task = get_running_loop().create_task(feed._follow(), name="cluster feed")
        return feed

    async def reached(self, revision: int) -> None:
        """Return once the image is that of `revision` or later. Raises StoreClosedError when it will not be."""
        if self.image.revision >= revision:
            return
        if self._task is None or self._task.done():
            raise StoreClosedError("the store is not followed any more")
        await self._waiters.wait_for(revision, get_running_loop())

    async def barrier(self) -> None:
        """Return once everything that was written before this call is seen. Raises what `Store.transact` raises."""
        revision = await self._store.transact([], [Put(BARRIER, b"")])
        assert revision is not None, "it expects nothing"
        await self.reached(revision)

    async def close(self) -> None:
        """Follow it no longer."""
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
                    self._tell(self.image.apply(changes.changes, changes.revision))
            except CompactedError:
                await watch.close()
                await self._begin_again()
            except StoreClosedError:
                return

    async def _begin_again(self) -> None:
        """So much has happened that the store no longer tells it one by one."""
        while True:
            try:
                listing = await self._store.list(EVERYTHING)
            except StoreUnavailableError as error:
                self._log.warning("store_unavailable", error=str(error))
                await sleep(RETRY_S)
                continue
            self._tell(self.image.replace(listing))
            return

    def _tell(self, touched: Touched) -> None:
        for listener in self.listeners:
            try:
                listener(touched)
            except Exception:  # a bug of ours: the others have to hear of it nevertheless
                self._log.exception("cluster_listener_failed", listener=repr(listener))
        self._waiters.reached(self.image.revision)
