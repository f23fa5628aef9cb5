"""PURE: The state machine of one transactional id: metadata and a request in, the metadata to store out.

A transaction spans partitions of many brokers, and its outcome must be one. So one record decides it: PREPARE_COMMIT or
PREPARE_ABORT, in the partition of `__transaction_state` that the id belongs to. Everything before that record can be
abandoned, everything behind it only repeats what it says:

    EMPTY, COMPLETE_*   no transaction            AddPartitionsToTxn -> ONGOING
    ONGOING             partitions are enrolled   EndTxn, InitProducerId, time out -> PREPARE_*
    PREPARE_*           the outcome is decided    each partition has its marker -> COMPLETE_*

`metadata.NEXT` is the table of all transitions, and `check_successor` asserts it for each record.

An epoch answers the question whose request this is. The producer with the present epoch owns the id. InitProducerId
raises the epoch and so fences the former instance; with an open transaction, fence and abort are one record. With
transaction version 2 each end raises it, too, so that a late request of one transaction cannot get into the next one.
The answer to a raise may be lost, and then the producer asks with the epoch that it had: `last_identity` recognizes it
as a repetition. A former instance is never recognized: a fence sets the last epoch to -1.

docs/exactly-once.md has this as orders 2 to 4.

Each function returns a `TransactionStep`: the metadata to persist and apply (None: nothing changes), and the answer
(None: decide again once that step is complete). They raise `KafkaError`. CONCURRENT_TRANSACTIONS means "ask again when
the decided transaction is complete", which the coordinator does for the client. An old epoch gets PRODUCER_FENCED;
`coordination.errors` translates that for old clients. Sources: KIP-98, KIP-360 (resume), KIP-588 (codes),
KIP-890 (the epoch is bumped at every end), KIP-939 (two-phase commit).
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.coordination.producer_ids import NeedsProducerIdError
from semel_broker.txn.model.group_metadata import TransactionGroup, check_step
from semel_broker.txn.model.identity import EPOCH_LAST, EPOCH_MAX, NO_IDENTITY, ClientName, ProducerIdentity
from semel_broker.txn.model.ledger import FenceReason, FenceRecord, continues_last, noted, with_last_moved
from semel_broker.txn.model.metadata import (
    BETWEEN,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    NEXT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    TopicPartition,
    TransactionMetadata,
)
from semel_broker.txn.model.refusals import concurrent, fenced, not_open, only_to_be_ended, only_with_its_group
from semel_broker.txn.model.requests import BUMPING_VERSION, End, Init, TransactionStep

# --- initialising --------------------------------------------------------------------------------------------


def init(
    txn: TransactionMetadata | None, ask: Init, now_ms: int, fresh_id: int = -1, *, is_bound: bool = True
) -> TransactionStep:
    """A producer id and epoch for the instance that asks; all older instances are fenced.

    `is_bound`: the present producer id is bound to the transactional id. Otherwise leaders may refuse it, or accept it
    from other producers (an older version gave it out, or the cluster's secret is another one): the instance gets a new
    id.

    Raises CONCURRENT_TRANSACTIONS and PRODUCER_FENCED; NeedsProducerIdError without a `fresh_id` where one is needed.
    """
    if txn is None:
        return _created(ask, now_ms, fresh_id)
    if ask.keep_prepared and txn.is_member:
        raise only_with_its_group(txn)
    expected = ask.expected
    timed_out = bool(expected) and ask.version >= BUMPING_VERSION and expected == txn.timed_out
    if expected and expected not in (txn.identity, txn.last_identity) and not timed_out:
        raise fenced(txn, expected)
    if txn.is_prepared:
        raise concurrent(txn)
    if txn.state is ONGOING:
        if ask.keep_prepared:
            return _kept(txn, ask, now_ms, fresh_id, is_bound=is_bound)
        if expected and expected != txn.identity:
            raise fenced(txn, expected)  # a late request: the transaction began after its answer
        return TransactionStep(fenced_and_aborted(txn, _line_of(ask, now_ms), last_epoch=expected.epoch))
    if is_bound and expected and expected == txn.last_identity and txn.identity.epoch <= EPOCH_LAST:
        then = replace(txn, state=EMPTY, timeout_ms=ask.timeout_ms, last_update_ms=now_ms, owner=ask.client)
        return TransactionStep(replace(then, group_epoch=ask.group_epoch), txn.identity)
    if is_bound and timed_out and txn.identity.epoch <= EPOCH_LAST:
        return _resumed(txn, ask, now_ms)
    return _bumped(txn, ask, now_ms, fresh_id, is_bound=is_bound)


def _created(ask: Init, now_ms: int, fresh_id: int) -> TransactionStep:
    new = _fresh(ask.transactional_id, fresh_id)
    then = TransactionMetadata(
        transactional_id=ask.transactional_id,
        producer_id=new.producer_id,
        producer_epoch=new.epoch,
        timeout_ms=ask.timeout_ms,
        last_update_ms=now_ms,
        owner=ask.client,
        group_epoch=ask.group_epoch,
    )
    return TransactionStep(then, new)


def _resumed(txn: TransactionMetadata, ask: Init, now_ms: int) -> TransactionStep:
    """The producer whose transaction timed out continues with the epoch that the timeout left to it, as in Kafka."""
    then = replace(
        txn,
        state=EMPTY,
        last_producer_epoch=ask.expected.epoch,
        start_ms=-1,
        timeout_ms=ask.timeout_ms,
        last_update_ms=now_ms,
        owner=ask.client,
        fences=noted(txn.fences, _line_of(ask, now_ms).of(ask.expected, txn.identity)),
        group_epoch=ask.group_epoch,
    )
    return TransactionStep(then, txn.identity)


def _bumped(txn: TransactionMetadata, ask: Init, now_ms: int, fresh_id: int, *, is_bound: bool) -> TransactionStep:
    """The next epoch, or a fresh producer id once the epochs of this one are used up, or if it is not bound."""
    old = txn.identity
    new = (old.successor if is_bound else None) or _fresh(txn.transactional_id, fresh_id)
    assert new.producer_id != old.producer_id or new.epoch > old.epoch, (old, new)
    line = _line_of(ask, now_ms).of(old, new)
    continues = txn.state is COMPLETE_ABORT and continues_last(txn.fences, line, began_ms=txn.start_ms)
    then = replace(
        txn,
        state=EMPTY,
        producer_id=new.producer_id,
        producer_epoch=new.epoch,
        previous_producer_id=txn.previous_producer_id if new.producer_id == old.producer_id else old.producer_id,
        last_producer_epoch=ask.expected.epoch,
        partitions={},
        start_ms=-1,
        timeout_ms=ask.timeout_ms,
        last_update_ms=now_ms,
        owner=ask.client,
        fences=with_last_moved(txn.fences, new) if continues else noted(txn.fences, line),
        group_epoch=ask.group_epoch,
    )
    return TransactionStep(then, new)


def _kept(txn: TransactionMetadata, ask: Init, now_ms: int, fresh_id: int, *, is_bound: bool) -> TransactionStep:
    """A new instance takes over a prepared transaction (KIP-939): it may end it, and add nothing to it."""
    old = txn.identity
    new = (old.successor if is_bound else None) or _fresh(txn.transactional_id, fresh_id)
    then = replace(
        txn,
        next_producer_id=new.producer_id,
        next_producer_epoch=new.epoch,
        last_producer_epoch=ask.expected.epoch,
        timeout_ms=ask.timeout_ms,
        last_update_ms=now_ms,
        owner=ask.client,
        fences=noted(txn.fences, _line_of(ask, now_ms).of(old, new)),
    )
    return TransactionStep(then, new, kept=ProducerIdentity(txn.producer_id, txn.producer_epoch))


# --- the transaction -----------------------------------------------------------------------------------------


def add_partitions(
    txn: TransactionMetadata | None,
    producer: ProducerIdentity,
    partitions: Iterable[TopicPartition],
    now_ms: int,
    *,
    version: int = 0,
    group: TransactionGroup | None = None,
) -> TransactionStep:
    """Enrol partitions, and open the transaction if it is not; that of a member of `group` while its step is open.

    Raises INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED.
    """
    txn = owned(txn, producer)
    _check_step(txn, group)
    if txn.is_prepared:
        raise concurrent(txn)
    if txn.keeps_prepared:
        raise only_to_be_ended(txn)
    known = txn.partitions if txn.state is ONGOING else {}
    new = [partition for partition in partitions if partition not in known]
    if not new and txn.state is ONGOING:
        return TransactionStep(None, txn.identity)
    then = replace(
        txn,
        state=ONGOING,
        partitions={**known, **dict.fromkeys(new)},
        start_ms=txn.start_ms if txn.state is ONGOING else now_ms,
        last_update_ms=now_ms,
        client_transaction_version=version,
    )
    return TransactionStep(then, txn.identity)


def verify(
    txn: TransactionMetadata | None,
    producer: ProducerIdentity,
    partition: TopicPartition,
    group: TransactionGroup | None = None,
) -> None:
    """Whether `producer` may write into `partition` now (KIP-890). Raises INVALID_TXN_STATE,
    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED."""
    txn = owned(txn, producer)
    _check_step(txn, group)
    if txn.keeps_prepared:
        raise only_to_be_ended(txn)
    if txn.state is not ONGOING or partition not in txn.partitions:
        what = "has no transaction open" if txn.state is not ONGOING else "has not added it to its transaction"
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"{partition[0]}-{partition[1]}: {txn.transactional_id} {what} (state {txn.state.label}); "
            "abort, begin a new transaction and send again",
        )


def end(txn: TransactionMetadata | None, ask: End, now_ms: int, fresh_id: int = -1) -> TransactionStep:
    """Commit or abort. A step without `then`: the transaction was ended before, and this is a retry.

    A producer that timed out may still abort where an end bumps the epoch: it gets the epoch that the timeout has left
    to it, and continues. Kafka's coordinator does so, and Java's client relies on it. Raises INVALID_TXN_STATE,
    INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, PRODUCER_FENCED; NeedsProducerIdError without a `fresh_id`
    where one is needed."""
    bumps = ask.version >= BUMPING_VERSION
    if txn is not None and txn.is_member and ask.commit:
        raise only_with_its_group(owned(txn, ask.producer))
    if txn is not None and bumps and ask.producer and txn.state is not ONGOING and ask.producer in _last_of(txn, ask):
        return _ended_before(txn, ask)
    txn = owned(txn, ask.producer)
    if txn.is_prepared:
        return _ended_before(txn, ask)  # with the present epoch: only in a version without bumps
    if txn.state is ONGOING:
        return _decided(txn, ask, now_ms, fresh_id)
    if not bumps and txn.state is (COMPLETE_COMMIT if ask.commit else COMPLETE_ABORT):
        return TransactionStep(None, txn.identity)
    if bumps and not ask.commit:
        return _decided(txn, ask, now_ms, fresh_id)
    raise not_open(txn, ask.commit)


def _last_of(txn: TransactionMetadata, ask: End) -> tuple[ProducerIdentity, ...]:
    """The identities that may repeat this request although their epoch is over."""
    can_continue = not ask.commit and txn.identity.epoch <= EPOCH_LAST
    return (txn.last_identity, txn.timed_out) if can_continue else (txn.last_identity,)


def _ended_before(txn: TransactionMetadata, ask: End) -> TransactionStep:
    """A retry: the answer of the first attempt, or wait for it."""
    if txn.is_prepared and ask.commit == (txn.state is PREPARE_COMMIT):
        raise concurrent(txn)
    if txn.state is (COMPLETE_COMMIT if ask.commit else COMPLETE_ABORT):
        return TransactionStep(None, txn.identity)
    raise not_open(txn, ask.commit)


def _decided(txn: TransactionMetadata, ask: End, now_ms: int, fresh_id: int) -> TransactionStep:
    """The outcome is decided: from here on markers are written until every partition has its own."""
    then = prepared(txn, ask, now_ms, fresh_id)
    return TransactionStep(then, then.identity, awaits_markers=True)


def prepared(txn: TransactionMetadata, ask: End, now_ms: int, fresh_id: int) -> TransactionMetadata:
    """The metadata of the decided end. Raises NeedsProducerIdError."""
    assert txn.state is ONGOING or txn.state in BETWEEN, txn.state
    then = replace(
        txn,
        state=PREPARE_COMMIT if ask.commit else PREPARE_ABORT,
        partitions=txn.partitions if txn.state is ONGOING else {},
        start_ms=txn.start_ms if txn.state is ONGOING else now_ms,
        last_update_ms=now_ms,
        client_transaction_version=ask.version,
    )
    old, new = txn.identity, txn.identity.successor
    if ask.version < BUMPING_VERSION:
        return _moved(then, old, last_epoch=-1) if txn.keeps_prepared else then
    if new is not None:
        return _moved(then, new, last_epoch=old.epoch)
    new = _fresh(txn.transactional_id, fresh_id)
    line = FenceRecord(FenceReason.EPOCH_EXHAUSTED, now_ms, txn.owner).of(old, new)
    return replace(_moved(then, new, last_epoch=old.epoch), fences=noted(txn.fences, line))


def fenced_and_aborted(txn: TransactionMetadata, line: FenceRecord, *, last_epoch: int = -1) -> TransactionMetadata:
    """The fence and the abort in one record: if the append fails, the next attempt decides the same."""
    assert txn.state is ONGOING, txn.state
    new = txn.identity.fence
    then = replace(
        txn, state=PREPARE_ABORT, last_update_ms=line.at_ms, fences=noted(txn.fences, line.of(txn.identity, new))
    )
    return _moved(then, new, last_epoch=last_epoch)


def _moved(txn: TransactionMetadata, new: ProducerIdentity, *, last_epoch: int) -> TransactionMetadata:
    """Continue as `new`. Markers carry the id that wrote the data, with an epoch that fences older ones."""
    assert txn.is_prepared, txn.state
    if new.producer_id == txn.producer_id:
        return replace(
            txn, producer_epoch=new.epoch, last_producer_epoch=last_epoch, next_producer_id=-1, next_producer_epoch=-1
        )
    return replace(
        txn,
        producer_epoch=min(txn.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=last_epoch,
        next_producer_id=new.producer_id,
        next_producer_epoch=new.epoch,
    )


def complete(txn: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """The metadata after every marker is written."""
    assert txn.is_prepared, txn.state
    now = txn.identity
    return replace(
        txn,
        state=COMPLETE_COMMIT if txn.state is PREPARE_COMMIT else COMPLETE_ABORT,
        producer_id=now.producer_id,
        producer_epoch=now.epoch,
        previous_producer_id=txn.producer_id if now.producer_id != txn.producer_id else txn.previous_producer_id,
        next_producer_id=-1,
        next_producer_epoch=-1,
        partitions={},
        last_update_ms=now_ms,
    )


def begins(before: TransactionMetadata | None, then: TransactionMetadata) -> bool:
    """Whether `then` begins something: an id, an instance of its producer, a transaction, or one more partition of it.
    Otherwise it ends something, or lets a new instance end what is prepared."""
    if then.state is not ONGOING:
        return then.state is EMPTY
    return before is None or before.state is not ONGOING or len(then.partitions) > len(before.partitions)


# --- timeouts --------------------------------------------------------------------------------------------------


def is_timed_out(txn: TransactionMetadata, now_ms: int, group: TransactionGroup | None = None) -> bool:
    """Whether the transaction is open for longer than its producer has asked for. A step times out as a whole: a member
    times out by itself only if its step is no longer open."""
    if txn.is_member and group is not None and group.is_open_in(txn.group_epoch):
        return False
    return txn.state is ONGOING and not txn.is_two_phase and now_ms > txn.start_ms + txn.timeout_ms


def time_out(
    txn: TransactionMetadata | None, now_ms: int, by: ClientName, group: TransactionGroup | None = None
) -> TransactionStep:
    """Abort a transaction that has timed out, and fence its producer. Does nothing if the transaction has ended."""
    if txn is None or not is_timed_out(txn, now_ms, group):
        return TransactionStep(None, NO_IDENTITY)
    note = f"open for {now_ms - txn.start_ms} ms, allowed were {txn.timeout_ms} ms"
    return TransactionStep(fenced_and_aborted(txn, FenceRecord(FenceReason.TIMED_OUT, now_ms, by, note)), NO_IDENTITY)


def is_expired(txn: TransactionMetadata, now_ms: int, expiration_ms: int) -> bool:
    """Whether `transactional.id.expiration.ms` have passed without a transaction."""
    return txn.state in BETWEEN and now_ms - txn.last_update_ms >= expiration_ms


def expire(txn: TransactionMetadata, now_ms: int, expiration_ms: int, by: ClientName) -> TransactionMetadata:
    """Forget the id: its record becomes a tombstone, and its producer's next request fails."""
    assert txn.state in BETWEEN, txn.state
    note = f"last used {now_ms - txn.last_update_ms} ms ago, kept for {expiration_ms} ms"
    line = FenceRecord(FenceReason.EXPIRED, now_ms, by, note, old=txn.identity)
    return replace(txn, state=DEAD, fences=noted(txn.fences, line))


def taken_over(txn: TransactionMetadata, now_ms: int, by: ClientName) -> TransactionMetadata:
    """Continue what a Kafka coordinator had begun: the fence of a producer ends in an abort."""
    assert txn.state is PREPARE_EPOCH_FENCE, txn.state
    old = ProducerIdentity(txn.producer_id, txn.producer_epoch - 1)
    line = FenceRecord(FenceReason.FAILOVER, now_ms, by, old=old, new=txn.identity)
    return replace(txn, state=PREPARE_ABORT, last_update_ms=now_ms, fences=noted(txn.fences, line))


# --- inside --------------------------------------------------------------------------------------------------


def check_successor(before: TransactionMetadata | None, then: TransactionMetadata) -> None:
    """Assert that `then` may follow `before`. Anything else is a bug of ours: this broker has made both, or has read
    `before` from the log of another coordinator."""
    if before is None:
        assert then.state is EMPTY, then
        return
    assert then.transactional_id == before.transactional_id, (before, then)
    assert then.state in NEXT[before.state], f"{before.state} -> {then.state}"
    # The epoch goes forward only, or else a producer that was fenced could write again.
    assert then.producer_id != before.producer_id or then.producer_epoch >= before.producer_epoch, (before, then)
    if before.state is ONGOING:
        # Each partition of the transaction gets a marker.
        assert then.state is ONGOING or then.partitions == before.partitions, (before, then)
        assert len(then.partitions) >= len(before.partitions), (before, then)
        assert then.start_ms == before.start_ms, (before, then)
    if then.state in BETWEEN:
        assert not then.partitions, then
        assert then.next_producer_id < 0, then


def check_named(transactional_id: str) -> None:
    """Raise INVALID_REQUEST for an empty transactional id, which no producer has."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty: give it a name")


def owned(txn: TransactionMetadata | None, producer: ProducerIdentity) -> TransactionMetadata:
    """`txn`, which `producer` owns. Raises INVALID_PRODUCER_ID_MAPPING and PRODUCER_FENCED."""
    if txn is None:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            "this transactional.id is not known: it was never initialised or has expired; initialise the producer",
        )
    identity = txn.identity
    if producer == identity:
        return txn
    was_its = bool(producer) and (
        producer.producer_id == txn.previous_producer_id
        or any(fence.old.producer_id == producer.producer_id for fence in txn.fences)
    )
    if producer.producer_id != identity.producer_id and not was_its:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"{txn.transactional_id} belongs to producer id {identity.producer_id}, not {producer.producer_id}: "
            "initialise the producer",
        )
    raise fenced(txn, producer)


def _check_step(txn: TransactionMetadata, group: TransactionGroup | None) -> None:
    if txn.is_member:
        check_step(txn.transactional_id, txn.group_epoch, group)


def _fresh(transactional_id: str, fresh_id: int) -> ProducerIdentity:
    if fresh_id < 0:
        raise NeedsProducerIdError(transactional_id)
    return ProducerIdentity(fresh_id, 0)


def _line_of(ask: Init, now_ms: int) -> FenceRecord:
    """The ledger's line for `ask`; `FenceRecord.of` adds the identities."""
    reason = FenceReason.RESUMED if ask.expected else FenceReason.NEW_INSTANCE
    if ask.note:
        reason = FenceReason.ADMIN
    return FenceRecord(reason, now_ms, ask.client, ask.note)
