"""Partitions by the names that users give, the offsets at their ends where a leader answers, and truncations."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Sequence

import msgspec
from semel_protocol.errors import PortableError

from semel._texts import similar
from semel.admin import EARLIEST, LATEST, Admin
from semel.diagnose.positions import StartPosition
from semel.errors import KafkaConnectionError, KafkaTimeoutError, UnknownTopicOrPartitionError
from semel.structs import PartitionMetadata, TopicMetadata, TopicPartition

ANSWER_TIMEOUT_MS = 5_000
"""The longest wait for a leader's offsets; the leader may be shutting down."""


class PartitionNameError(PortableError, ValueError):
    """A text is neither TOPIC nor TOPIC:PARTITION."""


class NoSuchPartitionError(PortableError, ValueError):
    """There is no topic or no partition of this name. The text says so, with names like it."""


class PartitionEnds(msgspec.Struct, frozen=True):
    """The offsets of a partition that bound its readers: its first one, its last stable one (KIP-98: below it each
    transaction is complete), and its high watermark (below it each record is on all replicas in sync).
    """

    start: int
    last_stable: int
    high_watermark: int

    @property
    def held_back(self) -> int:
        """The number of offsets that a read_committed consumer cannot reach yet."""
        return self.high_watermark - self.last_stable


class TruncationRefusedError(PortableError, ValueError):
    """All partitions end before the offset to truncate at."""


class Truncation(msgspec.Struct, frozen=True):
    """Offsets of a partition: its first one, and the first one to keep."""

    at: TopicPartition
    start: int
    keep: int

    @property
    def offsets(self) -> int:
        """The number of offsets that are deleted; not above 0: none is. Markers of transactions count."""
        return self.keep - self.start


async def topics_of(admin: Admin, names: Sequence[str]) -> list[TopicMetadata]:
    """The topics of these names; all topics without names. Raises NoSuchPartitionError."""
    try:
        return await admin.describe_topics(names or None)
    except UnknownTopicOrPartitionError:
        known = await admin.list_topics()
        missing = [name for name in names if name not in known]
        if not missing:
            raise  # another broker got it in between
        advice = "Create the topic, or check its name with `semel topic list`"
        raise NoSuchPartitionError(f"There is no topic {missing[0]!r}.{similar(missing[0], known)} {advice}") from None


async def partitions_of(admin: Admin, names: Sequence[str]) -> dict[TopicPartition, PartitionMetadata]:
    """The partitions that these names stand for, in order; all partitions without names.

    names: `TOPIC` for all its partitions, or `TOPIC:PARTITION`. Raises PartitionNameError, NoSuchPartitionError.
    """
    wanted = [_parsed(place) for place in names]
    topics = await topics_of(admin, list(dict.fromkeys(name for name, _ in wanted)))
    known = {topic.name: topic.partitions for topic in topics}
    found = {}
    for name, index in wanted or [(name, None) for name in known]:
        if index is not None and index >= len(known[name]):
            raise NoSuchPartitionError(f"{name} has no partition {index}; it has {len(known[name])}")
        for partition in known[name] if index is None else known[name][index : index + 1]:
            found[TopicPartition(name, partition.partition)] = partition
    return found


def _parsed(place: str) -> tuple[str, int | None]:
    name, colon, number = place.partition(":")
    if colon and not (number.isascii() and number.isdigit()):
        raise PartitionNameError(f"{place!r}: write TOPIC or TOPIC:PARTITION, such as orders:0")
    return name, int(number) if colon else None


async def known_offsets(
    admin: Admin,
    partitions: Iterable[PartitionMetadata],
    live: Container[int],
    timestamp: int,
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, int]:
    """The offsets of `timestamp` (EARLIEST, LATEST), without partitions whose leader is offline or does not answer.

    read_committed: LATEST is the last stable offset.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for each in partitions:
        if each.leader in live:
            by_leader.setdefault(each.leader, []).append(TopicPartition(each.topic, each.partition))

    async def of_leader(asked: list[TopicPartition]) -> dict[TopicPartition, int]:
        try:
            found = await admin.list_offsets(dict.fromkeys(asked, timestamp), read_committed, ANSWER_TIMEOUT_MS)
        except (KafkaTimeoutError, KafkaConnectionError):
            return {}
        return {at: row.offset for at, row in found.items()}

    answers = await asyncio.gather(*map(of_leader, by_leader.values()))
    return {at: offset for answer in answers for at, offset in answer.items()}


async def offsets_at(admin: Admin, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
    """The offset of `timestamp` in each partition: EARLIEST, LATEST, or a time in ms; -1 without a record so late.

    Raises KafkaTimeoutError when the leader of one does not answer within `max_block_ms`.
    """
    found = await admin.list_offsets(dict.fromkeys(partitions, timestamp))
    return {at: row.offset for at, row in found.items()}


async def ends_of(admin: Admin, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionEnds]:
    """The offsets that bound the readers of these partitions. Raises as `offsets_at`."""
    starts = await offsets_at(admin, partitions, EARLIEST)
    # The stable offset is requested first, so that it is never above the high watermark.
    stable = await admin.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
    high = await offsets_at(admin, partitions, LATEST)
    return {at: PartitionEnds(starts[at], min(stable[at].offset, high[at]), high[at]) for at in partitions}


async def plan_truncation(admin: Admin, names: Sequence[str], before: StartPosition) -> list[Truncation]:
    """The offsets before `before`, in each partition; it deletes nothing. names: as of `partitions_of`.

    With a time, the first record that is kept is the first one at or after it; with the time LATEST none is kept.

    Raises PartitionNameError, NoSuchPartitionError, TruncationRefusedError.
    """
    places = list(await partitions_of(admin, names))
    starts, ends = await offsets_at(admin, places, EARLIEST), await offsets_at(admin, places, LATEST)
    if before.offset is not None:
        if places and all(before.offset > ends[at] for at in places):
            raise TruncationRefusedError(
                f"{before.offset}: {places[0].topic} ends at offset {max(ends.values())}. To delete all, give `all`"
            )
        keep = {at: min(before.offset, ends[at]) for at in places}
    else:
        assert before.timestamp is not None
        found = await offsets_at(admin, places, before.timestamp)
        keep = {at: found[at] if found[at] >= 0 else ends[at] for at in places}  # -1: no record after that time
    return [Truncation(at, starts[at], keep[at]) for at in places]
