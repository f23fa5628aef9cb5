"""PURE: remembers refused batches of producers that a log does not know: no later batch may be stored before them.

A log accepts the first batch of an unknown producer at any sequence, since the log may have forgotten the producer
(KIP-360). Clients send several batches before the first is answered. If the first is refused (NOT_LEADER_OR_FOLLOWER
just before this broker leads the partition, or NOT_ENOUGH_REPLICAS), the log would store the second before it.
"""

from __future__ import annotations

from typing import Final

import msgspec
from semel_protocol.batch import BatchHeader
from semel_protocol.errors import ErrorCode, KafkaError

Place = tuple[str, int]
"""(topic, partition index)."""

PRODUCERS_MAX: Final = 1_000
"""The oldest entries are removed first: batches sent behind a refused one arrive soon."""
SEQUENCE_MASK: Final = 0x7FFFFFFF
LATER_MAX: Final = 1 << 30
"""Half of the sequence space: below this distance, earlier and later can be told apart across the wrap."""


class RefusedBatch(msgspec.Struct, frozen=True, gc=False):
    """The earliest refused batch of a producer in a partition."""

    producer_epoch: int
    base_sequence: int


class RefusedBatches:
    """One per broker, for all partitions, also for those without a replica here."""

    def __init__(self) -> None:
        self._refused: dict[tuple[Place, int], RefusedBatch] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def note(self, place: Place, header: BatchHeader) -> None:
        """Remember a batch that is refused with a retriable error: its producer sends it again unchanged."""
        key = place, header.producer_id
        known = self._refused.get(key)
        if known is not None and (
            header.producer_epoch < known.producer_epoch
            or (header.producer_epoch == known.producer_epoch and _is_later(header, known))
        ):
            return
        self._refused.pop(key, None)
        self._refused[key] = RefusedBatch(header.producer_epoch, header.base_sequence)
        if len(self._refused) > PRODUCERS_MAX:
            del self._refused[next(iter(self._refused))]

    def check(self, place: Place, header: BatchHeader) -> None:
        """Check that this batch may be the first that the log stores of its producer.

        Raises OUT_OF_ORDER_SEQUENCE_NUMBER, as for any gap, if an earlier batch was refused.
        """
        known = self._refused.get((place, header.producer_id))
        if known is None:
            return
        if header.producer_epoch == known.producer_epoch and _is_later(header, known):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} epoch {header.producer_epoch}: sequence {header.base_sequence} arrived "
                f"before {known.base_sequence}, which was refused; send that batch again first",
            )
        del self._refused[place, header.producer_id]


def _is_later(header: BatchHeader, known: RefusedBatch) -> bool:
    return 0 < (header.base_sequence - known.base_sequence) & SEQUENCE_MASK < LATER_MAX
