"""The state of all producers of a log, and their transactions; recovery and appends update it."""

from collections.abc import Iterable, Sequence

from semel_protocol.batch import BatchHeader

from semel_storage.disk.disk import Buffer
from semel_storage.producers import producers
from semel_storage.producers.producers import ProducerState
from semel_storage.producers.skipped_offsets import SkippedOffsets
from semel_storage.producers.transactions import AbortedTransaction, Transactions


class ProducerTable:
    """The state as of one offset of the log; `note` advances it by one batch."""

    def __init__(self, states: Iterable[ProducerState] = (), decided: Sequence[tuple[int, int]] = ()) -> None:
        """`decided` as in `Transactions`."""
        self._states = {state.producer_id: state for state in states}
        self.transactions = Transactions(self._states.values(), decided)
        self.unreadable = SkippedOffsets()

    @property
    def decided(self) -> list[tuple[int, int]]:
        """As in `Transactions`."""
        return self.transactions.decided

    def get(self, producer_id: int) -> ProducerState | None:
        return self._states.get(producer_id)

    def all(self) -> list[ProducerState]:
        """By producer id."""
        return [self._states[producer_id] for producer_id in sorted(self._states)]

    def note(self, header: BatchHeader, base_offset: int, batch: Buffer, now_ms: int) -> AbortedTransaction | None:
        """Add a producer's batch at `base_offset`. Returns the transaction that it aborts, or None."""
        producer_id = header.producer_id
        before = self._states.get(producer_id)
        state = producers.apply(before, header, base_offset, batch, now_ms)
        self._states[producer_id] = state
        if header.is_control:
            is_abort = state.marker is not None and not state.marker.is_commit
            self.unreadable.marker(producer_id, base_offset, is_abort=is_abort)
        elif header.is_transactional:
            self.unreadable.data(producer_id, base_offset, header.last_offset_delta + 1)
        was_open = before.txn_first_offset if before is not None else producers.NO_OFFSET
        if was_open == state.txn_first_offset:
            return None
        if was_open < 0:
            self.transactions.began(state.txn_first_offset, producer_id)
            return None
        last_stable_offset = self.transactions.ended(was_open, base_offset)
        if state.marker is None or state.marker.is_commit:
            return None
        return AbortedTransaction(producer_id, was_open, base_offset, last_stable_offset)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers without an append for `expiration_ms` (producer.id.expiration.ms) or an open transaction."""
        for producer_id in producers.expired(self._states, now_ms, expiration_ms):
            del self._states[producer_id]
