"""PURE: the producer's identity and the sequences of its batches, partition by partition (KIP-98, KIP-360).

A partition counts its batches under one (producer id, epoch). When its count cannot be continued (the broker lost it,
or a batch was given up for good) the producer's epoch is bumped and the partition starts at 0 again, which it may do
only while none of its batches is in flight. The old epoch fences late copies of what was sent under it. Partitions
that are in order keep the epoch they have until they are idle.

A leader that does not know a producer takes its batch whatever the sequence (KIP-360: it may have forgotten it). So of
several batches that are on their way to it, it could refuse the first ("not the leader yet") and store the second. Only
once a batch was acknowledged does the partition know the producer, and refuses what comes before its turn.
"""

import msgspec

from semel.errors import KafkaProtocolError

NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE = -1, -1, -1
EPOCH_MAX = 0x7FFF
SEQUENCE_COUNT = 1 << 31
"""After sequence 2^31 - 1 comes 0."""


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """What makes a batch recognisable to the broker."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


UNSTAMPED = Stamp(NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE)
"""What every batch of a producer without idempotence carries."""


class Sequences(msgspec.Struct):
    """Where one partition's count stands. `is_known`: it has acknowledged a batch of this producer id."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    next_sequence: int = 0
    is_known: bool = False

    @property
    def go_alone(self) -> bool:
        """Whether a batch has to be acknowledged before the next one may be sent."""
        return self.producer_id != NO_PRODUCER_ID and not self.is_known


class TransactionManager:
    """Producer id and epoch, and the stamps of batches."""

    __slots__ = ("producer_epoch", "producer_id")

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_EPOCH

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    def set_producer_id(self, producer_id: int, producer_epoch: int) -> None:
        """The answer to InitProducerId. Raises KafkaProtocolError for numbers that no producer can have."""
        if producer_id < 0 or producer_epoch < 0:
            raise KafkaProtocolError(f"a broker answered with producer id {producer_id} and epoch {producer_epoch}")
        self.producer_id, self.producer_epoch = producer_id, producer_epoch

    def stamp(self, sequences: Sequences, record_count: int, *, idle: bool) -> Stamp:
        """The next stamp of a partition. `idle`: none of its batches is in flight or waits to be sent again."""
        assert self.has_producer_id
        if idle and self._is_behind(sequences):
            self._restart(sequences)
        assert sequences.producer_id != NO_PRODUCER_ID, "a partition's first batch finds it idle"
        stamp = Stamp(sequences.producer_id, sequences.producer_epoch, sequences.next_sequence)
        sequences.next_sequence = (sequences.next_sequence + record_count) % SEQUENCE_COUNT
        return stamp

    def rewind(self, sequences: Sequences) -> bool:
        """Starts an idle partition at sequence 0 of an epoch it has not used, bumping the producer's if need be.

        False when the epoch is exhausted: the producer id is dropped, and a new one must be asked for first.
        """
        if not self.has_producer_id:
            return False
        if not self._is_behind(sequences):
            if self.producer_epoch == EPOCH_MAX:
                self.producer_id, self.producer_epoch = NO_PRODUCER_ID, NO_EPOCH
                return False
            self.producer_epoch += 1
        self._restart(sequences)
        sequences.is_known = False  # it may have been forgotten, which is one reason to be here
        return True

    def _is_behind(self, sequences: Sequences) -> bool:
        return (sequences.producer_id, sequences.producer_epoch) != (self.producer_id, self.producer_epoch)

    def _restart(self, sequences: Sequences) -> None:
        sequences.is_known = sequences.is_known and sequences.producer_id == self.producer_id
        sequences.producer_id, sequences.producer_epoch = self.producer_id, self.producer_epoch
        sequences.next_sequence = 0
