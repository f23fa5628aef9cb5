"""The offsets that a reset of a consumer group would set, before anything is set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from semel_protocol.errors import PortableError

from semel._texts import plural
from semel.admin import EARLIEST, LATEST, Admin, ConsumerGroupDescription
from semel.diagnose.partitions import offsets_at, partitions_of
from semel.diagnose.positions import StartPosition
from semel.structs import TopicPartition


class ResetRefusedError(PortableError, ValueError):
    """The committed offsets of a group cannot be set: it has members, or no offsets, or its topics are deleted."""


class OffsetChange(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one partition's offset. committed: -1 without one.

    wanted: the requested offset. offset: the nearest one to it within the log. end: the end offset.
    """

    at: TopicPartition
    committed: int
    wanted: int
    offset: int
    end: int


async def plan_reset(
    admin: Admin, group: str, names: Sequence[str], to: StartPosition | None, by: int = 0
) -> list[OffsetChange]:
    """The changes that a reset would make; it sets nothing. names: as of `partitions_of`; without names all partitions
    with a committed offset. to: None moves by `by` offsets from the committed ones.

    Raises ResetRefusedError, PartitionNameError, NoSuchPartitionError.
    """
    (described,) = await admin.describe_consumer_groups([group])
    must_be_empty(described, "would overwrite the new offsets with their own commits")
    committed = {at: each.offset for at, each in (await admin.list_consumer_group_offsets(group)).items()}
    if not names and not committed:
        raise ResetRefusedError(
            f"{group} has no committed offsets: name the topics to set offsets for, or check the group's name "
            "with `semel group list`"
        )
    places = list(await partitions_of(admin, names or await _topics_of(admin, committed)))
    if to is None or not names:
        places = [at for at in places if at in committed]
    starts = await offsets_at(admin, places, EARLIEST)
    ends = await offsets_at(admin, places, LATEST)
    found = {} if to is None or to.timestamp is None else await offsets_at(admin, places, to.timestamp)
    moves = []
    for at in places:
        if to is None:
            wanted = committed[at] + by
        elif to.offset is not None:
            wanted = to.offset
        else:
            wanted = found[at] if found[at] >= 0 else ends[at]  # -1: no record at or after that time
        offset = min(max(wanted, starts[at]), ends[at])
        moves.append(OffsetChange(at=at, committed=committed.get(at, -1), wanted=wanted, offset=offset, end=ends[at]))
    return moves


async def _topics_of(admin: Admin, committed: Iterable[TopicPartition]) -> list[str]:
    """The existing topics among them. Offsets of a deleted topic may remain for a moment. Raises ResetRefusedError
    for none.
    """
    existing = await admin.list_topics()
    topics = {at.topic: None for at in committed}
    found = [name for name in topics if name in existing]
    if not found:
        raise ResetRefusedError(f"all committed offsets are of deleted topics: {', '.join(topics)}")
    return found


def must_be_empty(group: ConsumerGroupDescription, what_members_do: str) -> None:
    """Raise ResetRefusedError for a group with members. what_members_do: why that is refused, after "which"."""
    if not group.members:
        return
    who = ", ".join(f"{each.group_instance_id or each.client_id} on {each.client_host}" for each in group.members)
    count = plural(len(group.members), "member")
    if all(member.is_away for member in group.members):
        raise ResetRefusedError(
            f"{group.group_id} has {count} ({who}), static and away: the broker refuses this until their sessions have "
            "ended. Wait for the broker's group.consumer.session.timeout.ms, and run it again"
        )
    raise ResetRefusedError(f"{group.group_id} has {count} ({who}), which {what_members_do}: stop them first")


def reset_facts(group: str, moves: Sequence[OffsetChange], changed: int) -> dict[str, Any]:
    """PURE. The offsets as plain types. changed: the number of offsets that were set."""
    return {
        "group": group,
        "changed": changed,
        "partitions": [
            {
                "topic": each.at.topic,
                "partition": each.at.partition,
                "committed": None if each.committed < 0 else each.committed,
                "wanted": each.wanted,
                "next": each.offset,
                "lag": each.end - each.offset,
            }
            for each in moves
        ],
    }
