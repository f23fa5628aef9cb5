"""Resolves the topics and positions of the options to partitions and offsets, by requests to the cluster."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from semel.batch_reader import BatchReader
from semel.structs import TopicPartition

from pyspark_semel.options import OptionError
from pyspark_semel.source.offsets import Offsets
from pyspark_semel.source.options import EARLIEST, LATEST, Position, TopicChoice, Where


async def partitions_of(reader: BatchReader, topics: TopicChoice) -> list[TopicPartition]:
    """Return the partitions that exist now."""
    if topics.pattern is not None:
        return await reader.partitions_of(re.compile(topics.pattern))
    if topics.names:
        return await reader.partitions_of(topics.names)
    there = await reader.partitions_of([at.topic for at in topics.partitions])
    return [at for at in topics.partitions if at in there]


async def required_partitions_of(reader: BatchReader, topics: TopicChoice) -> list[TopicPartition]:
    """Return the partitions. Raises OptionError if a named topic or partition does not exist."""
    found = await partitions_of(reader, topics)
    missing = [name for name in topics.names if not any(at.topic == name for at in found)]
    missing += [f"{at.topic}-{at.partition}" for at in topics.partitions if at not in found]
    if missing:
        raise OptionError(f"{', '.join(missing)} does not exist: create it first, or check the name")
    return found


async def offsets_at(
    reader: BatchReader, position: Position, partitions: Iterable[TopicPartition], *, latest_if_no_time: bool
) -> Offsets:
    """Return the offset of a position in each partition. Raises OptionError if the position does not cover all
    partitions.
    """
    wanted = list(partitions)
    if position.where is Where.EARLIEST:
        return await reader.earliest(wanted)
    if position.where is Where.LATEST:
        return await reader.latest(wanted)
    if position.time_ms is not None:
        return await _at_times(reader, position, dict.fromkeys(wanted, position.time_ms), latest_if_no_time)
    _check_covers(position, wanted)
    places = {at: position.by_partition[at] for at in wanted}
    if position.where is Where.TIMES:
        return await _at_times(reader, position, places, latest_if_no_time)
    earliest = await reader.earliest([at for at, place in places.items() if place == EARLIEST])
    latest = await reader.latest([at for at, place in places.items() if place == LATEST])
    return places | earliest | latest


def _check_covers(position: Position, wanted: list[TopicPartition]) -> None:
    lacking = [at for at in wanted if at not in position.by_partition]
    beyond = [at for at in position.by_partition if at not in wanted]
    if lacking or beyond:
        words = [
            f"{what} {', '.join(f'{at.topic}-{at.partition}' for at in which)}"
            for what, which in (("it leaves out", lacking), ("the query does not read", beyond))
            if which
        ]
        raise OptionError(f"{position.option} must name every partition that is read, and no other: {'; '.join(words)}")


async def _at_times(
    reader: BatchReader, position: Position, times: Mapping[TopicPartition, int], latest_if_none: bool
) -> Offsets:
    found = await reader.offsets_for_times(times)
    none = [at for at, row in found.items() if row is None]
    if none and not latest_if_none:
        raise OptionError(
            f"{position.option}: {none[0].topic}-{none[0].partition} has no record as young as {times[none[0]]} ms; "
            "set startingOffsetsByTimestampStrategy to latest to start at the end"
        )
    return {at: row.offset for at, row in found.items() if row is not None} | await reader.latest(none)
