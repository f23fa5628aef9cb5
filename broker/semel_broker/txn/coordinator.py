"""The coordinator of transactional ids: what producers, operators and other brokers may ask of it.

Each request is a decision (`state`) that the engine of its shard carries out. Whoever comes to lead a partition of
`__transaction_state`, after a crash or instead of another broker, finds there what was decided (PREPARE_*) and goes on
from the markers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition, transaction_partition
from semel_storage.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE

from semel_broker.answers import CloseConnectionError
from semel_broker.cluster.image import Touched
from semel_broker.cluster.store import StoreError
from semel_broker.config.loading import BrokerConfig
from semel_broker.coordination.producer_ids import ProducerIds
from semel_broker.coordination.shards import Shards
from semel_broker.partitions.partition import Partition
from semel_broker.topics.topics import Topics
from semel_broker.txn.admission import Admission, Admissions
from semel_broker.txn.expiry import Expiry
from semel_broker.txn.markers.channel import Destination, Leaders, MarkerChannel
from semel_broker.txn.markers.hanging import Hanging, Others
from semel_broker.txn.markers.leaders import Alone
from semel_broker.txn.markers.local_destination import LocalDestination, OffsetsEnded
from semel_broker.txn.markers.peer_calls import Nobody, PeerCalls
from semel_broker.txn.markers.remote_destination import RemoteDestination
from semel_broker.txn.model import state
from semel_broker.txn.model.identity import NOBODY, ClientName, ProducerIdentity
from semel_broker.txn.model.ledger import ExpiredIds, Fences
from semel_broker.txn.model.metadata import TopicPartition, TransactionMetadata, TransactionState
from semel_broker.txn.model.requests import BUMPING_VERSION, End, Init, Rules, Step
from semel_broker.txn.shard import Office, TransactionShard
from semel_broker.txn.transaction_groups import TransactionGroups, check_member
from semel_broker.txn.verification import Verification
from semel_broker.world import World

NOBODYS_CLIENT = ClientName()
DecideHere = Callable[[TransactionShard, TransactionMetadata | None, int, int], Step]
"""(the id's shard, what is known, now in ms, a fresh producer id or -1) -> what to do."""


class TransactionCoordinator:
    """The transactional ids that this broker coordinates, those whose partition of `__transaction_state` it leads.
    `start` it, call it from any task; `close` it before the topics. Requests that come while the stored ids are still
    being read wait for that, for a while.

    `offsets_ended` is told of each durable marker in a partition of `__consumer_offsets`. `leaders`, `peers`: where
    partitions are led, and how to reach other brokers; without them there are none. What names an id raises KafkaError
    14, 15 or 16 besides what is said.
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
    ) -> None:
        self._world = world
        self._config = config
        self._topics = topics
        self._peers: PeerCalls = peers or Nobody()
        self._leaders: Leaders = leaders or Alone(config.node_id, topics)
        self._expired = ExpiredIds()
        here = LocalDestination(topics, offsets_ended)
        self.destination: Destination = here
        self._far: dict[int, Destination] = {}
        self._senders: dict[str, int] = {}  # the newest connection of each
        self._markers = MarkerChannel(world.log, self._leaders, self._destination_at)
        office = Office(
            world=world,
            config=config,
            markers=self._markers,
            producer_ids=producer_ids,
            expired=self._expired,
            me=ClientName(host=f"broker {config.node_id}"),
        )
        self._me = office.me
        self.shards: Shards[TransactionShard] = Shards(
            topics,
            TRANSACTION_STATE,
            lambda partition, reading: TransactionShard(office, partition, reading),
            patience_ms=config.limits.coordinator_load_hold_ms_max,
            place=transaction_partition,
        )
        self.groups = TransactionGroups(config, self.shards, office.me)
        timeout_ms = config.limits.peer_request_timeout_ms
        self._verification = Verification(self._peers, timeout_ms)
        self._admissions = Admissions(self.shards, self._leaders, here.guards, self._verification, config.node_id)
        self._hanging = Hanging(world.log, Others(topics, self._leaders, self._peers, config.node_id, timeout_ms))
        self._expiry = Expiry(world, config, self.shards.here, self._time_out, self.groups)

    # --- life ---

    def start(self) -> None:
        """Begin to read the stored transactions; returns at once."""
        self.shards.start()
        self._topics.feed.listeners.append(self._cluster_changed)
        self._expiry.start()

    async def loaded(self) -> None:
        """Return once the transactions stored here are there. Raises KafkaError 14, 15."""
        await self.shards.all_loaded()

    async def close(self) -> None:
        """Answer whoever is held (they will look for another coordinator). The decided goes on at the next start."""
        self._expiry.stop()
        if self._cluster_changed in self._topics.feed.listeners:
            self._topics.feed.listeners.remove(self._cluster_changed)
        self._verification.close()
        await self.shards.close(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the broker is stopping: try again"))
        await self._markers.close()
        await self._expiry.stopped()

    # --- producers ---

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        *,
        client: ClientName = NOBODYS_CLIENT,
        enable_2pc: bool = False,
        keep_prepared: bool = False,
        note: str = "",
        group_epoch: int = -1,
    ) -> Step:
        """InitProducerId: `answer` is the identity to go on with, `kept` the prepared transaction that was kept.

        An ongoing transaction of an older instance is fenced and aborted first. `group_epoch`: the instance is to take
        part in that step of the id's transaction group. Raises KafkaError 15, 16, 42, 50, 51, 53, 90.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty; leave it out or give it a name")
        text_max = self._config.limits.fence_text_length_max
        rules = Rules(
            timeout_ms_max=self._config.transaction_max_timeout_ms,
            two_phase_commit=self._config.transaction_two_phase_commit_enable,
        )
        if group_epoch >= 0:
            check_member(transactional_id, enable_2pc or keep_prepared)
        ask = Init(
            transactional_id=transactional_id,
            timeout_ms=rules.timeout_ms_of(timeout_ms, enable_2pc=enable_2pc, keep_prepared=keep_prepared),
            expected=ProducerIdentity(producer_id, producer_epoch) if producer_id >= 0 else NOBODY,
            client=client.cut(text_max),
            keep_prepared=keep_prepared,
            note=note[:text_max],
            group_epoch=group_epoch,
        )
        return await self._move(
            transactional_id,
            lambda shard, txn, now_ms, fresh_id: state.init(txn, self.groups.admitted(ask, shard), now_ms, fresh_id),
        )

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        version: int = 0,
        connection: int = 0,
    ) -> None:
        """Enrol (topic, index) pairs, which must exist, in the open or a new transaction; durable when this returns.

        `version`: the transaction version of the client, 2 where Produce v12 or TxnOffsetCommit v5 enrols (KIP-890).
        `connection`: with version 1, the number of the one that the request came over: a request of a connection
        older than the last one used is refused with CloseConnectionError. Raises KafkaError 15, 16, 48, 49, 51, 90.
        """
        producer = ProducerIdentity(producer_id, producer_epoch)
        await self._move(
            transactional_id,
            lambda shard, txn, now_ms, _: state.add_partitions(
                txn, producer, partitions, now_ms, version=version, group=shard.groups.newest(transactional_id)
            ),
            connection=connection,
        )

    async def add_group(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group_id: str,
        *,
        version: int = 0,
        connection: int = 0,
    ) -> None:
        """Enrol the partition of `__consumer_offsets` that holds the group's offsets. As `add_partitions`; also 24."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a group needs a name: set group.id")
        try:
            topic = await self._topics.ensure(CONSUMER_OFFSETS)
        except (KafkaError, StoreError) as error:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{CONSUMER_OFFSETS} cannot be created now: {error}"
            ) from error
        partition = (CONSUMER_OFFSETS, coordinator_partition(group_id, topic.partition_count))
        await self.add_partitions(
            transactional_id, producer_id, producer_epoch, [partition], version=version, connection=connection
        )

    def coordinates(self, transactional_id: str) -> bool:
        """Whether `verify` can say something about the id in this turn of the loop."""
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

        To be called in the same turn of the loop as the append. `connection`: of a Produce or TxnOffsetCommit with
        version 1, as of `add_partitions`. Raises KafkaError 48, 49, 90 (which Produce calls 47); NOT_ENOUGH_REPLICAS
        unless this broker `coordinates` the id: `admit` first.
        """
        shard = self.shards.of(transactional_id)
        if shard is None:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"the coordinator of {transactional_id} is not known now: try again"
            )
        producer = ProducerIdentity(producer_id, producer_epoch)
        try:
            group = shard.groups.newest(transactional_id)
            state.verify(shard.slots.get(transactional_id), producer, (topic, index), group)
        except KafkaError as error:
            raise self._explained(transactional_id, error) from None
        if connection:
            slot = shard.slots.slot(transactional_id)
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
        """`verify` for an id that any broker coordinates: ask, then `check` in the turn of the append, then `close`.

        `joins`: the producer speaks transaction version 2, whose writes enrol the partitions. `connection`: as of
        `verify`.
        """
        return await self._admissions.admit(
            transactional_id,
            ProducerIdentity(producer_id, producer_epoch),
            partitions,
            joins=joins,
            enrol=lambda places: self.add_partitions(
                transactional_id, producer_id, producer_epoch, places, version=BUMPING_VERSION
            ),
            verify=lambda place: self.verify(
                transactional_id, producer_id, producer_epoch, *place, connection=connection
            ),
        )

    async def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        *,
        version: int = 0,
        connection: int = 0,
    ) -> ProducerIdentity:
        """EndTxn: commit or abort; the identity to go on with (from transaction version 2 on with a new epoch).

        Returns once every partition has its marker, so that who commits can read what was committed; but the
        decision stands as soon as it is durable, and is answered then if markers take longer than
        `Limits.transaction_hold_ms_max`. `connection`: as of `add_partitions`.
        Raises KafkaError 15, 16, 48, 49, 51, 90.
        """
        ask = End(producer=ProducerIdentity(producer_id, producer_epoch), commit=commit, version=version)
        step = await self._move(
            transactional_id,
            lambda _, txn, now_ms, fresh_id: state.end(txn, ask, now_ms, fresh_id),
            connection=connection,
        )
        assert step.answer is not None or step.decided
        return step.answer or step.decided

    async def abort_hanging(
        self, producer: ProducerIdentity, partition: TopicPartition, coordinator_epoch: int, by: ClientName
    ) -> None:
        """End a transaction that is open in `partition` and that nobody coordinates (KIP-664).

        Raises KafkaError 48 if there is none, or it has a coordinator; 3, 6, 15, 47, 52.
        """
        there = self._topics.partition(*partition)
        there.check_leading()
        await self._hanging.abort(producer, there, coordinator_epoch, by, await self._known(), self.destination)

    def markers_arrived_over(self, sender: str, connection: int) -> None:
        """Another broker's markers come over its newest connection. Raises CloseConnectionError over an older one."""
        if connection < self._senders.get(sender, 0):
            raise CloseConnectionError("stale_connection", sender=sender)
        self._senders[sender] = connection

    # --- looking ---

    async def describe(self, transactional_id: str) -> TransactionMetadata:
        """What is known of the id. Raises KafkaError 105."""
        shard = self.shards.of(transactional_id) or await self.shards.ready(transactional_id)
        txn = shard.slots.get(transactional_id)
        if txn is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional.id {transactional_id!r}")
        return txn

    async def listing(
        self,
        *,
        states: Sequence[TransactionState] = (),
        producer_ids: Sequence[int] = (),
        open_for_ms: int = -1,
    ) -> list[TransactionMetadata]:
        """The ids here by name, those of certain states and producer ids only, and whose transaction is open for longer
        than `open_for_ms`, where given. Raises KafkaError 14, 15."""
        now_ms = self._world.now_ms()
        return [
            txn
            for txn in await self._known()
            if (not states or txn.state in states)
            and (not producer_ids or txn.identity.producer_id in producer_ids or txn.producer_id in producer_ids)
            and (open_for_ms < 0 or (txn.start_ms >= 0 and now_ms - txn.start_ms > open_for_ms))
        ]

    def fences(self, transactional_id: str) -> Fences:
        """The ledger of the id, oldest line first; also of one that has expired lately."""
        shard = self.shards.of(transactional_id)
        txn = shard.slots.get(transactional_id) if shard is not None else None
        return txn.fences if txn is not None else self._expired.get(transactional_id)

    # --- carrying out ---

    async def _move(self, transactional_id: str, decide: DecideHere, *, connection: int = 0) -> Step:
        shard = self.shards.of(transactional_id) or await self.shards.ready(transactional_id)
        try:
            return await shard.engine.move(transactional_id, partial(decide, shard), connection=connection)
        except KafkaError as error:
            raise self._explained(transactional_id, error) from None

    async def _time_out(self, transactional_id: str) -> None:
        await self._move(
            transactional_id,
            lambda shard, txn, now_ms, _: state.time_out(txn, now_ms, self._me, shard.groups.newest(transactional_id)),
        )

    # --- small things ---

    def _cluster_changed(self, touched: Touched) -> None:
        if touched.partitions or touched.brokers or touched.gone:
            self._markers.leaders_changed()

    async def _known(self) -> list[TransactionMetadata]:
        """Everything there is here, by transactional id."""
        found = [txn for shard in await self.shards.all_loaded() for txn in shard.slots.known()]
        return sorted(found, key=lambda txn: txn.transactional_id)

    def _destination_at(self, node: int) -> Destination:
        if node == self._config.node_id:
            return self.destination
        far = self._far.get(node)
        if far is None:
            timeout_ms = self._config.limits.peer_request_timeout_ms
            far = self._far[node] = RemoteDestination(self._peers, node, timeout_ms)
        return far

    def _explained(self, transactional_id: str, error: KafkaError) -> KafkaError:
        """`error`, with what is known of an id that has expired."""
        fences = self._expired.get(transactional_id)
        if error.code is not ErrorCode.INVALID_PRODUCER_ID_MAPPING or not fences:
            return error
        return KafkaError(error.code, f"{error.message}; {transactional_id}: {fences[-1].text}")
