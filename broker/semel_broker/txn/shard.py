"""The transactional ids of one partition of `__transaction_state`, which this broker leads.

Decide (`state`), persist (`journal`), apply, answer. The requests of one id run one after the other. A request that
meets a transaction which is being ended waits until it is complete: several clients do not survive the refusal
CONCURRENT_TRANSACTIONS. Once PREPARE_* is durable there is no way back: every partition gets its marker, then the shard
writes COMPLETE_*.

A new leader reads the partition and resumes what the former leader had decided. It writes markers again, in its own
leader epoch, which fences the markers that the former leader may still have on their way.
"""

from __future__ import annotations

from asyncio import Lock, get_running_loop, sleep
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.config.loading import BrokerConfig
from semel_broker.coordination.engine import Engine, Slots
from semel_broker.coordination.journal import Journal
from semel_broker.coordination.lru_table import LruTable
from semel_broker.coordination.producer_ids import ProducerIds
from semel_broker.coordination.producer_owners import transactional_owner
from semel_broker.coordination.shards import Shard
from semel_broker.counters.coordinators import TransactionCounters, count
from semel_broker.partitions.partition import Partition
from semel_broker.txn.group_engine import GroupEngine
from semel_broker.txn.markers.channel import Marker, MarkerChannel
from semel_broker.txn.model import state
from semel_broker.txn.model.identity import ClientName, ProducerIdentity
from semel_broker.txn.model.ledger import ExpiredIds, FenceReason, FenceRecord, Fences
from semel_broker.txn.model.metadata import (
    ONGOING,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PREPARED,
    TopicPartition,
    TransactionMetadata,
)
from semel_broker.txn.model.records import row_of
from semel_broker.txn.model.refusals import concurrent
from semel_broker.txn.model.replay import TransactionReplay
from semel_broker.txn.model.requests import End, Init, TransactionStep
from semel_broker.txn.slot import ProducerConnections, TransactionSlot
from semel_broker.world import World

LOADED_AT_ONCE = 500
"""Transactional ids that a load makes between two pauses of the event loop."""
AGAIN_S = 1.0
"""Between attempts to append COMPLETE_*."""

Decide = Callable[[TransactionMetadata | None, int, int], TransactionStep]
"""(what is known, now in ms, a fresh producer id or -1) -> the decision."""


