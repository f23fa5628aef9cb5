"""Markers that this broker writes into the partitions it leads, and the guards that notice them (KIP-890).

A broker takes a guard before it asks another one, the coordinator, whether a producer may append. If a marker of the
producer arrives before the append, or the partition begins another leader epoch, the answer may be about a transaction
that is over, so the broker does not append. A marker that was there already (a retry, or that of a transaction which
has written nothing here) breaks a guard, too.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Callable, Sequence

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.internal_topics import CONSUMER_OFFSETS

from semel_broker.partitions.partition import Partition
from semel_broker.scheduling.turns import OPENING_STEPS, Turns
from semel_broker.topics.topics import Topics
from semel_broker.txn.markers.channel import Entry

OffsetsEnded = Callable[[int, int, int, bool], None]
"""(partition of `__consumer_offsets`, producer id, epoch, commit): its pending offsets take effect, or are dropped."""

AT_ONCE_MAX = 8
"""Markers of one call that are written at once; more are written in slices. A marker may have to open its partition's
log, which costs syncs of directories."""

Key = tuple[str, int, int]
"""(topic, partition, producer id)."""


class Guard:
    """Notices the end of one producer's transaction in one partition, until `Guards.release`."""

    __slots__ = ("_epoch", "_partition", "is_broken", "key")

    def __init__(self, partition: Partition, producer_id: int) -> None:
        self.key: Key = (partition.topic, partition.index, producer_id)
        self.is_broken = False
        self._partition = partition
        self._epoch = partition.leader_epoch

    def check(self) -> None:
        """Call it without an await before the append. Raises NOT_ENOUGH_REPLICAS: the producer tries again."""
        if self.is_broken or self._partition.leader_epoch != self._epoch:
            topic, index, producer_id = self.key
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{topic}-{index}: a transaction of producer id {producer_id} ended while it was looked up: try again",
            )


class Guards:
    """The guards of all partitions of this broker."""

    def __init__(self) -> None:
        self._guards: dict[Key, list[Guard]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._guards.values()))

    def __bool__(self) -> bool:
        return bool(self._guards)

    def take(self, partition: Partition, producer_id: int) -> Guard:
        """A new guard."""
        guard = Guard(partition, producer_id)
        self._guards.setdefault(guard.key, []).append(guard)
        return guard

    def release(self, guard: Guard) -> None:
        """Remove the guard."""
        guards = self._guards[guard.key]
        guards.remove(guard)
        if not guards:
            del self._guards[guard.key]

    def marker(self, topic: str, index: int, producer_id: int) -> None:
        """Break the guards of this producer in this partition."""
        for guard in self._guards.get((topic, index, producer_id), ()):
            guard.is_broken = True


class WrittenMarker(msgspec.Struct):
    """A marker in the log of `partition`, or `code` says why it is not there. `committing`: done once the marker is
    durable; None: it is."""

    partition: Partition | None
    committing: Future[None] | None = None
    code: ErrorCode = ErrorCode.NONE


class LocalDestination:
    """This broker. Markers of one call share a sync; a retry of a marker that is there already does no harm. Every
    marker breaks the `guards` of its producer. `turns`: of the slices in which many markers are written."""

    is_here = True

    def __init__(self, topics: Topics, offsets_ended: OffsetsEnded, turns: Turns) -> None:
        self._topics = topics
        self._offsets_ended = offsets_ended
        self._turns = turns
        self.guards = Guards()

    def write(self, entries: Sequence[Entry]) -> list[ErrorCode] | Future[list[ErrorCode]]:
        """A code for each marker: NONE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_PRODUCER_EPOCH and
        TRANSACTION_COORDINATOR_FENCED (fenced), or the error of the append."""
        if len(entries) > AT_ONCE_MAX:
            return get_running_loop().create_task(self._write_in_slices(entries))
        written = [self._append(entry) for entry in entries]
        if not _hurry(written):
            return [self._ended(entry, each) for entry, each in zip(entries, written, strict=True)]
        return get_running_loop().create_task(self._when_committed(entries, written))

    async def _write_in_slices(self, entries: Sequence[Entry]) -> list[ErrorCode]:
        written = []
        slices = self._turns.slices()
        for entry in entries:
            written.append(self._append(entry))
            if slices.is_over(OPENING_STEPS):
                await slices.next()
        _hurry(written)
        return await self._when_committed(entries, written)

    def _append(self, entry: Entry) -> WrittenMarker:
        marker, (topic, index) = entry
        producer = marker.producer
        if self.guards:
            self.guards.marker(topic, index, producer.producer_id)
        try:
            partition = self._topics.partition(topic, index)
            result = partition.append_marker(
                producer.producer_id,
                producer.epoch,
                commit=marker.commit,
                coordinator_epoch=marker.coordinator_epoch,
            )
        except KafkaError as error:
            return WrittenMarker(None, code=error.code)
        return WrittenMarker(partition, partition.committing(result.last_offset + 1))

    async def _when_committed(self, entries: Sequence[Entry], written: list[WrittenMarker]) -> list[ErrorCode]:
        codes = []
        for entry, each in zip(entries, written, strict=True):  # their syncs run at the same time
            try:
                if each.committing is not None:
                    await each.committing
            except KafkaError as error:
                each.code = error.code
            codes.append(self._ended(entry, each))
        return codes

    def _ended(self, entry: Entry, written: WrittenMarker) -> ErrorCode:
        """The marker is durable: tell the group coordinator, whose offsets may be part of the transaction."""
        marker, (topic, index) = entry
        if topic == CONSUMER_OFFSETS and not written.code:
            self._offsets_ended(index, marker.producer.producer_id, marker.producer.epoch, marker.commit)
        return written.code


def _hurry(written: Sequence[WrittenMarker]) -> bool:
    """Begin the sync of the markers that are not durable, if there are any; whether there are."""
    for each in written:
        if each.partition is not None and each.committing is not None:
            each.partition.hurry()
            return True
    return False
