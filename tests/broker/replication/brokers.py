"""Brokers with logs, roles and replication, without listeners for clients: several in one loop.

They use real sockets, one store, and disks in memory that can lose power.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any, cast

import msgspec
from broker.cluster.brokers import GatedStore, MortalSession, RecordedLog, SharedLocalStore, until
from semel_broker.cluster.controller import Controller
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.records import BrokerRecord, PartitionState
from semel_broker.cluster.registration import Registration
from semel_broker.cluster.store import Put
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.config.loading import BrokerConfig, load
from semel_broker.context import Broker
from semel_broker.counters.counters import Counters
from semel_broker.net.dispatch import Dispatcher
from semel_broker.net.server import Server
from semel_broker.partitions.partition import Partition, Role
from semel_broker.peer_handlers import PEER_VERSIONS, peer_handlers
from semel_broker.replication.peers import Peers
from semel_broker.replication.replicator import Replicator
from semel_broker.scheduling.turns import Turns
from semel_broker.topics.topics import Topics
from semel_broker.world import World
from semel_protocol.batch import read_header
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log_directory import LogDirectory
from storage.batches import make_batch
from storage.replication import content
from support.virtual_time import loop_time, wall_ms

SETTINGS = {
    "replica.lag.time.max.ms": "400",
    "replica.fetch.wait.max.ms": "100",
    "broker.session.timeout.ms": "600000",
    "auto.leader.rebalance.enable": "false",
}


class RealTime(SharedLocalStore):
    def __init__(self) -> None:
        super().__init__()
        self.clock = loop_time


class Replicant:
    """One broker.

    `start` it again after `stop`, `kill` (of the process) or `crash` (of the machine: unsynced data is lost).
    """

    def __init__(self, cluster: ReplicationCluster, node_id: int, **settings: str) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.disk = MemoryDisk()
        self.log = RecordedLog()
        self.boots = 0
        self.client_port = 0
        self.counters = Counters()
        given = {"node.id": str(node_id), "log.dir": "data", **SETTINGS, **cluster.settings, **settings}
        self.config: BrokerConfig = load(overrides=[f"{name}={value}" for name, value in given.items()])
        self.topics: Topics
        self.peers: Peers
        self.replicator: Replicator
        self.registration: Registration

    async def start(self) -> Replicant:
        self.boots += 1
        loop = asyncio.get_running_loop()
        self.store = GatedStore(self.cluster.shared_store.store(), loop_time)
        self.world = world = World(
            now_ms=wall_ms,
            monotonic=loop_time,
            rng=Random(1000 * self.node_id + self.boots),
            disk=self.disk,
            log=self.log,
        )
        self.logs = LogDirectory.open(
            self.disk, "data", node_id=self.node_id, cluster_id="c", directory_id=f"directory-{self.node_id}"
        )
        self.feed = await Feed.open(self.store, self.log)
        self.registration = Registration(world, self.config, self.store, self.feed)
        self.topics = await Topics.open(
            world=world,
            config=self.config,
            store=self.store,
            feed=self.feed,
            logs=self.logs,
            lease=self.registration,
        )
        self.registration.on_admitted.append(self.topics.local.take_roles)
        self.registration.on_lost.append(self.topics.local.resign)
        self.registration.offline = self.topics.local.offline
        self.topics.local.on_offline.append(self.registration.offline_changed)
        self.registration.hangs = lambda: self.topics.local.hangs.stops_writes
        self.topics.local.hangs.listeners.append(self.registration.offline_changed)
        self.topics.local.hangs.start()
        self.controller = Controller(world, self.config, self.store, self.feed, self.registration)
        self.controller.start()
        self.peers = Peers(world, self.feed, self.config)
        self.replicator = Replicator(
            world,
            self.config,
            store=self.store,
            feed=self.feed,
            topics=self.topics,
            peers=self.peers,
            registration=self.registration,
        )
        self.replicator.start()
        dispatcher = Dispatcher(cast("Broker", self), peer_handlers(self.replicator.sessions), PEER_VERSIONS)
        self.turns = Turns(loop, loop_time)
        self.server = Server(dispatcher, self.config, self.log, loop, self.turns)
        port = await self.server.bind("127.0.0.1", 0)
        await self.server.serve()
        async with asyncio.timeout(20):
            await self.registration.register(
                BrokerRecord(
                    node_id=self.node_id,
                    incarnation="",
                    directory_id=f"directory-{self.node_id}",
                    host="127.0.0.1",
                    port=self.client_port,
                    peer_host="127.0.0.1",
                    peer_port=port,
                    is_synced=self.config.durability == "fsync",
                )
            )
        return self

    @property
    def session(self) -> MortalSession:
        session = self.registration._session
        assert isinstance(session, MortalSession)
        return session

    async def stop(self) -> None:
        """Stop the broker in order."""
        await self.registration.leave()
        await self._halt()
        await self.topics.close()
        await self.controller.close()
        await self.feed.close()
        self.logs.close()

    async def die(self, how: str = "kill", *, is_noticed: bool = True) -> None:
        """End the process (`kill`) or the machine (`crash`). `is_noticed`: its session ends, too."""
        session = self.session
        tasks = [task for task in (self.registration._task, self.controller._task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await self._halt()
        await self.feed.close()
        getattr(self.disk, how)()
        if is_noticed:
            await session.expire()

    async def _halt(self) -> None:
        self.topics.local.hangs.stop()
        await self.replicator.close()
        await self.peers.close()
        await self.server.abort()

    def cut_off(self) -> None:
        """End the broker's session without a notice to it."""
        self.store.watch_gate.clear()
        self.store.gate.clear()

    def unplug(self) -> None:
        """Cut the broker off from the others, also amid a request."""

        async def call(*_: object) -> None:
            raise ConnectionRefusedError("unplugged")

        self.peers.call = call  # type: ignore[assignment,method-assign]
        for link in self.peers._links.values():
            if link._connection is not None:
                link._connection.close("unplugged")

    async def hold_answers(self, source: int) -> DelayedAnswer:
        """From now on, hold the fetched records that this broker gets from that one."""
        held, ask = DelayedAnswer(), self.peers.call

        async def call(node_id: int, api_key: int, *rest: Any) -> Any:
            held.asked[node_id] = None
            answer = await ask(node_id, api_key, *rest)
            has_records = api_key == 1 and any(row.records for topic in answer.responses for row in topic.partitions)
            if node_id == source and has_records:
                held.is_there.set()
                await held.gate.wait()
            return answer

        self.peers.call = call  # type: ignore[method-assign]
        await until(lambda: source in held.asked)  # what was asked before is answered
        return held

    def plug_in(self) -> None:
        del self.peers.call  # type: ignore[method-assign]

    def partition(self, index: int = 0, topic: str = "t") -> Partition:
        return self.topics.partition(topic, index)

    def append(
        self, value: bytes, *, index: int = 0, topic: str = "t", count: int = 1, **fields: Any
    ) -> tuple[int, int]:
        """Append a batch. Returns its first offset and the one after it."""
        batch = make_batch(count, value=value, **fields)
        result = self.partition(index, topic).append(batch, header=read_header(batch))
        return result.base_offset, result.last_offset + 1

    async def put(self, value: bytes, *, index: int = 0, topic: str = "t", **fields: Any) -> int:
        """Write a batch with acks=all. Returns its first offset."""
        base_offset, end = self.append(value, index=index, topic=topic, **fields)
        async with asyncio.timeout(20):
            await self.partition(index, topic).committed(end)
        return base_offset


