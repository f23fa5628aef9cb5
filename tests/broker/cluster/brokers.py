"""Brokers that have only the parts for the cluster: feed, registration and controller, several in one loop.

They can die, lose their sessions and be paused. They share a local store or an etcd.
"""

from __future__ import annotations

import abc
import asyncio
import math
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from time import monotonic, time_ns
from typing import Any

import msgspec
from broker.cluster.images import broker
from semel_broker.cluster import records
from semel_broker.cluster.controller import Controller
from semel_broker.cluster.etcd.session import EtcdSession
from semel_broker.cluster.etcd.store import EtcdStore
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import Image
from semel_broker.cluster.local_store import LocalSession, LocalStore
from semel_broker.cluster.records import PartitionState, TopicRecord
from semel_broker.cluster.registration import Registration
from semel_broker.cluster.store import (
    Change,
    Expect,
    Listing,
    OutcomeUnknownError,
    Put,
    Session,
    Store,
    StoreEntry,
    Watch,
)
from semel_broker.world import World
from semel_storage.disk.memory_disk import MemoryDisk
from support.etcd import EtcdProcess

SOON_S = 20
namespaces = count()


async def until(holds: Callable[[], bool], what: str = "") -> None:
    """Wait until the condition holds. The wait depends on no timer."""
    deadline = monotonic() + SOON_S
    while not holds():
        assert monotonic() < deadline, what or "it never was so"
        await asyncio.sleep(0.001)


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    node_id: int
    broker_session_timeout_ms: int = 2_000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: float = 1_000_000
    is_clustered: bool = True


class RecordedLog:
    """A logger that keeps all lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def debug(self, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    info = warning = error = exception = debug

    def events(self) -> list[str]:
        return [event for event, _ in self.lines]

    def of(self, event: str) -> list[dict[str, Any]]:
        """The fields of each line of this event."""
        return [fields for each, fields in self.lines if each == event]


class SettableClock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class MortalSession:
    """A session of the local store that others can see end."""

    def __init__(self, session: LocalSession, clock: Callable[[], float]) -> None:
        self.lease = session.lease
        self.deadline = math.inf
        self._session = session
        self._clock = clock
        self._ended = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set() or self._clock() >= self.deadline

    async def ended(self) -> None:
        await self._ended.wait()

    async def expire(self) -> None:
        """End the session in the store. Its holder gets no notice."""
        await self._session.close()

    def hears(self) -> None:
        """End the session also for its holder."""
        self._ended.set()

    async def close(self) -> None:
        self._ended.set()
        await self._session.close()


class GatedWatch:
    def __init__(self, watch: Watch, *gates: asyncio.Event) -> None:
        self._watch = watch
        self._gates = gates

    @property
    def revision(self) -> int:
        return self._watch.revision

    def __aiter__(self) -> GatedWatch:
        return self

    async def __anext__(self) -> object:
        changes = await anext(self._watch)
        for gate in self._gates:
            await gate.wait()
        return changes

    async def close(self) -> None:
        await self._watch.close()


class GatedStore:
    """The store as one process sees it. While the process is paused, no request leaves it and no answer arrives."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.store = store
        self.gate, self.watch_gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.watch_gate.set()
        self.failing: list[Exception] = []
        self.transactions: list[tuple[Sequence[Expect], Sequence[Change], int | None]] = []
        self._clock = clock

    async def get(self, key: str) -> StoreEntry | None:
        await self.gate.wait()
        return await self.store.get(key)

    async def list(self, prefix: str) -> Listing:
        await self.gate.wait()
        return await self.store.list(prefix)

    async def transact(self, expects: Sequence[Expect], changes: Sequence[Change]) -> int | None:
        await self.gate.wait()
        error = self.failing.pop(0) if self.failing else None
        if error is not None and not isinstance(error, OutcomeUnknownError):
            raise error  # nothing is written
        revision = await self.store.transact(expects, changes)
        self.transactions.append((expects, changes, revision))
        if error is not None:
            raise error
        return revision

    def watch(self, prefix: str, revision: int) -> Watch:
        return GatedWatch(self.store.watch(prefix, revision), self.gate, self.watch_gate)  # type: ignore[return-value]

    async def open_session(self, ttl_ms: int) -> Session:
        await self.gate.wait()
        session = await self.store.open_session(ttl_ms)
        return MortalSession(session, self._clock) if isinstance(session, LocalSession) else session

    async def close(self) -> None:
        await self.store.close()


class StoreBehindCluster(abc.ABC):
    """The store under a test cluster, and the clock of its brokers."""

    clock: Callable[[], float]
    hand: Store
    """The store as the test itself uses it."""

    @abc.abstractmethod
    def store(self) -> Store: ...

    @abc.abstractmethod
    async def expire(self, session: Session) -> None:
        """End the session for all other brokers. Its holder does not notice."""

    @abc.abstractmethod
    async def close(self) -> None: ...


class SharedLocalStore(StoreBehindCluster):
    def __init__(self) -> None:
        self.clock = SettableClock()
        disk = MemoryDisk()
        disk.mkdir("data")
        self.hand = LocalStore.open(disk, "data/semel.store")

    def store(self) -> Store:
        return self.hand

    async def expire(self, session: Session) -> None:
        assert isinstance(session, MortalSession)
        await session.expire()

    async def close(self) -> None:
        await self.hand.close()


