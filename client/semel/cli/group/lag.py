"""The lag of consumer groups: committed offsets against the ends of their topics' partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from semel import Admin, TopicPartition
from semel.admin import EARLIEST, LATEST, ConsumerGroupDescription
from semel.cli.shared.partition_names import known_offsets
from semel.structs import PartitionMetadata

REQUESTS_AT_ONCE = 16


class PartitionLag(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a group in a partition. end: None where no leader answers, or the topic is gone.

    committed: None without a committed offset; the lag then counts from `start`, the first offset of the partition.
    """

    at: TopicPartition
    committed: int | None
    start: int | None
    end: int | None

    @property
    def lag(self) -> int | None:
        since = self.start if self.committed is None else self.committed
        return None if since is None or self.end is None else max(0, self.end - since)


async def lag_of(admin: Admin, groups: Sequence[ConsumerGroupDescription]) -> dict[str, list[PartitionLag]]:
    """For each group the partitions that it committed or was assigned, and all others of the topics among them.

    One request a group, at most REQUESTS_AT_ONCE of them at a time, and two for each leader.
    """
    limit = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def committed_by(group: ConsumerGroupDescription) -> dict[TopicPartition, int]:
        async with limit:
            found = await admin.list_consumer_group_offsets(group.group_id)
        return {at: each.offset for at, each in found.items()}

    committed = await asyncio.gather(*map(committed_by, groups))
    existing = {topic.name: topic.partitions for topic in await admin.describe_topics()}
    wanted = [_places(group, offsets, existing) for group, offsets in zip(groups, committed, strict=True)]
    asked = {at: existing[at.topic][at.partition] for places in wanted for at in places if _exists(at, existing)}
    live = (await admin.describe_cluster()).brokers if asked else {}
    ends = await known_offsets(admin, asked.values(), live, LATEST)
    uncommitted = {
        at: asked[at]
        for places, offsets in zip(wanted, committed, strict=True)
        for at in places
        if at in asked and at not in offsets
    }
    starts = await known_offsets(admin, uncommitted.values(), live, EARLIEST)
    return {
        group.group_id: [
            PartitionLag(at=at, committed=offsets.get(at), start=starts.get(at), end=ends.get(at)) for at in places
        ]
        for group, offsets, places in zip(groups, committed, wanted, strict=True)
    }


def _places(
    group: ConsumerGroupDescription,
    committed: Mapping[TopicPartition, int],
    existing: Mapping[str, Sequence[PartitionMetadata]],
) -> list[TopicPartition]:
    named = {*committed, *(at for member in group.members for at in member.assignment)}
    topics = {at.topic for at in named}.union(*(member.subscription for member in group.members))
    others = {TopicPartition(each.topic, each.partition) for name in topics for each in existing.get(name, ())}
    return sorted(named | others)


def _exists(at: TopicPartition, existing: Mapping[str, Sequence[PartitionMetadata]]) -> bool:
    return at.partition < len(existing.get(at.topic, ()))


def total(rows: Iterable[PartitionLag]) -> int | None:
    """PURE. The sum of the known lags; None when there is none."""
    known = [each.lag for each in rows if each.lag is not None]
    return sum(known) if known else None