class DelayedAnswer:
    """An answer that the test delivers later."""

    def __init__(self) -> None:
        self.asked: dict[int, None] = {}
        self.is_there, self.gate = asyncio.Event(), asyncio.Event()


class ReplicationCluster:
    def __init__(self, shared_store: SharedLocalStore | None = None, **settings: str) -> None:
        self.shared_store = shared_store or RealTime()
        self.settings = settings
        self.brokers: dict[int, Replicant] = {}

    async def start(self, *node_ids: int, **settings: str) -> list[Replicant]:
        for node_id in node_ids:
            self.brokers[node_id] = await Replicant(self, node_id, **settings).start()
        return [self.brokers[node_id] for node_id in node_ids]

    async def start_with_topic(self, *node_ids: int, **settings: str) -> list[Replicant]:
        """Start the brokers and create the topic `t`: each has a replica of its partition, and the first leads it."""
        started = await self.start(*node_ids, **settings)
        await self.topic([*node_ids])
        return started

    async def topic(
        self, *replicas: Sequence[int], name: str = "t", by: int | None = None, configs: dict[str, str] | None = None
    ) -> None:
        """Create a topic with these replicas; the first of each row leads. Waits until all their brokers know it."""
        maker = self.brokers[replicas[0][0] if by is None else by]
        await maker.topics.create(
            NewTopic(name=name, assignments={n: list(row) for n, row in enumerate(replicas)}, configs=configs or {})
        )
        for index, row in enumerate(replicas):
            for node_id in row:
                await self.role(node_id, row[0], index=index, topic=name)

    async def role(self, node_id: int, leader: int, *, index: int = 0, topic: str = "t") -> None:
        """Wait until a broker knows the leader."""
        it = self.brokers[node_id]
        role = Role.LEADER if leader == node_id else Role.FOLLOWER

        def knows() -> bool:
            if it.topics.get(topic) is None:
                return False
            partition = it.partition(index, topic)
            return partition.role is role and partition.leader in (leader, -1 if role is Role.LEADER else leader)

        await until(knows, f"broker {node_id} never knew that {leader} leads {topic}-{index}")

    def state(self, index: int = 0, topic: str = "t", by: int | None = None) -> PartitionState:
        """The partition's state as a broker knows it."""
        it = self.brokers[next(iter(self.brokers)) if by is None else by]
        return it.topics.view(topic, index).state

    async def isr(self, *node_ids: int, index: int = 0, topic: str = "t", by: int | None = None) -> None:
        """Wait until exactly these replicas are in sync."""
        await until(
            lambda: sorted(self.state(index, topic, by).isr) == sorted(node_ids),
            f"{topic}-{index}: {self.state(index, topic, by)}",
        )

    async def same(self, *node_ids: int, index: int = 0, topic: str = "t") -> None:
        """Wait until the replicas have the same end offset, and check that their records are equal."""
        partitions = [self.brokers[node_id].partition(index, topic) for node_id in node_ids]
        await until(
            lambda: (
                len({(p.end_offset, p.durable_end) for p in partitions}) == 1
                and partitions[0].end_offset == partitions[0].durable_end
            ),
            f"{[(p.leader_epoch, p.durable_end, p.end_offset) for p in partitions]}",
        )
        start = max(p.log_start_offset for p in partitions)
        first, *others = [content(p.log, start) for p in partitions]
        for node_id, other in zip(node_ids[1:], others, strict=True):
            assert other == first, f"broker {node_id} has something else than broker {node_ids[0]}"

    async def elect(self, leader: int, *, index: int = 0, topic: str = "t", without: Sequence[int] = ()) -> None:
        """Write another leader into the store. `without`: replicas that leave the ISR."""
        by = self.brokers[leader]
        view = by.topics.view(topic, index)
        isr = [each for each in view.state.isr if each not in without]
        state = PartitionState(leader, view.state.leader_epoch + 1, isr)
        assert leader in isr
        await self.shared_store.hand.transact([], [Put(view.key, msgspec.json.encode(state))])
        await self.role(leader, leader, index=index, topic=topic)

    async def close(self) -> None:
        for it in self.brokers.values():
            it.store.gate.set()
            it.store.watch_gate.set()
            if it.disk.held is not None:
                it.disk.release_syncs()
        for it in self.brokers.values():
            await it._halt()
            await it.topics.close()
            await it.controller.close()
            await it.registration.close()
            await it.feed.close()
        await self.shared_store.close()
