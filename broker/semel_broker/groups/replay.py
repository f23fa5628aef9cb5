"""PURE: Reads the records of `__consumer_offsets` back into groups, with the same `apply` as live."""

from __future__ import annotations

from semel_protocol.batch import BatchHeader, Bytes, iterate
from semel_protocol.control import ControlType, read_marker
from semel_protocol.records import decode_columns
from semel_storage.internal_topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offsets_key,
    decode_versioned,
)

from semel_broker.groups.classic.group import ClassicMembership
from semel_broker.groups.classic.records import restore
from semel_broker.groups.consumer.model import ConsumerGroup
from semel_broker.groups.consumer.records import change_of
from semel_broker.groups.group import Group
from semel_broker.groups.offsets.model import CommittedOffset
from semel_broker.groups.offsets.pending import PendingOffsets
from semel_broker.groups.offsets.records import offset_of
from semel_broker.groups.requests import TimePoint

RawKey = bytes | None
RawValue = bytes | None


class GroupReplay:
    """Feed it the log in order, then take the groups. It decodes only the last value of each key, so a long log of few
    keys costs little more than reading it."""

    def __init__(self) -> None:
        self._latest: dict[RawKey, RawValue] = {}
        self._pending: PendingOffsets[RawKey, RawValue] = PendingOffsets()

    def take(self, index: int, data: Bytes) -> int:
        """Take in whole batches of partition `index`; the offset behind them. Raises CorruptBatch."""
        offset = -1
        for header, batch in iterate(data):
            offset = header.next_offset
            self.feed(index, header, batch)
        return offset

    def feed(self, index: int, header: BatchHeader, batch: Bytes) -> None:
        """Take in the next batch of partition `index`. Raises CorruptBatch."""
        writer = (index, header.producer_id)
        if header.is_control:
            marker = read_marker(batch, header) if header.record_count else None  # compaction may have emptied it
            is_commit = marker is not None and marker.control_type is ControlType.COMMIT
            self._latest.update(self._pending.end(writer, is_commit))
            return
        columns = decode_columns(batch, header)
        if header.is_transactional:
            for key, value, offset in zip(columns.keys, columns.values, columns.offsets, strict=True):
                self._pending.hold(writer, key, offset, value)
            return
        self._latest.update(zip(columns.keys, columns.values, strict=True))
        if self._pending:
            for key, offset in zip(columns.keys, columns.offsets, strict=True):
                self._pending.supersede(key, offset)

    def groups(self, now: TimePoint, grace_ms: int = 0) -> dict[str, Group]:
        """The present groups with a generation or with offsets, without kinds of record of later releases.

        `grace_ms`: as in `restore`.
        Raises ProtocolError for a record that is malformed.
        """
        groups: dict[str, Group] = {}
        for raw_key, raw_value in self._latest.items():
            if raw_key is None or raw_value is None:
                continue
            key = decode_offsets_key(raw_key)
            if key is None:
                continue
            group = groups.get(key.group)
            if group is None:
                group = groups[key.group] = Group(key.group)
            if isinstance(key, OffsetCommitKey):
                group.offsets.apply(offset_of(key, decode_versioned(OffsetCommitValue, raw_value)))
            elif isinstance(key, GroupMetadataKey):
                if (classic := group.of(ClassicMembership)) is not None:
                    restore(classic, decode_versioned(GroupMetadataValue, raw_value), now, grace_ms)
            else:
                if (consumer := group.of(ConsumerGroup)) is None:
                    consumer = group.membership = ConsumerGroup(key.group)
                consumer.apply(change_of(key, raw_value))
        return groups

    def pending(self) -> PendingOffsets[tuple[str, str, int], CommittedOffset]:
        """The offsets of transactions that have no marker yet, by (group, topic, partition).

        Raises ProtocolError for a record that is malformed.
        """
        pending: PendingOffsets[tuple[str, str, int], CommittedOffset] = PendingOffsets(lambda key: key[0])
        for raw_key, writer, position, raw_value in self._pending:
            key = decode_offsets_key(raw_key) if raw_key is not None else None
            if not isinstance(key, OffsetCommitKey) or raw_value is None:
                continue
            committed = offset_of(key, decode_versioned(OffsetCommitValue, raw_value)).committed
            assert committed is not None
            pending.hold(writer, (key.group, key.topic, key.partition), position, committed)
        return pending
