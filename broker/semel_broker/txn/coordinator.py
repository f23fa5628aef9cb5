"""The coordinator of transactional ids on this broker: finds shards, verifies writes, lists and aborts transactions.

The leader of a partition of `__transaction_state` coordinates the ids whose records lie there (`shard`). After a crash,
or on another broker, the new leader finds there what was decided (PREPARE_*) and continues with the markers.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Iterator, Sequence
from heapq import merge
from operator import attrgetter

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition, transaction_partition
from semel_storage.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE

from semel_broker.answers import CloseConnectionError
from semel_broker.cluster.image import ImageDelta
from semel_broker.cluster.store import StoreError
from semel_broker.config.loading import BrokerConfig
from semel_broker.coordination.lru_table import LruTable
from semel_broker.coordination.producer_ids import ProducerIds
from semel_broker.coordination.shards import Shards
from semel_broker.counters.coordinators import TransactionCounters
from semel_broker.partitions.partition import Partition
from semel_broker.scheduling.turns import Slices, Turns
from semel_broker.topics.topics import Topics
from semel_broker.txn.admission import Admission, Admissions
from semel_broker.txn.expiry import Expiry
from semel_broker.txn.markers.channel import Leaders, MarkerChannel, OnlyBroker
from semel_broker.txn.markers.hanging import Hanging, PeerCoordinators
from semel_broker.txn.markers.local_destination import LocalDestination, OffsetsEnded
from semel_broker.txn.markers.peer_calls import NoPeers, PeerCalls
from semel_broker.txn.markers.remote_destination import RemoteDestination
from semel_broker.txn.model.identity import NO_IDENTITY, ClientName, ProducerIdentity
from semel_broker.txn.model.ledger import ExpiredIds, Fences
from semel_broker.txn.model.metadata import TopicPartition, TransactionMetadata
from semel_broker.txn.model.requests import BUMPING_VERSION, Init, TransactionRules, TransactionStep
from semel_broker.txn.model.state import check_named
from semel_broker.txn.shard import CoordinatorContext, TransactionShard
from semel_broker.txn.slot import PRODUCERS_MAX
from semel_broker.txn.transaction_groups import TransactionGroups, check_member
from semel_broker.txn.verification import Verification
from semel_broker.world import World

NO_CLIENT = ClientName()
IDS_PER_STEP = 64
"""Transactional ids that are sorted in the time of one step of a slice."""


class TransactionCoordinator:
    """The transactional ids that this broker coordinates, those whose partition of `__transaction_state` it leads.
    `start` it, call it from any task; `close` it before the topics. A request for a shard that is being read waits, up
    to a limit.

    The coordinator calls `offsets_ended` for each durable marker in a partition of `__consumer_offsets`. `leaders`,
    `peers`: the leaders of partitions, and the connections to other brokers; without them this broker is the only one.
    A method that names an id may raise COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR
    besides what it says, and INVALID_REQUEST for an id of more than `id_bytes_max` bytes.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        topics: Topics,
        producer_ids: ProducerIds,
        offsets_ended: OffsetsEnded,
        *,
        leaders: Leaders | None = None,
        peers: PeerCalls | None = None,
        counters: TransactionCounters | None = None,
    ) -> None:
        counters = TransactionCounters() if counters is None else counters
        self._world = world
        self._config = config
        self._topics = topics
        self._peers: PeerCalls = peers or NoPeers()
        self._leaders: Leaders = leaders or OnlyBroker(config.node_id, topics)
        self._expired = ExpiredIds()
        turns = Turns(get_running_loop(), world.monotonic)
        here = LocalDestination(topics, offsets_ended, turns)
        self._senders: dict[str, int] = {}  # the newest connection of each
        timeout_ms = config.limits.peer_request_timeout_ms
        self.markers = MarkerChannel(
            world.log,
            self._leaders,
            config.node_id,
            here,
            lambda node: RemoteDestination(self._peers, node, timeout_ms),
            turns,
            counters,
        )
        context = CoordinatorContext(
            world=world,
            config=config,
            markers=self.markers,
            producer_ids=producer_ids,
            expired=self._expired,
            me=ClientName(host=f"broker {config.node_id}"),
            connections=LruTable(PRODUCERS_MAX),
            counters=counters,
        )
        self.shards: Shards[TransactionShard] = Shards(
            topics,
            TRANSACTION_STATE,
            lambda partition, reading: TransactionShard(context, partition, reading),
            load_timeout_ms=config.limits.coordinator_load_hold_ms_max,
            place=transaction_partition,
            id_bytes_max=config.limits.id_bytes_max,
        )
        self.groups = TransactionGroups(config, self.shards, context.me)
        self._verification = Verification(self._peers, timeout_ms)
        self._admissions = Admissions(self.shards, self._leaders, here.guards, self._verification, config.node_id)
        self._hanging = Hanging(
            world.log, PeerCoordinators(topics, self._leaders, self._peers, config.node_id, timeout_ms)
        )
        self._expiry = Expiry(world, config, self.shards.here, self._time_out, self.groups)

    # --- life ---

    def start(self) -> None:
        """Begin to read the partitions; returns at once."""
        self.shards.start()
        self._topics.feed.listeners.append(self._cluster_changed)
        self._expiry.start()

    async def loaded(self) -> None:
        """Return once all transactions are read. Raises COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE."""
        await self.shards.all_loaded()

    async def close(self) -> None:
        """Answer all requests that wait with COORDINATOR_NOT_AVAILABLE. The next start resumes what is decided."""
        self._expiry.stop()
        if self._cluster_changed in self._topics.feed.listeners:
            self._topics.feed.listeners.remove(self._cluster_changed)
        self._verification.close()
        await self.shards.close(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping: try again"))
        await self.markers.close()
        await self._expiry.stopped()

    # --- producers ---

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        *,
        client: ClientName = NO_CLIENT,
        enable_2pc: bool = False,
        keep_prepared: bool = False,
        note: str = "",
        group_epoch: int = -1,
    ) -> TransactionStep:
        """InitProducerId, checked against the settings: see `TransactionShard.init`.

        `group_epoch`: the instance takes part in that step of the id's transaction group. Raises INVALID_REQUEST,
        INVALID_TRANSACTION_TIMEOUT, TRANSACTIONAL_ID_AUTHORIZATION_FAILED besides.
        """
        check_named(transactional_id)
        text_max = self._config.limits.fence_text_length_max
        rules = TransactionRules(
            timeout_ms_max=self._config.transaction_max_timeout_ms,
            two_phase_commit=self._config.transaction_two_phase_commit_enable,
        )
        if group_epoch >= 0:
            check_member(transactional_id, enable_2pc or keep_prepared)
        ask = Init(
            transactional_id=transactional_id,
            timeout_ms=rules.timeout_ms_of(timeout_ms, enable_2pc=enable_2pc, keep_prepared=keep_prepared),
            expected=ProducerIdentity(producer_id, producer_epoch) if producer_id >= 0 else NO_IDENTITY,
            client=client.cut(text_max),
            keep_prepared=keep_prepared,
            note=note[:text_max],
            group_epoch=group_epoch,
            version=self._config.transaction_version,
        )
        return await (await self.shards.ready(transactional_id)).init(ask)

    async def partition_of_group(self, group_id: str) -> TopicPartition:
        """The partition of `__consumer_offsets` that holds the group's offsets, to be enrolled by AddOffsetsToTxn.

        Raises INVALID_GROUP_ID, COORDINATOR_NOT_AVAILABLE.
        """
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs a name: set group.id")
        try:
            topic = await self._topics.ensure(CONSUMER_OFFSETS)
        except (KafkaError, StoreError) as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{CONSUMER_OFFSETS} cannot be created now: {error}"
            ) from error
        return CONSUMER_OFFSETS, coordinator_partition(group_id, topic.partition_count)

    # --- verification ---

    def coordinates(self, transactional_id: str) -> bool:
        """Whether `verify` can answer for the id now."""
        return self.shards.of(transactional_id) is not None

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topic: str,
        index: int,
        *,
        connection: int = 0,
    ) -> None:
        """Whether this producer may append to the partition now: it has a transaction open that includes it.

        Call it without an await before the append. `connection`: of a Produce or TxnOffsetCommit with version 1, as of
        `TransactionShard.add_partitions`. Raises INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED (which
        Produce calls INVALID_PRODUCER_EPOCH); NOT_ENOUGH_REPLICAS unless this broker `coordinates` the id: `admit`
        first.
        """
        shard = self.shards.of(transactional_id)
        if shard is None:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"the coordinator of {transactional_id} is not known now: try again"
            )
        slot = shard.verify(transactional_id, ProducerIdentity(producer_id, producer_epoch), (topic, index))
        if connection:
            if topic == CONSUMER_OFFSETS:
                slot.offsets_arrived_over(connection)
            else:
                slot.records_arrived_over(connection)

    async def admit(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[Partition],
        *,
        joins: bool,
        connection: int = 0,
    ) -> Admission:
        """`verify` for an id that any broker coordinates: await this, `check` without an await before the append,
        `close`.

        `joins`: the producer speaks transaction version 2, whose writes enrol the partitions. `connection`: as of
        `verify`.
        """
        producer = ProducerIdentity(producer_id, producer_epoch)

        async def enrol(places: Sequence[TopicPartition]) -> None:
            shard = await self.shards.ready(transactional_id)
            await shard.add_partitions(transactional_id, producer, places, version=BUMPING_VERSION)

        return await self._admissions.admit(
            transactional_id,
            producer,
            partitions,
            joins=joins,
            enrol=enrol,
            verify=lambda place: self.verify(
                transactional_id, producer_id, producer_epoch, *place, connection=connection
            ),
        )

    async def abort_hanging(
        self, producer: ProducerIdentity, partition: TopicPartition, coordinator_epoch: int, by: ClientName
    ) -> None:
        """Abort a transaction that is open in `partition` and has no coordinator (KIP-664).

        Raises INVALID_TXN_STATE if there is none, or it has a coordinator; 3, 6, 15, 47, 52.
        """
        there = self._topics.partition(*partition)
        there.check_leading()
        await self._hanging.abort(producer, there, coordinator_epoch, by, await self._known(), self.markers.here)

    def markers_arrived_over(self, sender: str, connection: int) -> None:
        """Note the connection of another broker's markers. Raises CloseConnectionError if it is an older one."""
        if connection < self._senders.get(sender, 0):
            raise CloseConnectionError("stale_connection", sender=sender)
        self._senders[sender] = connection

    # --- listings ---

    async def listing(self, slices: Slices) -> Iterator[TransactionMetadata]:
        """The ids here by name. There may be many: they are collected in slices, and the caller goes on in slices.

        Raises COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
        """
        found = []
        for shard in await self.shards.all_loaded():
            found.append(shard.known())
            if slices.is_over(1 + len(found[-1]) // IDS_PER_STEP):
                await slices.next()
        return merge(*found, key=attrgetter("transactional_id"))

    def fences(self, transactional_id: str) -> Fences:
        """The ledger of the id, oldest line first; also of one that has expired lately."""
        shard = self.shards.of(transactional_id)
        return shard.fences(transactional_id) if shard is not None else self._expired.get(transactional_id)

    # --- inside ---

    async def _time_out(self, transactional_id: str) -> None:
        shard = self.shards.of(transactional_id)  # an earlier version may have taken an id that is too long now
        if shard is not None:
            await shard.time_out(transactional_id)

    def _cluster_changed(self, delta: ImageDelta) -> None:
        if delta.partitions or delta.brokers or delta.gone:
            self.markers.leaders_changed()

    async def _known(self) -> list[TransactionMetadata]:
        """The metadata of every id here."""
        return [txn for shard in await self.shards.all_loaded() for txn in shard.known()]
