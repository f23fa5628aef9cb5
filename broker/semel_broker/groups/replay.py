"""From the records of `__consumer_offsets` back to groups. Pure; the same `apply` as live."""

from __future__ import annotations

from collections.abc import Iterable

from semel_protocol.records import Record
from semel_storage.internal_topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offsets_key,
    decode_versioned,
)

from semel_broker.groups.group import Group
from semel_broker.groups.offsets import GroupOffsets
from semel_broker.groups.records import offset_of, restore
from semel_broker.groups.requests import Moment

Key = OffsetCommitKey | GroupMetadataKey | None


class Replay:
    """Feed it the log in order, then take the groups. Of a group's own records only the last one counts."""

    def __init__(self) -> None:
        self._keys: dict[bytes, Key] = {}
        self._offsets: dict[str, GroupOffsets] = {}
        self._generations: dict[str, bytes | None] = {}

    def feed(self, records: Iterable[Record]) -> None:
        """Take in some records. Raises ProtocolError for one that is malformed; kinds of later releases are skipped."""
        keys = self._keys
        for record in records:
            if record.key is None:
                continue
            try:
                key = keys[record.key]  # the same few keys come again and again
            except KeyError:
                key = keys[record.key] = decode_offsets_key(record.key)
            if isinstance(key, OffsetCommitKey):
                value = None if record.value is None else decode_versioned(OffsetCommitValue, record.value)
                offsets = self._offsets.get(key.group)
                if offsets is None:
                    offsets = self._offsets[key.group] = GroupOffsets()
                offsets.apply(offset_of(key, value))
            elif isinstance(key, GroupMetadataKey):
                self._generations[key.group] = record.value

    def groups(self, now: Moment) -> dict[str, Group]:
        """What there is now: groups with a generation or with offsets. Raises ProtocolError for a malformed one."""
        groups = {
            group_id: Group(group_id=group_id, offsets=offsets)
            for group_id, offsets in self._offsets.items()
            if offsets
        }
        for group_id, value in self._generations.items():
            if value is not None:
                group = groups.setdefault(group_id, Group(group_id=group_id))
                restore(group, decode_versioned(GroupMetadataValue, value), now)
        return groups
