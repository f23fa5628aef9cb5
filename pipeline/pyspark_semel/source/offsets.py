"""PURE: offsets of many partitions: their JSON in Spark's checkpoint, their limit per batch, and the ranges of the
tasks.

The JSON is that of Spark's own Kafka source: `{"flights": {"0": 17, "1": 23}}`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pyspark.sql.datasource import InputPartition
from semel.structs import TopicPartition

Offsets = dict[TopicPartition, int]
"""The offset of the next record to read, for each partition."""

MARK = "$"
"""The first character of a key that is no topic; topic names cannot contain it."""
INITIAL = "$initial"
"""The offsets at which a query starts. Spark asks again if the query restarts before the first batch is committed."""
BEGIN = "$from"
"""The key in the end offsets of a first batch: the start offsets of that batch, so that a repeated batch starts there
too.
"""


def as_json(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    """Return `{"flights": {"0": 17}}`, sorted, so that equal offsets give equal texts."""
    found: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(kept: Mapping[str, Any]) -> Offsets:
    """Read the offsets from the result of `as_json`, without the other keys."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in kept.items()
        if not topic.startswith(MARK)
        for partition, offset in partitions.items()
    }


def limited(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], count: int) -> Offsets:
    """Return ends that include about `count` offsets in total: each partition gets a share in proportion to its
    backlog.

    Both mappings have the same partitions. As in Spark's own Kafka source, a share below one offset counts as one, so
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
    """The range of one task: a partition from offset `start` up to, not including, `end`."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__(None)
        self.topic, self.partition, self.start, self.end = topic, partition, start, end

    def __repr__(self) -> str:
        return f"{self.topic}-{self.partition}[{self.start}:{self.end}]"


class Splitting(msgspec.Struct, frozen=True):
    """The number of tasks: at least `tasks_min` in total, each with at most `records_max` offsets."""

    tasks_min: int | None = None
    records_max: int | None = None


def ranges(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], splitting: Splitting
) -> Sequence[OffsetRange]:
    """Return a range for each partition with records, split into ranges of nearly equal size if more are needed."""
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
