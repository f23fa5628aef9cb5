"""PURE: Finds the committed offsets whose retention is over (KIP-211). Wall time in ms."""

from __future__ import annotations

from semel_broker.groups.group import Group
from semel_broker.groups.offsets.model import NO_EXPIRY, CommittedOffset, OffsetRecord


def expired_offsets(group: Group, now_ms: int, retention_ms: int) -> list[OffsetRecord]:
    """Tombstones for the offsets of `group` that `offsets.retention.minutes` no longer keeps.

    A group that has members keeps the offsets of the topics they read; an empty one keeps all for as long as it has
    been empty; one that never had members counts from each commit. An expiry time of the commit itself wins.
    """
    unused_since_ms, read = group.membership.unused_since_ms(), group.membership.topics_read()
    if unused_since_ms is None or read is None:
        return []

    def doomed(topic: str, _partition: int, committed: CommittedOffset) -> bool:
        if topic in read:
            return False
        if committed.expire_timestamp_ms != NO_EXPIRY:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - max(unused_since_ms, committed.commit_timestamp_ms) >= retention_ms

    return group.offsets.tombstones(doomed)
