"""Consumer groups: their members, and their lag, which is committed offsets against the ends of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from semel._texts import names_of
from semel.admin import EARLIEST, LATEST, Admin, ConsumerGroupDescription
from semel.diagnose.partitions import known_offsets
from semel.diagnose.reconciliation import steps_of, words
from semel.structs import PartitionMetadata, TopicPartition

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


def total_lag(rows: Iterable[PartitionLag]) -> int | None:
    """PURE. The sum of the known lags; None when there is none."""
    known = [each.lag for each in rows if each.lag is not None]
    return sum(known) if known else None


def group_facts(found: ConsumerGroupDescription, lags: Sequence[PartitionLag]) -> dict[str, Any]:
    """PURE. A group as plain types, as `semel group describe --json` prints it. total_lag, committed, end_offset,
    lag, owner, host: None where unknown. group_epoch, assignment_epoch: None for a classic group.
    """
    owners = {tp: member for member in found.members for tp in member.assignment}
    partitions = []
    for each in lags:
        owner = owners.get(each.at)
        partitions.append(
            {
                "topic": each.at.topic,
                "partition": each.at.partition,
                "committed": each.committed,
                "end_offset": each.end,
                "lag": each.lag,
                "owner": None if owner is None else owner.name,
                "host": None if owner is None else owner.client_host,
            }
        )
    return {
        "group": found.group_id,
        "state": found.state,
        "members": len(found.members),
        "members_without_partition": [member.name for member in found.members if not member.assignment],
        "total_lag": total_lag(lags),
        "lag_without_commit": total_lag(each for each in lags if each.committed is None) or 0,
        "partitions": partitions,
        "protocol": found.group_type,
        "assignor": found.protocol,
        "group_epoch": found.group_epoch,
        "assignment_epoch": found.assignment_epoch,
        "member_list": _member_facts(found),
    }


def _member_facts(group: ConsumerGroupDescription) -> list[dict[str, Any]]:
    """The broker's description of each member. Fields of the consumer protocol are None in a classic group."""
    steps = steps_of(group)
    found = []
    for member in group.members:
        own = steps.get(member.member_id)
        found.append(
            {
                "member": member.member_id,
                "instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "host": member.client_host,
                "rack": member.rack_id,
                "protocol": member.member_type,
                "topics": list(member.subscription),
                "pattern": member.pattern,
                "epoch": member.member_epoch,
                "assigned": names_of(member.assignment),
                "target": None if member.target_assignment is None else names_of(member.target_assignment),
                "to_do": None if own is None else words(own),
                "has_to_give_up": None if own is None else names_of(own.give_up),
                "may_have_to_give_up": None if own is None else names_of(own.may_hold),
                "waits_for": None if own is None else _waits(own.waits_for),
            }
        )
    return found


def _waits(waits_for: Mapping[TopicPartition, tuple[str, ...]]) -> list[dict[str, Any]]:
    return [{"partition": f"{at.topic}-{at.partition}", "held_by": list(names)} for at, names in waits_for.items()]