class CoordinatorContext(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that all shards of one coordinator share. `me`: this broker, as the fence ledger names it.
    `connections`: of producers, by transactional id."""

    world: World
    config: BrokerConfig
    markers: MarkerChannel
    producer_ids: ProducerIds
    expired: ExpiredIds
    me: ClientName
    connections: LruTable[str, ProducerConnections]
    counters: TransactionCounters = msgspec.field(default_factory=TransactionCounters)


class TransactionShard(Shard):
    """The ids whose records lie in `partition`, and their transaction groups. Callers use it while it `is_ready`.

    Every request may raise COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR besides what its method says.
    """

    kind = "transactions"

    def __init__(self, context: CoordinatorContext, partition: Partition, reading: Lock) -> None:
        super().__init__(partition, context.world.log, reading)
        self._context = context
        self._world = context.world
        self._hold_s_max = context.config.limits.transaction_hold_ms_max / 1000
        self._journal = Journal(context.world, partition, passed=ErrorCode.RECORD_LIST_TOO_LARGE)
        self._engine = Engine(context.world, self._journal, context.producer_ids, check=self.check)
        self._is_read = False
        self._resumed: dict[str, None] = {}
        self.slots: Slots[TransactionSlot] = Slots(self._new_slot)
        self.groups = GroupEngine(
            context.world.log,
            self.slots,
            self._engine,
            self.apply,
            check=self.check,
            hold_ms_max=context.config.limits.transaction_hold_ms_max,
        )

    # --- requests ---

    async def init(self, ask: Init) -> TransactionStep:
        """InitProducerId: `answer` is the identity to continue with, `kept` the prepared transaction that was kept.

        Fences and aborts an open transaction of an older instance first. Raises INVALID_REQUEST,
        CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
        """
        owner, owns = transactional_owner(ask.transactional_id), self._context.producer_ids.owners.owns

        def decide(txn: TransactionMetadata | None, now_ms: int, fresh_id: int) -> TransactionStep:
            is_bound = txn is None or owns(owner, txn.identity.producer_id)
            return state.init(txn, self._with_step_timeout(ask), now_ms, fresh_id, is_bound=is_bound)

        return await self._move(ask.transactional_id, decide)

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Sequence[TopicPartition],
        *,
        version: int = 0,
        connection: int = 0,
    ) -> None:
        """Enrol (topic, index) pairs, which must exist, in the open or a new transaction; durable when this returns.

        `version`: the transaction version of the client, 2 where Produce v12 or TxnOffsetCommit v5 enrols (KIP-890).
        `connection`: with version 1, the number of the request's connection; CloseConnectionError refuses one older
        than the last one used. Raises INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS,
        PRODUCER_FENCED.
        """
        await self._move(
            transactional_id,
            lambda txn, now_ms, _: state.add_partitions(
                txn, producer, partitions, now_ms, version=version, group=self.groups.newest(transactional_id)
            ),
            connection=connection,
        )

    def verify(self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition) -> TransactionSlot:
        """Check that the producer has a transaction open that includes the partition; the id's slot.

        Raises INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
        """
        slot = self.slots.get(transactional_id)
        txn = None if slot is None else slot.metadata
        try:
            state.verify(txn, producer, partition, self.groups.newest(transactional_id))
        except KafkaError as error:
            raise self._explained(transactional_id, error) from None
        assert slot is not None
        return slot

    async def end(self, transactional_id: str, ask: End, *, connection: int = 0) -> ProducerIdentity:
        """EndTxn: commit or abort; the identity to continue with (from transaction version 2 on with a new epoch).

        Returns once every partition has its marker, so that a consumer can read what was committed. The decision stands
        as soon as it is durable: after `Limits.transaction_hold_ms_max` this returns although markers are missing.
        `connection`: as of `add_partitions`. Raises INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING,
        CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
        """
        step = await self._move(
            transactional_id,
            lambda txn, now_ms, fresh_id: state.end(txn, ask, now_ms, fresh_id),
            connection=connection,
        )
        assert step.answer is not None
        return step.answer

    async def time_out(self, transactional_id: str) -> None:
        """Abort the id's transaction if it is open for longer than its producer has asked for."""
        await self._move(
            transactional_id,
            lambda txn, now_ms, _: state.time_out(txn, now_ms, self._context.me, self.groups.newest(transactional_id)),
        )

    # --- looking ---

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """The metadata of the id, if it is known."""
        slot = self.slots.get(transactional_id)
        return None if slot is None else slot.metadata

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """The metadata of the id. Raises TRANSACTIONAL_ID_NOT_FOUND."""
        txn = self.get(transactional_id)
        if txn is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional.id {transactional_id!r}")
        return txn

    def fences(self, transactional_id: str) -> Fences:
        """The ledger of the id, oldest line first; also of one that has expired lately."""
        txn = self.get(transactional_id)
        return txn.fences if txn is not None else self._context.expired.get(transactional_id)

    def known(self) -> list[TransactionMetadata]:
        """The metadata of every id, by transactional id."""
        found = [slot.metadata for slot in self.slots if slot.metadata is not None]
        return sorted(found, key=lambda txn: txn.transactional_id)

    # --- time ---

    async def forget(self, slots: Sequence[TransactionSlot]) -> None:
        """Write tombstones for expired ids; the caller has their locks. Raises the errors of `Journal.append`."""
        now_ms = self._world.now_ms()
        expiration_ms = self._context.config.transactional_id_expiration_ms
        rows = []
        for slot in slots:
            assert slot.metadata is not None
            assert slot.lock.is_taken, slot.key
            rows.append((slot, state.expire(slot.metadata, now_ms, expiration_ms, self._context.me)))
        await self._journal.append([row_of(dead) for _, dead in rows]).durable()
        for slot, dead in rows:
            slot.apply(dead)
            self._context.expired.add(dead.transactional_id, dead.fences)
            self._log_fence(dead)
            slot.drop()

    # --- decide, persist, apply, answer ---

    async def _move(self, transactional_id: str, decide: Decide, *, connection: int = 0) -> TransactionStep:
        """Decide, persist, apply; again after the transaction that is being ended, until there is an answer.

        `connection`: the number of the request's connection, where it matters (`TransactionSlot.arrived_over`).
        """
        slot = await self.slots.enter(transactional_id)
        fresh_ids: dict[str, int] = {}
        try:
            while True:
                try:
                    step = await self._engine.decide(
                        lambda now_ms, fresh: decide(slot.metadata, now_ms, fresh.get(transactional_id, -1)), fresh_ids
                    )
                except KafkaError as error:
                    if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                        raise self._explained(transactional_id, error) from None
                    slot.arrived_over(connection)
                    if not await self._completed(slot):
                        raise self._engine.closed or error from None
                    continue
                if step is None:
                    continue
                slot.arrived_over(connection)
                if step.then is None:
                    self.check()
                else:
                    if state.begins(slot.metadata, step.then):
                        self._engine.check_room()
                    await self.persist(slot, step.then)
                if step.awaits_markers and slot.is_being_ended:
                    await self._completed(slot)
                if step.answer is not None:
                    return step
                if slot.is_being_ended and not await self._completed(slot):
                    assert slot.metadata is not None
                    raise self._engine.closed or concurrent(slot.metadata)
        finally:
            self.slots.leave(slot)

    async def persist(self, slot: TransactionSlot, then: TransactionMetadata) -> None:
        """Store `then`, and put it into effect. Raises the errors of `Journal.append`."""
        await self._engine.persist([row_of(then)])
        self.apply(slot, then)

    def apply(self, slot: TransactionSlot, then: TransactionMetadata) -> None:
        """Put `then`, which is durable, into effect: log a fence, and send the markers of an ended transaction."""
        before = slot.metadata.fences[-1:] if slot.metadata is not None else ()
        self._count(slot.metadata, then)
        slot.apply(then)
        if then.fences[-1:] != before:
            self._log_fence(then)
        if then.is_prepared:
            self.write_markers(slot, then)

    def _count(self, before: TransactionMetadata | None, then: TransactionMetadata) -> None:
        """Count the begin, the decision and the fence that `then` brings."""
        counters, state = self._context.counters, then.state
        fenced = None
        if before is None or then.fences is not before.fences:
            fenced = _new_fence(before, then)
            if fenced is not None:
                count(counters.fenced, fenced.reason.name.lower())
        if before is None or before.state is not ONGOING:
            if state is ONGOING:
                counters.begun += 1
        elif state in PREPARED:
            counters.seconds.observe(max(0, then.last_update_ms - before.start_ms) / 1000)
            if state is PREPARE_COMMIT:
                counters.committed += 1
            else:
                cause = fenced.reason if fenced is not None else FenceReason.EPOCH_EXHAUSTED
                count(counters.aborted, "client" if cause is FenceReason.EPOCH_EXHAUSTED else cause.name.lower())

    def write_markers(self, slot: TransactionSlot, txn: TransactionMetadata) -> None:
        """Send the outcome to every partition of the transaction; complete it when each has its marker."""
        assert txn.is_prepared, txn.state
        done = partial(self._complete, slot, txn)
        if not txn.partitions:
            done()
            return
        marker = Marker(ProducerIdentity(txn.producer_id, txn.producer_epoch), txn.state is PREPARE_COMMIT, self.epoch)
        self._context.markers.send(
            txn.transactional_id, marker, list(txn.partitions), done, lambda: self._engine.closed is None
        )

    def _complete(self, slot: TransactionSlot, txn: TransactionMetadata) -> None:
        """Every marker is durable: append COMPLETE_*, which takes effect at once.

        The next record of this id lies behind it in the same log. If a crash loses both, the next leader finds
        PREPARE_* and writes the markers again, which does no harm (KIP-98).
        """
        if self._engine.closed is not None:
            return
        assert slot.metadata is txn, (slot.metadata, txn)
        then = state.complete(txn, self._world.now_ms())
        try:
            self._journal.append([row_of(then)], lazily=True)
        except KafkaError as error:
            self._log.warning("transaction_not_completed", transactional_id=txn.transactional_id, error=str(error))
            get_running_loop().call_later(AGAIN_S, partial(self._complete, slot, txn))
            return
        slot.apply(then)
        self._log.debug("transaction_completed", transactional_id=txn.transactional_id, state=then.state.label)

    async def _completed(self, slot: TransactionSlot) -> bool:
        """Wait for the transaction that is being ended; whether it is complete within `transaction_hold_ms_max`."""
        if self._engine.closed is not None:
            return False
        completion = slot.completion()
        deadline = get_running_loop().call_later(self._hold_s_max, slot.abandon)
        try:
            return await completion
        finally:
            deadline.cancel()

    def _new_slot(self, transactional_id: str) -> TransactionSlot:
        return TransactionSlot(transactional_id, self._context.connections)

    # --- life (see `Shard`) ---

    async def _load(self) -> None:
        if self._is_read:
            return
        assert not len(self.slots), self.index
        replay = TransactionReplay()
        await self._journal.replay(replay.take)
        for at, txn in enumerate(replay.transactions()):
            self.slots.add(TransactionSlot(txn.transactional_id, self._context.connections, txn))
            if at % LOADED_AT_ONCE == 0:
                await sleep(0)
        for group in replay.groups():
            self.groups.add(group)
        self._is_read = True

    async def _after_load(self) -> None:
        for slot in self.slots:
            if slot.key not in self._resumed:
                await self._resume(slot)
                self._resumed[slot.key] = None
        self._resumed.clear()
        self._log.info("transactions_loaded", partition=self.index, transactional_ids=len(self.slots))

    async def _resume(self, slot: TransactionSlot) -> None:
        """Continue with what the former coordinator had decided."""
        txn = slot.metadata
        assert txn is not None
        if txn.state is PREPARE_EPOCH_FENCE:
            await self.persist(slot, state.taken_over(txn, self._world.now_ms(), self._context.me))
        elif txn.is_prepared:
            self._context.counters.resumed += 1
            self._log.info("transaction_resumed", transactional_id=txn.transactional_id, state=txn.state.label)
            self.write_markers(slot, txn)

    def _fail_waiting(self, error: KafkaError) -> None:
        self._engine.closed = error
        for slot in self.slots:
            slot.abandon()

    # --- inside ---

    def _with_step_timeout(self, ask: Init) -> Init:
        if ask.group_epoch < 0:
            return ask
        return self.groups.admitted(ask, self._context.config.limits.transaction_group_members_max)

    def _log_fence(self, txn: TransactionMetadata) -> None:
        self._log.info("producer_fenced", transactional_id=txn.transactional_id, **txn.fences[-1].facts)

    def _explained(self, transactional_id: str, error: KafkaError) -> KafkaError:
        """`error`, with the last line of the ledger of an id that has expired."""
        fences = self._context.expired.get(transactional_id)
        if error.code is not ErrorCode.INVALID_PRODUCER_ID_MAPPING or not fences:
            return error
        return KafkaError(error.code, f"{error.message}; {transactional_id}: {fences[-1].text}")


def _new_fence(before: TransactionMetadata | None, then: TransactionMetadata) -> FenceRecord | None:
    """The fence that `then` has and `before` has not."""
    fence = then.fences[-1] if then.fences else None
    last = before.fences[-1] if before is not None and before.fences else None
    if fence is None or (last is not None and (last.at_ms, last.old) == (fence.at_ms, fence.old)):
        return None
    return fence
