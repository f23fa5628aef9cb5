"""PURE: the state of one producer in a log, and the check of its next batch against it.

Why it exists: a client that gets no answer sends its batch again, and the log must have it once. So the producer
numbers its records: each batch has the producer's id, its epoch and the sequence of its first record. The log keeps,
for each producer, the epoch and the places of its last five batches. A client has at most five requests under way, so a
batch that it sends again is always one of these.

A batch of the same epoch meets one of four cases:

    its first sequence follows the last one     append it
    it is one of the last five batches          a retry: answer with the offset that it has
    it is older than these                      DUPLICATE_SEQUENCE_NUMBER: stored, but its offset is no longer known
    there is a gap                              OUT_OF_ORDER_SEQUENCE_NUMBER: the batch before it is missing

A lower epoch is fenced. A higher epoch begins again with sequence 0, and the old batches are forgotten: that is how a
producer leaves a batch behind whose fate it does not know. A marker may raise the epoch, too: that of a fence, and with
transaction version 2 each one. So a late batch of an ended transaction is refused, although this log has no batch of
the new epoch yet.

The state is a function of the log: `check` decides, `apply` updates, and a replay after a start uses the same `apply`.
Snapshots only shorten the replay. The state outlives the records, because a retry may come after their deletion.
docs/exactly-once.md has this as order 1. Sources: KIP-98 (sequences), KIP-360 (the state outlives the records).
"""

from collections.abc import Mapping

import msgspec
from semel_protocol.batch import BatchHeader
from semel_protocol.control import ControlType, read_marker
from semel_protocol.errors import ErrorCode, KafkaError

from semel_storage.disk.disk import Buffer

WINDOW_BATCHES = 5
"""Batches per producer with recognised retries: the maximum number of requests in flight of a client."""
SEQUENCE_MASK = 0x7FFFFFFF
ACCEPTED_MAX = 1 << 30
"""Half of the sequence space: the maximum distance at which the order of two sequences is defined."""
NO_OFFSET = -1
NO_SEQUENCE = -1


class BatchPlace(msgspec.Struct, frozen=True, gc=False):
    """The place of one batch of a producer. `timestamp` is its largest."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MASK


class MarkerPlace(msgspec.Struct, frozen=True, gc=False):
    """The offset and the outcome of a transaction marker."""

    offset: int
    is_commit: bool


class ProducerState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The state of one producer in one log.

    `batches`: the last five of its current epoch, oldest first. `accepted`: the number of consecutive sequences of this
    epoch up to the last one that were certainly appended (at most `ACCEPTED_MAX`). `last_append_ms`: the broker's clock
    at its last batch. `txn_first_offset`: of its open transaction, otherwise -1. `marker`: its last batch, if that is a
    marker.
    """

    producer_id: int
    epoch: int
    batches: tuple[BatchPlace, ...] = ()
    accepted: int = 0
    last_timestamp: int = -1
    last_append_ms: int = -1
    coordinator_epoch: int = -1
    txn_first_offset: int = NO_OFFSET
    marker: MarkerPlace | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET


def check(state: ProducerState | None, header: BatchHeader) -> BatchPlace | None:
    """Check a producer's batch. None: append it. Otherwise it is a duplicate, and the result is its place in the log.

    Raises KafkaError: INVALID_PRODUCER_EPOCH for a fenced epoch; INVALID_TXN_STATE for a non-transactional batch during
    the producer's transaction; OUT_OF_ORDER_SEQUENCE_NUMBER for a gap; UNKNOWN_PRODUCER_ID for sequences of a
    transaction that has ended (docs/decisions/0009); DUPLICATE_SEQUENCE_NUMBER for a batch that was certainly appended
    but is older than the window. A producer without state may start at any sequence: its state may have expired.
    """
    if state is None:
        return None
    epoch = header.producer_epoch
    first = header.base_sequence
    if epoch == state.epoch:
        last = (first + header.last_offset_delta) & SEQUENCE_MASK
        for place in state.batches:
            if place.last_sequence == last and place.base_sequence == first:
                if header.is_transactional and _is_over(state, place):
                    raise _reused(state, header)
                return place
    elif epoch < state.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {state.producer_id} wrote with epoch {epoch}, this partition has seen epoch {state.epoch}; "
            "a newer instance has fenced this one; if there is none, call InitProducerId again",
        )
    if state.txn_first_offset >= 0 and not header.is_transactional:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {state.producer_id} has a transaction open here since offset {state.txn_first_offset}; "
            "end it before you send batches outside of a transaction",
        )
    expected = (state.batches[-1].last_sequence + 1) & SEQUENCE_MASK if epoch == state.epoch and state.batches else 0
    if first == expected:
        return None
    if epoch == state.epoch and _certainly_appended(state, header):
        if header.is_transactional and _is_over(state, state.batches[0]):
            raise _reused(state, header)
        raise KafkaError(
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
            f"producer {state.producer_id} epoch {epoch}: sequences {first}..{header.last_sequence} were appended "
            f"before the last {WINDOW_BATCHES} batches; their offsets are not known any more",
        )
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {state.producer_id} epoch {epoch}: sequence {first} came where {expected} was expected; "
        "an earlier batch is missing",
    )


