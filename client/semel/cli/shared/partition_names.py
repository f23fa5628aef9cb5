"""Partitions by the names that users give, and the offsets at their ends where a leader answers."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Sequence

import click

from semel import Admin, TopicPartition
from semel._net.similar_names import similar
from semel.cli.shared.common import failure
from semel.errors import KafkaConnectionError, KafkaTimeoutError, UnknownTopicOrPartitionError
from semel.structs import PartitionMetadata, TopicMetadata

ANSWER_TIMEOUT_MS = 5_000
"""The longest wait for a leader's offsets; the leader may be shutting down."""


async def topics_of(admin: Admin, names: Sequence[str]) -> list[TopicMetadata]:
    """The topics of these names; all topics without names. Raises ClickException for one that does not exist."""
    try:
        return await admin.describe_topics(names or None)
    except UnknownTopicOrPartitionError:
        known = await admin.list_topics()
        missing = [name for name in names if name not in known]
        if not missing:
            raise  # another broker got it in between
        advice = "Create the topic, or check its name with `semel topic list`"
        raise failure(f"There is no topic {missing[0]!r}.{similar(missing[0], known)} {advice}") from None


async def places(admin: Admin, place: str) -> list[TopicPartition]:
    """The partitions that `TOPIC` or `TOPIC:PARTITION` names. Raises ClickException."""
    return list(await partitions_of(admin, [place]))


async def partitions_of(admin: Admin, names: Sequence[str]) -> dict[TopicPartition, PartitionMetadata]:
    """The partitions that these names stand for, in order; all partitions without names. Raises as `places`."""
    wanted = [_parsed(place) for place in names]
    topics = await topics_of(admin, list(dict.fromkeys(name for name, _ in wanted)))
    known = {topic.name: topic.partitions for topic in topics}
    found = {}
    for name, index in wanted or [(name, None) for name in known]:
        if index is not None and index >= len(known[name]):
            raise failure(f"{name} has no partition {index}; it has {len(known[name])}")
        for partition in known[name] if index is None else known[name][index : index + 1]:
            found[TopicPartition(name, partition.partition)] = partition
    return found


def _parsed(place: str) -> tuple[str, int | None]:
    name, colon, number = place.partition(":")
    if colon and not (number.isascii() and number.isdigit()):
        raise click.BadParameter(f"{place!r}: write TOPIC or TOPIC:PARTITION, such as orders:0")
    return name, int(number) if colon else None


def compact(partitions: Iterable[TopicPartition], after_topic: str = ": ") -> str:
    """Partitions in one text: `orders: 0-11, 14; payments: 3`. Within a sentence `after_topic` is a space."""
    by_topic: dict[str, list[list[int]]] = {}
    for topic, index in sorted(partitions):
        runs = by_topic.setdefault(topic, [])
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return "; ".join(
        f"{topic}{after_topic}{', '.join(str(a) if a == b else f'{a}-{b}' for a, b in runs)}"
        for topic, runs in by_topic.items()
    )


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
