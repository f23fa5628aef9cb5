"""Brokers with coordinators: several in one loop, over real sockets, each with a listener for clients.

The test moves leaderships. It can hold or lose requests between brokers, and lose their answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from broker.cluster.brokers import until
from broker.coordination.owners import producer_ids
from broker.groups.requests import GroupRequests
from broker.replication.brokers import Replicant, ReplicationCluster
from broker.transactional import TransactionalProducer
from broker.wire import Wire
from msgspec.structs import replace
from semel_broker.config.listeners import Endpoint
from semel_broker.context import Broker
from semel_broker.groups.coordinator import GroupCoordinator
from semel_broker.net.dispatch import Dispatcher
from semel_broker.net.server import Server
from semel_broker.partitions.refused_batches import RefusedBatches
from semel_broker.scheduling.recompressor import Recompressor
from semel_broker.scheduling.turns import Turns
from semel_broker.scheduling.work_turns import WorkTurns
from semel_broker.topics.advertised_brokers import AdvertisedBrokers
from semel_broker.txn.coordinator import TransactionCoordinator
from semel_broker.txn.markers.channel import ImageLeaders
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.metadata import TransactionMetadata
from semel_broker.txn.model.requests import End
from semel_protocol.batch import iterate
from semel_protocol.control import ControlType, read_marker
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition
from semel_protocol.schema import Message
from semel_storage.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from support.virtual_time import loop_time

VERIFY, MARKERS = 24, 27
PARTITIONS = 2
"""The partitions of each internal topic: broker 1 leads the first, broker 2 the second."""

Act = Callable[[], Awaitable[Any]]


class InterceptedPeerCalls:
    """The calls of one broker to the others.

    `before[api]` is awaited before a request is sent, `after[api]` before its answer returns. Either may raise the
    error that the caller gets.
    """

    def __init__(self, node: CoordinatorBroker) -> None:
        self.node = node
        self.calls: list[tuple[int, int, Message]] = []
        self.before: dict[int, Act] = {}
        self.after: dict[int, Act] = {}

    async def call(self, node_id: int, api_key: int, version: int, message: Message, timeout_ms: int) -> Any:
        self.calls.append((node_id, api_key, message))
        if (act := self.before.get(api_key)) is not None:
            await act()
        answer = await self.node.peers.call(node_id, api_key, version, message, timeout_ms)
        if (act := self.after.get(api_key)) is not None:
            await act()
        return answer

    def asked(self, api_key: int) -> list[Any]:
        """The requests of this API, in order."""
        return [message for _, key, message in self.calls if key == api_key]


class CoordinatorBroker(Replicant):
    """One broker with its coordinators."""

    cluster_id = "c"
    host = "127.0.0.1"
    acls = None
    telemetry = None

    async def start(self) -> CoordinatorBroker:
        self.config.limits = replace(
            self.config.limits, coordinator_load_hold_ms_max=self.patience_ms, peer_hold_ms_max=300
        )
        loop = asyncio.get_running_loop()
        self.clients = Server(Dispatcher(cast("Broker", self)), self.config, self.log, loop, Turns(loop, loop_time))
        self.port = self.client_port = await self.clients.bind("127.0.0.1", 0)
        await super().start()
        self.endpoints = {"PLAINTEXT": Endpoint("127.0.0.1", self.port)}
        self.advertised_brokers = AdvertisedBrokers(self.feed, self.world.monotonic)
        self.refused_batches = RefusedBatches()
        self.work_turns = WorkTurns(self.config.limits.record_work_per_turn)
        self.recompressor = Recompressor(self.config.limits.recompressed_at_once_bytes)
        self.wires = InterceptedPeerCalls(self)
        self.producer_ids = producer_ids(self.store)
        self.groups = GroupCoordinator(self.world, self.config, self.topics)
        self.transactions = TransactionCoordinator(
            self.world,
            self.config,
            self.topics,
            self.producer_ids,
            self.groups.transaction_ended,
            leaders=ImageLeaders(self.feed.image),
            peers=self.wires,
        )
        self.ask = GroupRequests(self.groups)
        self.groups.start()
        self.transactions.start()
        await self.clients.serve()
        return self

    patience_ms = 20_000

    async def wire(self) -> Wire:
        """A client's connection to this broker."""
        return await Wire.connect(self.port)

    async def producer(self, version: int = 2, name: str = "tx", like: TransactionalProducer | None = None) -> Any:
        """A producer that speaks to this broker. `like`: a producer with the identity to use."""
        one = TransactionalProducer(await self.wire(), version, name)
        if like is not None:
            one.producer_id, one.epoch, one._sequences = like.producer_id, like.epoch, like._sequences
        return one

    async def describe(self, name: str) -> TransactionMetadata:
        """The metadata of a transactional id at this broker's coordinator."""
        return (await self.transactions.shards.ready(name)).describe(name)

    async def commit(self, name: str, producer: ProducerIdentity) -> None:
        """Send EndTxn of transaction version 2 to this broker."""
        shard = await self.transactions.shards.ready(name)
        await shard.end(name, End(producer=producer, commit=True, version=2))

    def unplug(self) -> None:
        """Cut the broker off from the others, also amid a request."""

        async def call(*_: object) -> None:
            raise ConnectionRefusedError("unplugged")

        self.peers.call = call  # type: ignore[assignment,method-assign]
        for link in self.peers._links.values():
            link.close("unplugged")

    def plug_in(self) -> None:
        """Connect the broker again."""
        del self.peers.call  # type: ignore[method-assign]
        self.peers._links.clear()

    async def _halt(self) -> None:
        await self.clients.abort()
        gone = KafkaError(ErrorCode.NOT_COORDINATOR, "dead")
        for shards in (self.groups.shards, self.transactions.shards):
            shards._stopping = gone
            for shard in shards._shards.values():
                if not shard.is_gone:
                    shard.lose(gone)
        self.transactions._verification.close()
        await self.transactions.close()
        await self.groups.close()
        await super()._halt()