def check_marker(
    state: ProducerState | None, producer_epoch: int, coordinator_epoch: int, is_commit: bool
) -> MarkerPlace | None:
    """Check a transaction marker. None: append it. Otherwise it is a retry, and the result is its place in the log.

    Raises KafkaError: INVALID_PRODUCER_EPOCH for a marker of a fenced epoch, TRANSACTION_COORDINATOR_FENCED for a
    marker of an older coordinator epoch. A marker is also appended without an open transaction (KIP-98).
    """
    if state is None:
        return None
    if producer_epoch < state.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"a marker for epoch {producer_epoch} of producer {state.producer_id}, this partition has seen epoch "
            f"{state.epoch}; a newer producer epoch has ended the transaction",
        )
    if coordinator_epoch < state.coordinator_epoch:
        raise KafkaError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"a marker for producer {state.producer_id} from coordinator epoch {coordinator_epoch}, this partition has "
            f"seen {state.coordinator_epoch}; another broker coordinates the transaction now",
        )
    is_known = producer_epoch == state.epoch and coordinator_epoch == state.coordinator_epoch
    if is_known and state.marker is not None and state.marker.is_commit == is_commit:
        return state.marker
    return None


def _is_over(state: ProducerState, place: BatchPlace) -> bool:
    """Whether the transaction of this batch has its marker."""
    return state.txn_first_offset < 0 or place.base_offset < state.txn_first_offset


def _reused(state: ProducerState, header: BatchHeader) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer {state.producer_id} epoch {state.epoch}: sequences {header.base_sequence}..{header.last_sequence} "
        "belong to a transaction that has ended; abort this one and call InitProducerId for a new epoch",
    )


def _certainly_appended(state: ProducerState, header: BatchHeader) -> bool:
    since_first = (state.last_sequence - header.base_sequence) & SEQUENCE_MASK
    since_last = (state.last_sequence - header.last_sequence) & SEQUENCE_MASK
    return since_last < since_first < state.accepted or since_last == since_first < state.accepted


def apply(
    state: ProducerState | None, header: BatchHeader, base_offset: int, batch: Buffer, now_ms: int
) -> ProducerState:
    """The producer's state after an append of the batch of `header` at `base_offset`.

    `batch` is read only if it is a control batch. `now_ms`: the broker's clock.
    """
    if header.is_control:
        return _apply_marker(state, header, base_offset, batch, now_ms)
    delta = header.last_offset_delta
    place = BatchPlace(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
    txn_first_offset = NO_OFFSET
    coordinator_epoch = -1
    batches: tuple[BatchPlace, ...] = (place,)
    accepted = delta + 1
    if state is not None:
        txn_first_offset = state.txn_first_offset
        coordinator_epoch = state.coordinator_epoch
        if state.epoch == header.producer_epoch:
            batches = (*state.batches[1 - WINDOW_BATCHES :], place)
            if (state.last_sequence + 1) & SEQUENCE_MASK == header.base_sequence:
                accepted = min(state.accepted + accepted, ACCEPTED_MAX)
    if header.is_transactional and txn_first_offset < 0:
        txn_first_offset = base_offset
    return ProducerState(
        producer_id=header.producer_id,
        epoch=header.producer_epoch,
        batches=batches,
        accepted=accepted,
        last_timestamp=header.max_timestamp,
        last_append_ms=now_ms,
        coordinator_epoch=coordinator_epoch,
        txn_first_offset=txn_first_offset,
    )


def _apply_marker(
    state: ProducerState | None, header: BatchHeader, offset: int, batch: Buffer, now_ms: int
) -> ProducerState:
    """A marker ends the transaction. With a bumped epoch, sequences restart at 0 (KIP-890).

    Compaction leaves an empty control batch of a marker: the transaction has ended, its outcome is unknown.
    """
    marker = read_marker(batch, header)
    same_epoch = state is not None and state.epoch == header.producer_epoch
    coordinator_epoch = state.coordinator_epoch if state is not None else -1
    return ProducerState(
        producer_id=header.producer_id,
        epoch=header.producer_epoch,
        batches=state.batches if state is not None and same_epoch else (),
        accepted=state.accepted if state is not None and same_epoch else 0,
        last_timestamp=header.max_timestamp,
        last_append_ms=now_ms,
        coordinator_epoch=marker.coordinator_epoch if marker is not None else coordinator_epoch,
        marker=MarkerPlace(offset, marker.control_type is ControlType.COMMIT) if marker is not None else None,
    )


def expired(states: Mapping[int, ProducerState], now_ms: int, expiration_ms: int) -> list[int]:
    """Ids without an append for `expiration_ms` by the broker's clock and without an open transaction, ascending.

    Kafka uses the timestamps of the batches; with these, a producer of old events would expire at once.
    """
    return [
        producer_id
        for producer_id in sorted(states)
        if states[producer_id].txn_first_offset < 0 and now_ms - states[producer_id].last_append_ms >= expiration_ms
    ]
