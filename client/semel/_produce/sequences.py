"""PURE. A producer's id and epoch, and the sequence numbers of its batches in each partition (KIP-98, KIP-360).

A partition numbers its batches under one (producer id, epoch). The numbering cannot continue when the broker has lost
it or when a batch was given up. Then the producer's epoch is bumped and the partition starts at sequence 0, but only
while none of its batches is in flight. The new epoch fences late copies of earlier batches. Other partitions keep their
epoch until they are idle.

A leader that does not know a producer accepts a batch with any sequence (KIP-360: it may have expired the producer). Of
several batches in flight it could refuse the first (NOT_LEADER_OR_FOLLOWER) and store the second. Once a batch is
acknowledged, the partition knows the producer and refuses batches out of sequence.
"""

import msgspec

from semel.errors import KafkaError, KafkaProtocolError

NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE = -1, -1, -1
EPOCH_MAX = 0x7FFF
SEQUENCE_COUNT = 1 << 31
"""The number of sequences: 0 follows 2^31 - 1."""


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """Producer id, epoch and base sequence of a batch: the broker recognises duplicates by them."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


UNSTAMPED = Stamp(NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)
"""The stamp of every batch of a producer without idempotence."""


class Sequences(msgspec.Struct):
    """The sequence state of one partition. is_known: the partition has acknowledged a batch of this producer id."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    next_sequence: int = 0
    is_known: bool = False

    @property
    def go_alone(self) -> bool:
        """Whether a batch must be acknowledged before the next one may be sent."""
        return self.producer_id != NO_PRODUCER_ID and not self.is_known


class TransactionManager:
    """The producer id and epoch; gives batches their stamps. id_error: why there is no producer id, after a try."""

    __slots__ = ("id_error", "producer_epoch", "producer_id")

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_EPOCH
        self.id_error: KafkaError | None = None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def set_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        """Set the answer of InitProducerId. Raises KafkaProtocolError for negative numbers."""
        if producer_id < 0 or producer_epoch < 0:
            raise KafkaProtocolError(f"a broker answered with producer id {producer_id} and epoch {producer_epoch}")
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.id_error = None

    def id_refused(self, error: KafkaError) -> None:
        """A request for a producer id has failed, and is repeated."""
        self.id_error = error

    def stamp(self, sequences: Sequences, record_count: int, *, idle: bool) -> Stamp:
        """The next stamp of a partition. idle: none of its batches is in flight or waits for a retry."""
        assert self.has_producer_id
        if idle and self._is_behind(sequences):
            self._restart(sequences)
        assert sequences.producer_id != NO_PRODUCER_ID, "a partition's first batch finds it idle"
        stamp = Stamp(sequences.producer_id, sequences.producer_epoch, sequences.next_sequence)
        sequences.next_sequence = (sequences.next_sequence + record_count) % SEQUENCE_COUNT
        return stamp

    def rewind(self, sequences: Sequences) -> bool:
        """Start an idle partition at sequence 0 of an epoch that it has not used. Bumps the producer's epoch if
        needed.

        False when the epoch is exhausted: the producer id is dropped, and a new one must be requested first.
        """
        if not self.has_producer_id:
            return False
        if not self._is_behind(sequences):
            if self.producer_epoch == EPOCH_MAX:
                self.producer_id, self.producer_epoch = NO_PRODUCER_ID, NO_EPOCH
                return False
            self.producer_epoch += 1
        self._restart(sequences)
        sequences.is_known = False  # the partition may have lost the producer, which is one reason for a rewind
        return True

    def forget(self, producer_id: int) -> None:
        """The broker does not accept this producer id from this client: a new one must be requested."""
        if self.producer_id == producer_id:
            self.producer_id, self.producer_epoch = NO_PRODUCER_ID, NO_EPOCH

    def _is_behind(self, sequences: Sequences) -> bool:
        return (sequences.producer_id, sequences.producer_epoch) != (self.producer_id, self.producer_epoch)

    def _restart(self, sequences: Sequences) -> None:
        sequences.is_known = sequences.is_known and sequences.producer_id == self.producer_id
        sequences.producer_id, sequences.producer_epoch = self.producer_id, self.producer_epoch
        sequences.next_sequence = 0
