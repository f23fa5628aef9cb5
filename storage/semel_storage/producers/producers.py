"""PURE: what a log knows of each producer, and what that says of its next batch.

`check` decides, `apply` records; replay after a start uses the same `apply`. Sources: KIP-98 (sequences), KIP-360
(state outlives the producer's data), section 5.2 of the wire contract for the order of the checks.
"""

from collections.abc import Mapping

import msgspec
from semel_protocol.batch import BatchHeader
from semel_protocol.control import ControlType, read_marker
from semel_protocol.errors import ErrorCode, KafkaError

from semel_storage.disk.disk import Buffer

WINDOW_BATCHES = 5
"""Batches per producer whose retries are recognised: as many as a client may have in flight."""
SEQUENCE_MASK = 0x7FFFFFFF
ACCEPTED_MAX = 1 << 30
"""Half of the sequence space: below this distance, earlier and later can be told apart across the wrap."""
NO_OFFSET = -1
NO_SEQUENCE = -1


class BatchPlace(msgspec.Struct, frozen=True, gc=False):
    """Where one batch of a producer ended. `timestamp` is its largest."""

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
    """Where a producer's transaction ended, and how."""

    offset: int
    is_commit: bool


class ProducerState(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One producer in one log.

    `batches`: the last five of its current epoch, oldest first. `accepted`: how many consecutive sequences of this
    epoch, ending with the last one, are known to have been appended (at most `ACCEPTED_MAX`). `last_append_ms`: the
    broker's clock at its last batch. `txn_first_offset`: of its open transaction, else -1. `marker`: if that was the
    last that came from it.
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
    """What to do with a producer's batch: append it (None), or answer with the place where it stands already.

    Raises KafkaError: INVALID_PRODUCER_EPOCH (47) for an epoch that a newer one has fenced; INVALID_TXN_STATE (48) for
    a plain batch amid the producer's own transaction; OUT_OF_ORDER_SEQUENCE_NUMBER (45) for a gap;
    UNKNOWN_PRODUCER_ID (59) for sequences that stand in a transaction which is over (docs/decisions/0009);
    DUPLICATE_SEQUENCE_NUMBER (46) for one that was certainly appended but has left the window. A producer without
    state may start anywhere: its state may have expired.
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
            "a newer instance has taken over, or call InitProducerId again",
        )
    if state.txn_first_offset >= 0 and not header.is_transactional:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {state.producer_id} has a transaction open here since offset {state.txn_first_offset}; "
            "end it before sending batches outside of a transaction",
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
            f"before the last {WINDOW_BATCHES} batches; their offsets are no longer known",
        )
    raise KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {state.producer_id} epoch {epoch}: sequence {first} came where {expected} was expected; "
        "an earlier batch is missing",
    )


def check_marker(
    state: ProducerState | None, producer_epoch: int, coordinator_epoch: int, is_commit: bool
) -> MarkerPlace | None:
    """What to do with a transaction's marker: append it (None), or answer a retry with the place where it stands.

    Raises KafkaError: INVALID_PRODUCER_EPOCH (47) for the marker of an epoch that a newer one has fenced,
    TRANSACTION_COORDINATOR_FENCED (52) for that of a coordinator whose successor has written here. A producer without
    an open transaction gets its marker all the same (KIP-98).
    """
    if state is None:
        return None
    if producer_epoch < state.epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"a marker for epoch {producer_epoch} of producer {state.producer_id}, this partition has seen epoch "
            f"{state.epoch}; the transaction has been ended by a newer one",
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
    """Whether the transaction that a batch of this producer stands in has ended, marker and all."""
    return state.txn_first_offset < 0 or place.base_offset < state.txn_first_offset


def _reused(state: ProducerState, header: BatchHeader) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_PRODUCER_ID,
        f"producer {state.producer_id} epoch {state.epoch}: sequences {header.base_sequence}..{header.last_sequence} "
        "stand in a transaction that is over; abort this one and call InitProducerId for a new epoch",
    )


def _certainly_appended(state: ProducerState, header: BatchHeader) -> bool:
    since_first = (state.last_sequence - header.base_sequence) & SEQUENCE_MASK
    since_last = (state.last_sequence - header.last_sequence) & SEQUENCE_MASK
    return since_last < since_first < state.accepted or since_last == since_first < state.accepted


def apply(
    state: ProducerState | None, header: BatchHeader, base_offset: int, batch: Buffer, now_ms: int
) -> ProducerState:
    """The producer's state after `header`'s batch was appended at `base_offset`.

    `batch` is looked into for control batches only. `now_ms`: the broker's clock.
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
    """A marker ends the transaction; with a bumped epoch it also starts that epoch's sequences anew (KIP-890).

    An empty control batch is what compaction has left of one: the transaction is over, nobody knows how.
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
    """Ids that appended nothing for `expiration_ms` by the broker's clock and have no transaction open, ascending.

    Kafka compares the batch's own timestamp, by which a producer of old events would be forgotten at once.
    """
    return [
        producer_id
        for producer_id in sorted(states)
        if states[producer_id].txn_first_offset < 0 and now_ms - states[producer_id].last_append_ms >= expiration_ms
    ]
