"""The timed store counts answered and failed requests."""

from __future__ import annotations

import pytest
from semel_broker.cluster.local_store import LocalStore
from semel_broker.cluster.store import Put, StoreEntry, StoreUnavailableError
from semel_broker.cluster.timed_store import TimedStore
from semel_storage.disk.memory_disk import MemoryDisk


class TickingClock:
    """A clock that advances by one second at each call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


async def test_answers_are_timed_by_operation() -> None:
    """They feed the metric store_request_seconds."""
    disk = MemoryDisk()
    disk.mkdir("data")
    store = TimedStore(LocalStore.open(disk, "data/semel.store"), TickingClock())
    await store.transact([], [Put("a", b"1")])
    assert await store.get("a") is not None
    assert await store.get("b") is None
    assert len((await store.list("")).entries) == 1
    counts = {operation: (seconds.count, seconds.sum) for operation, seconds in store.counters.seconds.items()}
    assert counts == {"transact": (1, 1.0), "get": (2, 2.0), "list": (1, 1.0)}
    await store.close()


async def test_requests_without_an_answer_are_counted_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """They feed the metric store_failures_total."""
    disk = MemoryDisk()
    disk.mkdir("data")
    inner = LocalStore.open(disk, "data/semel.store")

    async def unavailable(key: str) -> StoreEntry | None:
        raise StoreUnavailableError("no etcd")

    monkeypatch.setattr(inner, "get", unavailable)
    store = TimedStore(inner, TickingClock())
    with pytest.raises(StoreUnavailableError):
        await store.get("a")
    assert store.counters.failed == {"get": 1}
    assert store.counters.seconds == {}
    await store.close()
