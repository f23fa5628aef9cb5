"""Every producer that a log knows of, and their transactions: replayed at a start, kept up to date by each append."""

from collections.abc import Iterable, Sequence

from semel_protocol.batch import BatchHeader

from semel_storage.disk.disk import Buffer
from semel_storage.producers import producers
from semel_storage.producers.producers import ProducerState
from semel_storage.producers.transactions import AbortedTransaction, Transactions


class ProducerTable:
    """The state as of one offset of the log, which moves with every batch that is noted."""

    def __init__(self, states: Iterable[ProducerState] = (), decided: Sequence[tuple[int, int]] = ()) -> None:
        """`decided` as in `Transactions`."""
        self._states = {state.producer_id: state for state in states}
        self.transactions = Transactions(self._states.values(), decided)

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
        """Account for a producer's batch at `base_offset`. Returns the transaction that it aborted, if it did."""
        producer_id = header.producer_id
        before = self._states.get(producer_id)
        state = producers.apply(before, header, base_offset, batch, now_ms)
        self._states[producer_id] = state
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
        """Forget producers that have appended nothing for `expiration_ms` and have no transaction open."""
        for producer_id in producers.expired(self._states, now_ms, expiration_ms):
            del self._states[producer_id]
