"""PURE: producers that a log does not know and whose batch was turned away for now: that one has to come first.

A log takes the first batch of a producer that it does not know whatever its sequence is, since it may have forgotten
the producer (KIP-360). Clients have several batches on their way. If the first is refused, because this broker leads
the partition only from the next moment on, or because too few are in sync, the second would be stored before it.
"""

from __future__ import annotations

from typing import Final

import msgspec
from semel_protocol.batch import BatchHeader
from semel_protocol.errors import ErrorCode, KafkaError

Place = tuple[str, int]
"""(topic, partition index)."""

PRODUCERS_MAX: Final = 1_000
"""The longest known are forgotten first: what is on its way behind a batch that was turned away comes soon."""
SEQUENCE_MASK: Final = 0x7FFFFFFF
LATER_MAX: Final = 1 << 30
"""Half of the sequence space: below this distance, earlier and later can be told apart across the wrap."""


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The first batch that was turned away."""

    producer_epoch: int
    base_sequence: int


class TurnedAway:
    """Of all partitions of a broker, whether it has them or not."""

    def __init__(self) -> None:
        self._refused: dict[tuple[Place, int], Refused] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def note(self, place: Place, header: BatchHeader) -> None:
        """This batch is refused with an error upon which its producer will send it again as it is."""
        key = place, header.producer_id
        known = self._refused.get(key)
        if known is not None and (
            header.producer_epoch < known.producer_epoch
            or (header.producer_epoch == known.producer_epoch and _is_later(header, known))
        ):
            return
        self._refused.pop(key, None)
        self._refused[key] = Refused(header.producer_epoch, header.base_sequence)
        if len(self._refused) > PRODUCERS_MAX:
            del self._refused[next(iter(self._refused))]

    def check(self, place: Place, header: BatchHeader) -> None:
        """Whether this batch of a producer that the log does not know may be its first.

        Raises OUT_OF_ORDER_SEQUENCE_NUMBER, as for any gap, if an earlier one was turned away.
        """
        known = self._refused.get((place, header.producer_id))
        if known is None:
            return
        if header.producer_epoch == known.producer_epoch and _is_later(header, known):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} epoch {header.producer_epoch}: sequence {header.base_sequence} came "
                f"behind {known.base_sequence}, which was refused; that one has to be sent again first",
            )
        del self._refused[place, header.producer_id]


def _is_later(header: BatchHeader, known: Refused) -> bool:
    return 0 < (header.base_sequence - known.base_sequence) & SEQUENCE_MASK < LATER_MAX