class CoordinatorCluster(ReplicationCluster):
    """A cluster of such brokers. `out`: a topic of two partitions with the leaders of the internal topics."""

    brokers: dict[int, CoordinatorBroker]  # type: ignore[assignment]

    async def start(self, *node_ids: int, **settings: str) -> list[CoordinatorBroker]:  # type: ignore[override]
        for node_id in node_ids:
            node = CoordinatorBroker(self, node_id, **settings)
            self.brokers[node_id] = node
            await node.start()
        return [self.brokers[node_id] for node_id in node_ids]

    async def open(self, *node_ids: int, **settings: str) -> list[CoordinatorBroker]:
        """Start two or three brokers, with the internal topics, `t` and `out`."""
        nodes = await self.start(*node_ids, **settings)
        first, second, *rest = node_ids
        rows = [[first, second, *rest], [second, first, *rest]]
        for name in (CONSUMER_OFFSETS, TRANSACTION_STATE, "out", "t"):
            await self.topic(*rows, name=name)
        return nodes

    @staticmethod
    def index_of(name: str) -> int:
        """The partition of an internal topic for this id."""
        return coordinator_partition(name, PARTITIONS)

    def name_at(self, index: int, prefix: str = "tx") -> str:
        """An id that belongs to partition `index` of an internal topic."""
        return next(
            name for number in range(1000) if coordinator_partition(name := f"{prefix}{number}", PARTITIONS) == index
        )

    async def move(self, topic: str, index: int, to: int, **options: Any) -> None:
        """Make another broker the leader of the partition, and wait until all connected brokers know it."""
        await self.elect(to, index=index, topic=topic, **options)
        revision = self.brokers[to].feed.image.revision
        for node in self.brokers.values():
            if node.store.watch_gate.is_set():
                await until(lambda node=node: node.feed.image.revision >= revision)  # type: ignore[misc]

    async def ready(self, topic: str, index: int, at: int) -> None:
        """Wait until the coordinator there has loaded its partition."""
        node = self.brokers[at]
        shards: Any = node.groups.shards if topic == CONSUMER_OFFSETS else node.transactions.shards
        await until(lambda: (shard := shards.at(index)) is not None and shard.is_ready)


def markers(node: CoordinatorBroker, index: int = 0, topic: str = "out") -> list[tuple[int, str, int]]:
    """(producer epoch, kind, coordinator epoch) of every marker in a partition, as this replica has it."""
    partition = node.partition(index, topic)
    found = []
    for header, data in iterate(partition.log.read(0, up_to=partition.end_offset, bytes_max=1 << 20)):
        if header.is_control:
            marker = read_marker(data, header)
            assert marker is not None
            found.append((header.producer_epoch, ControlType(marker.control_type).name, marker.coordinator_epoch))
    return found


def is_open(node: CoordinatorBroker, index: int = 0, topic: str = "out") -> bool:
    """Whether an open transaction blocks readers of committed data."""
    partition = node.partition(index, topic)
    return partition.last_stable_offset < partition.end_offset


async def code_of(asked: Awaitable[Any]) -> ErrorCode:
    """The error code of the request; NONE if it succeeds."""
    try:
        await asked
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE
