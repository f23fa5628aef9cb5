"""PURE: a store that measures how long its requests take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from semel_storage.histogram import Histogram

from semel_broker.cluster.store import Change, Expect, Listing, Session, Store, StoreEntry, StoreError, Watch
from semel_broker.counters.counters import StoreCounters

T = TypeVar("T")


class TimedStore:
    """`Store` over another one. `monotonic`: seconds. `counters.seconds` has the requests that were answered."""

    def __init__(self, store: Store, monotonic: Callable[[], float]) -> None:
        self.counters = StoreCounters()
        self._store, self._monotonic = store, monotonic

    async def get(self, key: str) -> StoreEntry | None:
        """See `Store`."""
        return await self._timed("get", self._store.get(key))

    async def list(self, prefix: str) -> Listing:
        """See `Store`."""
        return await self._timed("list", self._store.list(prefix))

    async def transact(self, expects: Sequence[Expect], changes: Sequence[Change]) -> int | None:
        """See `Store`."""
        return await self._timed("transact", self._store.transact(expects, changes))

    def watch(self, prefix: str, revision: int) -> Watch:
        """See `Store`."""
        return self._store.watch(prefix, revision)

    async def open_session(self, ttl_ms: int) -> Session:
        """See `Store`."""
        return await self._timed("open_session", self._store.open_session(ttl_ms))

    async def close(self) -> None:
        """See `Store`."""
        await self._store.close()

    async def _timed(self, operation: str, work: Awaitable[T]) -> T:
        begun = self._monotonic()
        try:
            result = await work
        except StoreError:
            self.counters.failed[operation] = self.counters.failed.get(operation, 0) + 1
            raise
        seconds = self.counters.seconds.get(operation)
        if seconds is None:
            seconds = self.counters.seconds[operation] = Histogram()
        seconds.observe(self._monotonic() - begun)
        return result
