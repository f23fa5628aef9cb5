"""PURE. Offsets of many partitions: as Spark keeps them, shared out by a limit, and cut into the ranges of tasks.

As JSON they look as those of Spark's own Kafka source: `{"flights": {"0": 17, "1": 23}}`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pyspark.sql.datasource import InputPartition
from semel.structs import TopicPartition

Offsets = dict[TopicPartition, int]
"""Of each partition, the offset of the first record that is still to come."""

MARK = "$"
"""Opens a key that is no topic; no topic's name has it."""
INITIAL = "$initial"
"""Offsets at which a query begins. They are asked for again if it is restarted before its first batch is through."""
BEGIN = "$from"
"""In the end offsets of a first batch: where that batch began, so that doing it again begins there too."""


def as_json(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """`{"flights": {"0": 17}}`, sorted, so that equal offsets are equal texts."""
    found: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(kept: Mapping[str, Any]) -> Offsets:
    """The offsets in what `as_json` made, whatever else was added to it."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in kept.items()
        if not topic.startswith(MARK)
        for partition, offset in partitions.items()
    }


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], count: int) -> Offsets:
    """Ends that take in about `count` offsets in all: each partition has a share in proportion to its backlog.

    Both have the same partitions. As in Spark's own Kafka source a share of less than one offset counts as one, so
    that no partition starves.
    """
    backlog = {at: max(end[at] - start[at], 0) for at in end}
    total = sum(backlog.values())
    if total <= count:
        return dict(end)
    found: Offsets = {}
    for at, size in backlog.items():
        share = count * size / total
        found[at] = start[at] + min(size, math.ceil(share) if share < 1 else int(share)) if size else end[at]
    return found


class OffsetRange(InputPartition):
    """What one task reads: a partition from `start` up to, and not including, `end`."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__(None)
        self.topic, self.partition, self.start, self.end = topic, partition, start, end

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}[{self.start}:{self.end}]"


class Splitting(msgspec.Struct, frozen=True):
    """How many tasks: at least `tasks_min` in all, and none of more than `records_max` offsets."""

    tasks_min: int | None = None
    records_max: int | None = None


def ranges(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], splitting: Splitting
) -> Sequence[OffsetRange]:
    """One for each partition that has something, cut into more of nearly equal size if so many are wanted."""
    sizes = {at: end[at] - start[at] for at in sorted(end) if end[at] > start[at]}
    total = sum(sizes.values())
    found = []
    for (topic, partition), size in sizes.items():
        pieces = 1
        if splitting.tasks_min is not None and splitting.tasks_min > len(sizes):
            pieces = math.ceil(splitting.tasks_min * size / total)
        if splitting.records_max is not None:
            pieces = max(pieces, math.ceil(size / splitting.records_max))
        begin = start[TopicPartition(topic, partition)]
        pieces = min(pieces, size)
        cuts = [begin + size * number // pieces for number in range(pieces + 1)]
        found += [OffsetRange(topic, partition, cuts[n], cuts[n + 1]) for n in range(pieces)]
    return found
