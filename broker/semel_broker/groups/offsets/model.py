"""PURE: The committed offsets of one group by topic and partition. Only durable records change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from semel_protocol.schema import ZERO_UUID

NO_EXPIRY = -1


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """The next offset to read. `leader_epoch` -1: unknown. Times in ms since 1970; `expire_timestamp_ms` -1: by the
    broker's own retention (only OffsetCommit v2-4 may ask for another). `topic_id`: which of the topics that have had
    the name it was committed for; all zeros: unknown."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = NO_EXPIRY
    topic_id: bytes = ZERO_UUID


class OffsetRecord(msgspec.Struct, frozen=True, gc=False):
    """One record of a group's offsets: a commit, or (`committed` None) that there is none any more."""

    topic: str
    partition: int
    committed: CommittedOffset | None


class GroupOffsets:
    """The committed offsets of one group. `apply` and `commit` are the only ways in, live and on replay."""

    __slots__ = ("_count", "_topics")

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, CommittedOffset]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return bool(self._topics)

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        return (
            (topic, partition, committed)
            for topic, partitions in self._topics.items()
            for partition, committed in partitions.items()
        )

    def apply(self, record: OffsetRecord) -> None:
        """Put the record into effect."""
        if record.committed is not None:
            self.commit(record.topic, record.partition, record.committed)
        elif (there := self._topics.get(record.topic)) is not None:
            self._count -= there.pop(record.partition, None) is not None
            assert self._count >= 0, self._count
            if not there:
                del self._topics[record.topic]

    def commit(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Put a commit into effect."""
        partitions = self._topics.get(topic)
        if partitions is None:
            partitions = self._topics[topic] = {}
        self._count += partition not in partitions
        partitions[partition] = committed

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self._topics.get(topic, {}).get(partition)

    def of_topic(self, topic: str) -> dict[int, CommittedOffset]:
        """Partition -> offset of one topic, to read."""
        return self._topics.get(topic, {})

    def topics(self) -> list[str]:
        return list(self._topics)

    def tombstones(self, doomed: Callable[[str, int, CommittedOffset], bool]) -> list[OffsetRecord]:
        """The records that would forget every offset that is `doomed(topic, partition, committed)`."""
        return [
            OffsetRecord(topic, partition, None)
            for topic, partition, committed in self
            if doomed(topic, partition, committed)
        ]
