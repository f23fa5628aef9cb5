"""The coordinator of all transactional ids of this broker: what producers and operators may ask of it.

Each request is a decision (`state`) that the engine carries out. After a crash, replay finds what was decided
(PREPARE_*) and goes on from the markers.
"""

from __future__ import annotations

from asyncio import Task, get_running_loop, sleep, wait
from collections.abc import Sequence

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition
from semel_storage.internal_topics import CONSUMER_OFFSETS

from semel_broker.config import BrokerConfig
from semel_broker.producer_ids import ProducerIds
from semel_broker.topics import Topics
from semel_broker.txn import state
from semel_broker.txn.destination import LocalDestination, OffsetsEnded
from semel_broker.txn.engine import Decide, Engine, stopping
from semel_broker.txn.expiry import Expiry
from semel_broker.txn.identity import NOBODY, ClientName, ProducerIdentity
from semel_broker.txn.journal import Journal
from semel_broker.txn.ledger import ExpiredIds, Fences
from semel_broker.txn.marker_channel import Marker, MarkerChannel
from semel_broker.txn.metadata import (
    PREPARE_EPOCH_FENCE,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from semel_broker.txn.replay import Replay
from semel_broker.txn.requests import End, Init, Rules, Step
from semel_broker.txn.slots import Slot, Slots
from semel_broker.world import World

NOBODYS_CLIENT = ClientName()
LOADED_AT_ONCE = 500
"""Transactional ids read between two pauses, in which the loop does what else there is."""


class TransactionCoordinator:
    """All transactions, from InitProducerId to the last marker. `start` it, call it from any task; `close` it before
    the topics. Requests that come while the stored ids are still being read wait until they are.

    `offsets_ended` is told of each durable marker in a partition of `__consumer_offsets`.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        topics: Topics,
        producer_ids: ProducerIds,
        offsets_ended: OffsetsEnded,
    ) -> None:
        self._world = world
        self._log = world.log
        self._config = config
        self._topics = topics
        self._journal = Journal(world, topics)
        self._slots = Slots()
        self._expired = ExpiredIds()
        self._me = ClientName(host=f"broker {config.node_id}")
        self.destination = LocalDestination(topics, offsets_ended)
        self._engine = Engine(
            world,
            self._slots,
            self._journal,
            MarkerChannel(world.log, self._locate, lambda node: self.destination),
            producer_ids,
            hold_ms_max=config.limits.transaction_hold_ms_max,
        )
        self._expiry = Expiry(world, config, self._slots, self._time_out, self._forget)
        self._loading: Task[None] | None = None
        self._closed = False

    # --- life ---

    def start(self) -> None:
        """Begin to read the stored transactions; returns at once."""
        self._loading = get_running_loop().create_task(self._load())

    @property
    def is_loaded(self) -> bool:
        """Whether the stored transactions are there."""
        loading = self._loading
        return loading is not None and loading.done() and not loading.cancelled() and loading.exception() is None

    async def loaded(self) -> None:
        """Return once the stored transactions are there. Raises COORDINATOR_NOT_AVAILABLE if they cannot be."""
        if self.is_loaded and not self._closed:
            return
        assert self._loading is not None, "start() first"
        await wait((self._loading,))  # whatever becomes of it; not cancelled with whoever waits
        if self._closed or self._loading.cancelled():
            raise stopping()
        if (error := self._loading.exception()) is not None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"__transaction_state cannot be read: {error}: see the broker's log",
            )

    async def close(self) -> None:
        """Answer whoever is held (they will look for another coordinator). The decided goes on at the next start."""
        self._closed = True
        if self._loading is not None:
            self._loading.cancel()
            await wait((self._loading,))
        self._expiry.stop()
        await self._engine.close()
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
    ) -> Step:
        """InitProducerId: `answer` is the identity to go on with, `kept` the prepared transaction that was kept.

        An ongoing transaction of an older instance is fenced and aborted first. Raises KafkaError 15, 16, 42, 50, 51,
        53, 90.
        """
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty; leave it out or give it a name")
        text_max = self._config.limits.fence_text_length_max
        rules = Rules(
            timeout_ms_max=self._config.transaction_max_timeout_ms,
            two_phase_commit=self._config.transaction_two_phase_commit_enable,
        )
        ask = Init(
            transactional_id=transactional_id,
            timeout_ms=rules.timeout_ms_of(timeout_ms, enable_2pc=enable_2pc, keep_prepared=keep_prepared),
            expected=ProducerIdentity(producer_id, producer_epoch) if producer_id >= 0 else NOBODY,
            client=ClientName(client.client_id[:text_max], client.host[:text_max]),
            keep_prepared=keep_prepared,
            note=note[:text_max],
        )
        return await self._move(transactional_id, lambda txn, now_ms, fresh_id: state.init(txn, ask, now_ms, fresh_id))

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
            lambda txn, now_ms, _: state.add_partitions(txn, producer, partitions, now_ms, version=version),
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
        topic = await self._topics.ensure(CONSUMER_OFFSETS)
        partition = (CONSUMER_OFFSETS, coordinator_partition(group_id, topic.partition_count))
        await self.add_partitions(
            transactional_id, producer_id, producer_epoch, [partition], version=version, connection=connection
        )

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
        while the stored transactions are being read: `await loaded()` first.
        """
        if not self.is_loaded:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "transactions are still being loaded: try again")
        producer = ProducerIdentity(producer_id, producer_epoch)
        try:
            state.verify(self._slots.get(transactional_id), producer, (topic, index))
        except KafkaError as error:
            raise self._explained(transactional_id, error) from None
        if connection:
            slot = self._slots.slot(transactional_id)
            if topic == CONSUMER_OFFSETS:
                slot.offsets_arrived_over(connection)
            else:
                slot.records_arrived_over(connection)

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
            lambda txn, now_ms, fresh_id: state.end(txn, ask, now_ms, fresh_id),
            connection=connection,
        )
        assert step.answer is not None or step.decided
        return step.answer or step.decided

    async def abort_hanging(
        self, producer: ProducerIdentity, partition: TopicPartition, coordinator_epoch: int, by: ClientName
    ) -> None:
        """End a transaction that is open in `partition` and that nobody coordinates (KIP-664).

        Raises KafkaError 48 if there is none, or it is one of ours; 3, 15, 47, 52.
        """
        await self.loaded()
        holder = next((txn for txn in self._slots.known() if txn.holds(producer.producer_id, partition)), None)
        if holder is not None:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"this transaction is not hanging: {holder.transactional_id} is in {holder.state.label}; "
                "have its producer end it, or fence it by its transactional.id",
            )
        if self._topics.partition(*partition).open_transaction(producer.producer_id) is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, f"producer id {producer.producer_id} has none open here")
        marker = Marker(producer, commit=False, coordinator_epoch=max(coordinator_epoch, 0))
        answer = self.destination.write([(marker, partition)])
        (code,) = answer if isinstance(answer, list) else await answer
        if code:
            raise KafkaError(code, f"the marker of {producer} is refused by the partition")
        self._log.info("hanging_transaction_aborted", partition=list(partition), producer=str(producer), by=str(by))

    # --- looking ---

    async def describe(self, transactional_id: str) -> TransactionMetadata:
        """What is known of the id. Raises KafkaError 15, 105."""
        await self.loaded()
        txn = self._slots.get(transactional_id)
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
        """All ids by name, those of certain states and producer ids only, and whose transaction is open for longer
        than `open_for_ms`, where given. Raises KafkaError 15."""
        await self.loaded()
        now_ms = self._world.now_ms()
        return [
            txn
            for txn in self._slots.known()
            if (not states or txn.state in states)
            and (not producer_ids or txn.identity.producer_id in producer_ids or txn.producer_id in producer_ids)
            and (open_for_ms < 0 or (txn.start_ms >= 0 and now_ms - txn.start_ms > open_for_ms))
        ]

    def fences(self, transactional_id: str) -> Fences:
        """The ledger of the id, oldest line first; also of one that has expired lately."""
        txn = self._slots.get(transactional_id)
        return txn.fences if txn is not None else self._expired.get(transactional_id)

    # --- carrying out ---

    async def _move(self, transactional_id: str, decide: Decide, *, connection: int = 0) -> Step:
        await self.loaded()
        try:
            return await self._engine.move(transactional_id, decide, connection=connection)
        except KafkaError as error:
            raise self._explained(transactional_id, error) from None

    async def _time_out(self, transactional_id: str) -> None:
        await self._move(transactional_id, lambda txn, now_ms, _: state.time_out(txn, now_ms, self._me))

    async def _forget(self, slots: Sequence[Slot]) -> None:
        """Tombstones for ids that nobody has used for long; the caller has their turns."""
        now_ms, expiration_ms = self._world.now_ms(), self._config.transactional_id_expiration_ms
        by_partition: dict[int, list[tuple[Slot, TransactionMetadata]]] = {}
        for slot in slots:
            assert slot.metadata is not None
            dead = state.expire(slot.metadata, now_ms, expiration_ms, self._me)
            by_partition.setdefault(self._journal.partition_of(slot.transactional_id), []).append((slot, dead))
        for rows in by_partition.values():
            await self._journal.append([dead for _, dead in rows]).durable()
            for slot, dead in rows:
                slot.apply(dead)
                self._expired.add(dead.transactional_id, dead.fences)
                self._engine.tell_fence(dead)
                self._slots.drop(slot)

    # --- small things ---

    async def _load(self) -> None:
        replay = Replay()
        try:
            await self._journal.replay(replay.feed)
            for at, txn in enumerate(replay.transactions()):
                self._slots.put(txn)
                if at % LOADED_AT_ONCE == 0:
                    await sleep(0)
        except Exception as error:
            self._log.exception("transactions_not_loaded", error=repr(error))
            raise
        for slot in self._slots:
            await self._resume(slot)
        self._expiry.start()
        self._log.info("transactions_loaded", transactional_ids=len(self._slots))

    async def _resume(self, slot: Slot) -> None:
        """What was decided before the start goes on."""
        txn = slot.metadata
        assert txn is not None
        if txn.state is PREPARE_EPOCH_FENCE:
            await self._engine.persist(slot, state.taken_over(txn, self._world.now_ms(), self._me))
        elif txn.is_prepared:
            self._log.info("transaction_resumed", transactional_id=txn.transactional_id, state=txn.state.label)
            self._engine.write_markers(slot, txn)

    def _locate(self, partition: TopicPartition) -> int | None:
        """The node that leads the partition: with one broker, this one."""
        return self._config.node_id

    def _explained(self, transactional_id: str, error: KafkaError) -> KafkaError:
        """`error`, with what is known of an id that has expired."""
        fences = self._expired.get(transactional_id)
        if error.code is not ErrorCode.INVALID_PRODUCER_ID_MAPPING or not fences:
            return error
        return KafkaError(error.code, f"{error.message}; {transactional_id}: {fences[-1].text}")
