"""From the records of `__consumer_offsets` back to groups. Pure; the same `apply` as live."""

from __future__ import annotations

from collections.abc import Sequence

from semel_storage.internal_topics import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offsets_key,
    decode_versioned,
)

from semel_broker.groups.group import Group
from semel_broker.groups.records import offset_of, restore
from semel_broker.groups.requests import Moment


class Replay:
    """Feed it the log in order, then take the groups. Of each key only the last value counts, so that is all it
    looks at: a long log of few keys costs little more than reading it."""

    def __init__(self) -> None:
        self._latest: dict[bytes | None, bytes | None] = {}

    def feed(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> None:
        """Take in the records of one batch, in their order."""
        self._latest.update(zip(keys, values, strict=True))

    def groups(self, now: Moment) -> dict[str, Group]:
        """What there is now: groups with a generation or with offsets, kinds of record of later releases left out.

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
                group = groups[key.group] = Group(group_id=key.group)
            if isinstance(key, OffsetCommitKey):
                group.offsets.apply(offset_of(key, decode_versioned(OffsetCommitValue, raw_value)))
            else:
                assert isinstance(key, GroupMetadataKey)
                restore(group, decode_versioned(GroupMetadataValue, raw_value), now)
        return groups
