"""Safeguards of the transaction coordinator and its markers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace
from semel_broker.coordination.engine import FifoLock
from semel_broker.groups.shard import GroupShard
from semel_broker.handlers import k00_transactional
from semel_broker.txn.expiry import Expiry
from semel_broker.txn.markers.channel import Entry
from semel_broker.txn.markers.local_destination import LocalDestination
from semel_broker.txn.model import identity, state
from semel_broker.txn.model.identity import NO_IDENTITY, ProducerIdentity
from semel_broker.txn.model.metadata import (
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionMetadata,
    TransactionState,
)
from semel_broker.txn.model.records import row_of
from semel_broker.txn.model.requests import End, Init, TransactionStep
from semel_broker.txn.shard import TransactionShard
from semel_broker.txn.slot import TransactionSlot

from sim.ablations.ablation import (
    Seam,
    both,
    broker_ends,
    faults,
    new_transactions,
    old_transactions,
    power_fails,
    safeguard,
)
from sim.ablations.durability import POWER_LOSS_ON_SLOW_DISK
from sim.ablations.worlds import any_connection, clients_that_keep_epochs, few_epochs
from sim.plan import RunPlan

KINDS = ("transactional", "pipeline", "compacted")


def shared_ids(plan: RunPlan) -> bool:
    """Whether two producers share one transactional id."""
    clients = [client for workload in plan.workloads for client in workload.clients]
    ids = [each.settings["transactional_id"] for each in clients if each.role == "transactor"]
    return len(set(ids)) < len(ids)


def hasty(seam: Seam, *states: TransactionState) -> None:
    """Transactions change to these states before the record of the change is durable."""
    persist = TransactionShard.persist

    async def persist_hastily(self: TransactionShard, slot: TransactionSlot, then: TransactionMetadata) -> None:
        if then.state not in states or self._engine.closed is not None:
            await persist(self, slot, then)
            return
        self._journal.append([row_of(then)])
        self.apply(slot, then)

    seam.replace(TransactionShard, "persist", persist_hastily)


@safeguard(
    "PREPARE is durable before markers",
    "a decision that one partition has learned never changes",
    *KINDS,
    shows=POWER_LOSS_ON_SLOW_DISK,
)
def prepare_durable(seam: Seam) -> None:
    hasty(seam, PREPARE_COMMIT, PREPARE_ABORT)


@safeguard(
    "epochs are durable before they are told",
    "a producer id and epoch are not given out twice",
    "transactional",
    shows=both(power_fails, shared_ids),
)
def epochs_durable(seam: Seam) -> None:
    hasty(seam, EMPTY)


@safeguard(
    "partitions are enrolled before they are written to",
    "a restarted coordinator knows which partitions need markers",
    *KINDS,
    shows=power_fails,
)
def enrolled_durably(seam: Seam) -> None:
    hasty(seam, ONGOING)


@safeguard(
    "markers are durable before COMPLETE",
    "a transaction is complete only when all its markers survive a crash",
    *KINDS,
    shows=power_fails,
)
def markers_durable(seam: Seam) -> None:
    def write(self: LocalDestination, entries: Sequence[Entry]) -> list[Any]:
        return [self._ended(entry, self._append(entry)) for entry in entries]

    seam.replace(LocalDestination, "write", write)


@safeguard(
    "decided transactions are resumed",
    "after a crash between PREPARE and COMPLETE the markers are written again",
    *KINDS,
    shows=broker_ends,
)
def decided_goes_on(seam: Seam) -> None:
    async def nothing(self: TransactionShard, slot: TransactionSlot) -> None:
        pass

    seam.replace(TransactionShard, "_resume", nothing)


@safeguard("timeout sweep", "a transaction whose producer is gone does not block readers for ever", *KINDS)
def timeout_sweep(seam: Seam) -> None:
    seam.replace(Expiry, "abort_due", lambda self: None)


@safeguard("time outs fence", "a producer whose transaction timed out cannot continue it", *KINDS)
def timeouts_fence(seam: Seam) -> None:
    time_out = state.time_out

    def mild(txn: TransactionMetadata | None, now_ms: int, by: Any, *group: Any) -> TransactionStep:
        step = time_out(txn, now_ms, by, *group)
        if step.then is None or txn is None:
            return step
        same = {"producer_epoch": txn.producer_epoch, "last_producer_epoch": -1, "next_producer_id": -1}
        return TransactionStep(replace(step.then, **same), step.answer)

    seam.replace(state, "time_out", mild)


# Fencing and producer epochs


@safeguard("InitProducerId bumps the epoch", "a new instance of a producer fences the old one", *KINDS)
def init_bumps(seam: Seam) -> None:
    bumped = state._bumped

    def same(txn: TransactionMetadata, ask: Init, now_ms: int, fresh_id: int, *, is_bound: bool) -> TransactionStep:
        step = bumped(txn, ask, now_ms, fresh_id, is_bound=is_bound)
        assert step.then is not None
        old = txn.identity
        return TransactionStep(replace(step.then, producer_id=old.producer_id, producer_epoch=old.epoch), old)

    seam.replace(state, "_bumped", same)


@safeguard(
    "InitProducerId aborts",
    "an old instance's open transaction does not become part of the new instance's transaction",
    *KINDS,
)
def init_aborts(seam: Seam) -> None:
    init = state.init

    def adopting(txn: TransactionMetadata | None, ask: Init, now_ms: int, fresh_id: int = -1) -> TransactionStep:
        if txn is None or txn.state is not ONGOING or ask.expected:
            return init(txn, ask, now_ms, fresh_id)
        new = txn.identity.fence
        return TransactionStep(replace(txn, producer_epoch=new.epoch, last_producer_epoch=-1), new)

    seam.replace(state, "init", adopting)


@safeguard(
    "InitProducerId of a zombie is refused",
    "a fenced producer cannot fence its successor (KIP-360)",
    "transactional",
    shows=shared_ids,
)
def zombie_init(seam: Seam) -> None:
    init = state.init

    def naive(txn: TransactionMetadata | None, ask: Init, now_ms: int, fresh_id: int = -1) -> TransactionStep:
        return init(txn, replace(ask, expected=NO_IDENTITY), now_ms, fresh_id)

    seam.replace(state, "init", naive)


@safeguard(
    "the coordinator checks epochs",
    "a fenced producer cannot end the transaction of its successor",
    "transactional",
    shows=shared_ids,
)
def coordinator_checks_epochs(seam: Seam) -> None:
    end = state.end

    def naive(txn: TransactionMetadata | None, ask: End, now_ms: int, fresh_id: int = -1) -> TransactionStep:
        mine = (txn.identity, txn.last_identity) if txn is not None else ()
        if txn is not None and ask.producer.producer_id == txn.identity.producer_id and ask.producer not in mine:
            ask = replace(ask, producer=txn.identity)
        return end(txn, ask, now_ms, fresh_id)

    seam.replace(state, "end", naive)


@safeguard(
    "every end bumps the epoch",
    "a late request of one transaction does not get into the next one (KIP-890)",
    *KINDS,
    shows=both(new_transactions, faults("hold", "slow link", "pause broker", "reset", "cut")),
)
def end_bumps(seam: Seam) -> None:
    end = state.end

    def old_end(txn: TransactionMetadata | None, ask: End, now_ms: int, fresh_id: int = -1) -> TransactionStep:
        return end(txn, replace(ask, version=0), now_ms, fresh_id)

    seam.replace(state, "end", old_end)


@safeguard(
    "producer ids rotate",
    "when the epochs of a producer id are used up, the producer gets a new id and fencing goes on",
    *KINDS,
    given=few_epochs,
)
def ids_rotate(seam: Seam) -> None:
    def stuck(self: ProducerIdentity) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, min(self.epoch + 1, identity.EPOCH_LAST))

    seam.replace(ProducerIdentity, "successor", property(stuck))


@safeguard(
    "newest connection wins",
    "a request that an old client sent over a connection that it has replaced since is refused",
    *KINDS,
    shows=both(old_transactions, faults("hold", "cut", "slow link")),
    given=clients_that_keep_epochs,
)
def newest_connection(seam: Seam) -> None:
    any_connection(seam)


@safeguard("requests of an id take turns", "each decision is based on the result of the decision before it", *KINDS)
def take_turns(seam: Seam) -> None:
    async def go_ahead(self: FifoLock) -> None:
        await asyncio.sleep(0)

    seam.replace(FifoLock, "wait", go_ahead)


@safeguard(
    "a new transaction waits for the last one's markers",
    "a new transaction does not begin before the last one has its markers",
    *KINDS,
    needless="verification refuses batches that are written before that, and their producer aborts and begins again",
)
def wait_for_end(seam: Seam) -> None:
    add = state.add_partitions

    def without_wait(txn: TransactionMetadata | None, *args: Any, **more: Any) -> TransactionStep:
        if txn is not None and txn.is_prepared:
            return TransactionStep(None, txn.identity)
        return add(txn, *args, **more)

    seam.replace(state, "add_partitions", without_wait)


# Verification before append


@safeguard(
    "verification of Produce",
    "a batch that arrives after its marker does not open a transaction that is never ended (KIP-890)",
    *KINDS,
    shows=both(old_transactions, faults("hold", "late")),
)
def verify_produce(seam: Seam) -> None:
    seam.replace(k00_transactional, "check", lambda *_: None)


@safeguard(
    "verification of TxnOffsetCommit",
    "late offsets do not become part of another transaction",
    "pipeline",
    shows=both(old_transactions, faults("hold", "late")),
)
def verify_offsets(seam: Seam) -> None:
    commit = GroupShard.commit_in_transaction

    async def naive(
        self: GroupShard, group_id: str, records: Any, producer: Any, verify: Callable[[int], None], by: Any
    ) -> None:
        await commit(self, group_id, records, producer, lambda index: None, by)

    seam.replace(GroupShard, "commit_in_transaction", naive)
