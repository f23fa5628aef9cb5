"""Markers written into partitions that this broker leads: the near end of the marker channel."""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Callable, Sequence

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.internal_topics import CONSUMER_OFFSETS

from semel_broker.partitions.partition import Partition
from semel_broker.topics.topics import Topics
from semel_broker.txn.markers.channel import Entry
from semel_broker.txn.markers.guards import Guards

OffsetsEnded = Callable[[int, int, int, bool], None]
"""(partition of `__consumer_offsets`, producer id, epoch, commit): its pending offsets take effect, or are dropped."""


class Written(msgspec.Struct):
    """A marker in the log of `partition`; or why it is not there. `committing`: what it waits for, None: nothing."""

    partition: Partition | None
    committing: Future[None] | None = None
    code: ErrorCode = ErrorCode.NONE


class LocalDestination:
    """This broker. Markers of one turn share a sync; a retry of a marker that is there already is no harm.

    Every marker that is written here passes here, so it breaks the `guards` of its producer, too."""

    is_here = True

    def __init__(self, topics: Topics, offsets_ended: OffsetsEnded) -> None:
        self._topics = topics
        self._offsets_ended = offsets_ended
        self.guards = Guards()

    def write(self, entries: Sequence[Entry]) -> list[ErrorCode] | Future[list[ErrorCode]]:
        """A code for each marker: 0, 3 (no such partition), 47 and 52 (fenced), or what the log has against it."""
        written = [self._append(entry) for entry in entries]
        uncommitted = next((each.partition for each in written if each.committing is not None), None)
        if uncommitted is None:
            return [self._ended(entry, each) for entry, each in zip(entries, written, strict=True)]
        uncommitted.hurry()
        return get_running_loop().create_task(self._when_committed(entries, written))

    def _append(self, entry: Entry) -> Written:
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
            return Written(None, code=error.code)
        return Written(partition, partition.committing(result.last_offset + 1))

    async def _when_committed(self, entries: Sequence[Entry], written: list[Written]) -> list[ErrorCode]:
        codes = []
        for entry, each in zip(entries, written, strict=True):  # one after the other: their syncs run at once
            try:
                if each.committing is not None:
                    await each.committing
            except KafkaError as error:
                each.code = error.code
            codes.append(self._ended(entry, each))
        return codes

    def _ended(self, entry: Entry, written: Written) -> ErrorCode:
        """The marker is durable: offsets that were part of the transaction learn of it, too."""
        marker, (topic, index) = entry
        if topic == CONSUMER_OFFSETS and not written.code:
            self._offsets_ended(index, marker.producer.producer_id, marker.producer.epoch, marker.commit)
        return written.code
