"""Finds the offsets at which `semel consume` starts."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from semel import Admin, Consumer, TopicPartition
from semel._command_line.common import say
from semel._texts import compact
from semel.admin import EARLIEST, LATEST
from semel.diagnose import StartPosition

Offsets = Mapping[TopicPartition, int]
STEP_FACTOR = 4
"""Each further look behind a partition's end goes this much further back."""


async def starts(
    consumer: Consumer, places: Sequence[TopicPartition], start: StartPosition, ends: Offsets
) -> dict[TopicPartition, int]:
    """The offsets to start at; none for the ends of partitions, which the consumer finds itself. Changes the consumer's
    assignment.
    """
    if start.last is not None:
        return await _last(consumer, start.last, ends)
    if start.timestamp is None or start.timestamp in (EARLIEST, LATEST):
        return {}
    found = await consumer.offsets_for_times(dict.fromkeys(places, start.timestamp))
    if without := [tp for tp, at in found.items() if at is None]:
        say(f"{compact(without)}: no record is so new; starting at the end", err=True)
    return {tp: ends[tp] if at is None else at.offset for tp, at in found.items()}


async def in_range(admin: Admin, places: Sequence[TopicPartition], offset: int) -> dict[TopicPartition, int]:
    """The offset for each partition, moved into the range of those that do not have it, with a line for each."""
    firsts = await admin.list_offsets(dict.fromkeys(places, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(places, LATEST))
    found = {}
    for tp in places:
        first, end = firsts[tp].offset, ends[tp].offset
        found[tp] = min(max(offset, first), end)
        if offset > end:
            say(f"{compact([tp])}: offset {offset} is beyond the end, which is {end}; starting at the end", err=True)
        elif offset < first:
            say(f"{compact([tp])}: offset {offset} is deleted; starting at {first}, the first one", err=True)
    return found


async def _last(consumer: Consumer, count: int, ends: Offsets) -> dict[TopicPartition, int]:
    """The offsets of the last `count` records of each partition.

    Offsets without a record (markers of transactions, aborted or compacted records) do not count, so each partition is
    read from further back until enough records are found.
    """
    begins = await consumer.beginning_offsets(ends)
    found: dict[TopicPartition, int] = {tp: end for tp, end in ends.items() if not count or begins[tp] >= end}
    step = count
    while behind := [tp for tp in ends if tp not in found]:
        first = {tp: max(begins[tp], ends[tp] - step) for tp in behind}
        consumer.assign(behind)
        for tp in behind:
            consumer.seek(tp, first[tp])
        for tp, seen in (await _last_read(consumer, {tp: ends[tp] for tp in behind}, count)).items():
            if len(seen) == count or first[tp] == begins[tp]:
                found[tp] = seen[0] if seen else ends[tp]
        step *= STEP_FACTOR
    return found


async def _last_read(consumer: Consumer, ends: Offsets, count: int) -> dict[TopicPartition, deque[int]]:
    """Read to the ends. Returns the offsets of the last `count` records of each partition."""
    seen: dict[TopicPartition, deque[int]] = {tp: deque(maxlen=count) for tp in ends}
    open_ones = set(ends)
    while open_ones:
        for tp, records in (await consumer.getmany(timeout_ms=200)).items():
            seen[tp].extend(record.offset for record in records if record.offset < ends[tp])
        open_ones = {tp for tp in open_ones if await consumer.position(tp) < ends[tp]}
    return seen