class SharedEtcd(StoreBehindCluster):
    def __init__(self, process: EtcdProcess) -> None:
        self.clock = monotonic
        self.process = process
        self.namespace = f"/semel-brokers/{next(namespaces)}"
        self._stores: list[EtcdStore] = []
        self.hand = self.store()

    def store(self) -> Store:
        world = World(now_ms=lambda: time_ns() // 1_000_000, monotonic=monotonic, rng=Random(1), disk=MemoryDisk())
        store = EtcdStore([self.process.url], namespace=self.namespace, world=world)
        self._stores.append(store)
        return store

    async def expire(self, session: Session) -> None:
        assert isinstance(session, EtcdSession)
        lease = session.lease
        await asyncio.to_thread(self.process.call, "/v3/lease/revoke", {"ID": lease})

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


class ControllerBroker:
    """One broker of the cluster."""

    def __init__(self, cluster: ControllerCluster, node_id: int, directory_id: str, is_synced: bool) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.log = RecordedLog()
        self.store = GatedStore(cluster.shared_store.store(), cluster.shared_store.clock)
        self.record = broker(node_id, directory_id=directory_id, is_synced=is_synced)
        self.heard: list[str] = []
        self.last_session: Session
        self.feed: Feed
        self.registration: Registration
        self.controller: Controller

    async def start(self) -> ControllerBroker:
        await self.begin()
        await self.registration.register(self.record)
        return self

    async def begin(self) -> None:
        """Start all parts, without a registration."""
        world = World(
            now_ms=lambda: 0,
            monotonic=self.cluster.shared_store.clock,
            rng=Random(self.node_id + 100 * next(namespaces)),
            disk=MemoryDisk(),
            log=self.log,
        )
        settings = msgspec.structs.replace(self.cluster.settings, node_id=self.node_id)
        self.feed = await Feed.open(self.store, self.log)
        self.registration = Registration(world, settings, self.store, self.feed)
        self.registration.on_lost.append(lambda: self.heard.append("lost"))
        self.registration.on_admitted.append(lambda: self.heard.append("admitted"))
        self.controller = Controller(world, settings, self.store, self.feed, self.registration)
        self.controller.start()

    @property
    def image(self) -> Image:
        return self.feed.image

    @property
    def session(self) -> Session:
        session = self.registration._session
        assert session is not None
        return session

    async def stop(self) -> None:
        """Leave the cluster in order."""
        await self.registration.leave()
        await self.controller.close()
        await self.feed.close()

    async def kill(self, *, expire: bool = True) -> None:
        """End the process. Its session ends a while later if `expire` is set."""
        session = self.last_session = self.session
        registration, controller = self.registration._task, self.controller._task
        assert registration is not None
        assert controller is not None
        for task in (registration, controller):
            task.cancel()
        await asyncio.wait((registration, controller))
        await self.feed.close()
        if isinstance(session, EtcdSession):
            session.abandon()
        if expire:
            await self.cluster.shared_store.expire(session)

    def pause(self) -> None:
        self.store.gate.clear()

    def resume(self) -> None:
        self.store.gate.set()
        self.store.watch_gate.set()


class ControllerCluster:
    def __init__(self, shared_store: StoreBehindCluster, **settings: object) -> None:
        self.shared_store = shared_store
        self.settings = msgspec.convert({"node_id": 0, **settings}, ClusterSettings)
        self.members: list[ControllerBroker] = []

    def member(self, node_id: int, directory_id: str = "", *, is_synced: bool = True) -> ControllerBroker:
        member = ControllerBroker(self, node_id, directory_id, is_synced)
        self.members.append(member)
        return member

    async def start(self, *node_ids: int) -> list[ControllerBroker]:
        async with asyncio.timeout(SOON_S):
            return [await self.member(node_id).start() for node_id in node_ids]

    async def topic(self, *replicas: Sequence[int], name: str = "t") -> str:
        """Create a topic and wait until all running brokers know it. Returns its id."""
        topic_id = f"id-of-{name}"
        record = TopicRecord(name, topic_id, [list(row) for row in replicas], {})
        revision = await self.shared_store.hand.transact(
            [], [Put(records.topic_key(name), msgspec.json.encode(record))]
        )
        assert revision is not None
        for member in self.members:
            if member.store.gate.is_set() and not member.registration._is_leaving:
                await until(lambda: member.image.revision >= revision)  # noqa: B023
        return topic_id

    async def state(self, topic_id: str, index: int = 0) -> PartitionState | None:
        """The state of a partition in the store; None: it is the initial one."""
        entry = await self.shared_store.hand.get(records.partition_key(topic_id, index))
        return None if entry is None else msgspec.json.decode(entry.value, type=PartitionState)

    async def close(self) -> None:
        for member in self.members:
            member.resume()
            if hasattr(member, "controller"):
                await member.controller.close()
                await member.registration.close()
                await member.feed.close()
        await self.shared_store.close()


async def settled(cluster: ControllerCluster, topic_id: str, state: PartitionState | None, index: int = 0) -> None:
    """Wait until the partition's state is this."""
    last: PartitionState | None = None
    try:
        async with asyncio.timeout(SOON_S):
            while (last := await cluster.state(topic_id, index)) != state:
                await asyncio.sleep(0.005)
    except TimeoutError:
        assert last == state
