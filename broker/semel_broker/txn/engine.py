"""Decide, persist, apply, answer: the one way in which a transactional id changes.

The requests of one id take turns. One that meets a transaction which is being ended is held until that is complete,
instead of being refused with CONCURRENT_TRANSACTIONS, which several clients do not survive. Once PREPARE_* is durable
there is no way back: markers go to every partition, then COMPLETE_* is written.
"""

from __future__ import annotations

from asyncio import get_running_loop
from collections.abc import Callable
from functools import partial

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.coordination.journal import Journal
from semel_broker.coordination.producer_ids import ProducerIds
from semel_broker.txn.markers.channel import Marker, MarkerChannel
from semel_broker.txn.model import state
from semel_broker.txn.model.identity import NOBODY, ProducerIdentity
from semel_broker.txn.model.metadata import PREPARE_COMMIT, TransactionMetadata
from semel_broker.txn.model.records import row_of
from semel_broker.txn.model.refusals import concurrent
from semel_broker.txn.model.requests import NeedsProducerIdError, Step
from semel_broker.txn.slots import Slot, Slots
from semel_broker.world import World

Decide = Callable[[TransactionMetadata | None, int, int], Step]
"""(what is known, now in ms, a fresh producer id or -1) -> what to do."""
AGAIN_S = 1.0


class Engine:
    """Moves the transactional ids of one partition from state to state. `check` raises NOT_COORDINATOR unless this
    broker coordinates them, in `coordinator_epoch`. `hold_ms_max`: how long a request waits for another's end."""

    def __init__(
        self,
        world: World,
        slots: Slots,
        journal: Journal,
        markers: MarkerChannel,
        producer_ids: ProducerIds,
        *,
        check: Callable[[], None],
        coordinator_epoch: int,
        hold_ms_max: int,
    ) -> None:
        self._world = world
        self._log = world.log
        self._slots = slots
        self._journal = journal
        self._markers = markers
        self._producer_ids = producer_ids
        self._check = check
        self._coordinator_epoch = coordinator_epoch
        self._hold_s_max = hold_ms_max / 1000
        self._closed: KafkaError | None = None

    def close(self, error: KafkaError) -> None:
        """Change nothing any more: whoever is held, or comes, gets `error`. What is decided is in the log."""
        self._closed = error
        for slot in self._slots:
            slot.abandon()

    async def move(self, transactional_id: str, decide: Decide, *, connection: int = 0) -> Step:
        """Decide, persist, apply; again, until there is an answer. A transaction being ended is waited for.

        `connection`: the number of the one that the request came over, where that matters (`Slot.arrived_over`).
        """
        slot = await self._slots.enter(transactional_id)
        fresh_id, decided = -1, NOBODY
        try:
            while True:
                try:
                    step = decide(slot.metadata, self._world.now_ms(), fresh_id)
                    slot.arrived_over(connection)
                except NeedsProducerIdError:
                    fresh_id = await self._producer_ids.next()
                    continue
                except KafkaError as error:
                    if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                        self._check()  # who coordinates no longer knows no longer who is fenced
                        raise
                    slot.arrived_over(connection)
                    if await self._completed(slot):
                        continue
                    if decided:
                        return Step(None, decided=decided)
                    raise self._closed or error from None
                if step.then is not None:
                    await self.persist(slot, step.then)
                else:
                    self._check()
                if step.answer is not None:
                    return step
                decided = step.decided
                if slot.is_being_ended and not await self._completed(slot):
                    if decided:
                        return Step(None, decided=decided)
                    assert slot.metadata is not None
                    raise self._closed or concurrent(slot.metadata)
        finally:
            self._slots.leave(slot)

    async def persist(self, slot: Slot, then: TransactionMetadata) -> None:
        """Store `then`, and have it take effect. Raises KafkaError 15, 16, -1."""
        self.check_open()
        stored = self._journal.append([row_of(then)])
        if not stored.is_durable:
            await stored.durable()
        self.apply(slot, then)

    def check_open(self) -> None:
        """Raises what whoever is held here gets, if this coordinator is closed."""
        if self._closed is not None:
            raise self._closed

    @property
    def is_closed(self) -> bool:
        return self._closed is not None

    def apply(self, slot: Slot, then: TransactionMetadata) -> None:
        """`then` is durable: it takes effect, is told, and sets off what follows from it."""
        before = slot.metadata.fences[-1:] if slot.metadata is not None else ()
        if slot.metadata is not None and slot.metadata.identity != then.identity:
            slot.forget_connection()
        slot.apply(then)
        if then.fences[-1:] != before:
            self.tell_fence(then)
        if then.is_prepared:
            self.write_markers(slot, then)

    def write_markers(self, slot: Slot, txn: TransactionMetadata) -> None:
        """Tell every partition what is decided; then it is complete."""
        done = partial(self._complete, slot, txn)
        if not txn.partitions:
            done()
            return
        marker = Marker(
            ProducerIdentity(txn.producer_id, txn.producer_epoch),
            txn.state is PREPARE_COMMIT,
            self._coordinator_epoch,
        )
        self._markers.send(txn.transactional_id, marker, list(txn.partitions), done, lambda: self._closed is None)

    def _complete(self, slot: Slot, txn: TransactionMetadata) -> None:
        """Every marker is durable. COMPLETE_* takes effect as soon as it is appended: whatever follows for this id lies
        behind it in the same log, and if both are lost PREPARE_* only has its markers written again (KIP-98)."""
        if self._closed is not None:
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

    async def _completed(self, slot: Slot) -> bool:
        """Wait for the transaction that is being ended; whether it has, within `hold_ms_max`."""
        if self._closed is not None:
            return False
        completion = slot.completion()
        patience = get_running_loop().call_later(self._hold_s_max, slot.abandon)
        try:
            return await completion
        finally:
            patience.cancel()

    def tell_fence(self, txn: TransactionMetadata) -> None:
        """The last line of the ledger, for the log."""
        self._log.info("producer_fenced", transactional_id=txn.transactional_id, **txn.fences[-1].facts)
