"""PURE: Committed offsets as records of `__consumer_offsets`, and back.

Byte for byte Kafka's: key version 1. The value has version 4, which can say which topic of that name it is for; one
whose committer asked for an expiry of its own has version 1, which has a field for that and none for the topic's id.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel_storage.internal_topics import (
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
    OffsetCommitKey,
    OffsetCommitValue,
    Row,
    encode_versioned,
)

from semel_broker.groups.offsets.model import NO_EXPIRY, CommittedOffset, OffsetRecord

OFFSET_COMMIT_VALUE_WITH_EXPIRY = 1


def offset_rows(group_id: str, records: Sequence[OffsetRecord]) -> list[Row]:
    """The records that store these commits, and tombstones for deleted offsets."""
    return [
        (
            encode_versioned(
                OffsetCommitKey(group=group_id, topic=record.topic, partition=record.partition), OFFSET_COMMIT_KEY
            ),
            None if record.committed is None else _offset_value(record.committed),
        )
        for record in records
    ]


def _offset_value(committed: CommittedOffset) -> bytes:
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    asks = committed.expire_timestamp_ms != NO_EXPIRY
    return encode_versioned(value, OFFSET_COMMIT_VALUE_WITH_EXPIRY if asks else OFFSET_COMMIT_VALUE)


def offset_of(key: OffsetCommitKey, value: OffsetCommitValue | None) -> OffsetRecord:
    """The commit that an offset's record stores."""
    if value is None:
        return OffsetRecord(key.topic, key.partition, None)
    committed = CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )
    return OffsetRecord(key.topic, key.partition, committed)
