"""PURE. The balancing of the sticky assignors: keeps assignments, fills up members, then moves as little as
possible.

An assignment is balanced when no partition can move from one member to another with at least two fewer, not even along
a chain of members (A gives one to B, B gives one to C). With equal subscriptions the counts differ by at most one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

from semel.structs import TopicPartition

Kept = dict[str, list[TopicPartition]]
Move = tuple[str, str, TopicPartition]
"""From member, to member, the partition."""


def balance(
    wants: Mapping[str, Sequence[str]],
    kept: Kept,
    partition_counts: Mapping[str, int],
    earlier: Mapping[TopicPartition, str] | None = None,
) -> Kept:
    """A balanced assignment that starts from `kept` and moves as little as possible.

    wants: member id -> topics, in the order that breaks ties.
    kept: valid claims, each partition at most once; changed in place and returned with sorted partitions.
    partition_counts: topic -> number of partitions. earlier: the member that had a partition in an older generation;
    it gets that one where a partition of the topic moves to it anyway.
    """
    takers: dict[str, list[str]] = {}
    for member, topics in wants.items():
        for topic in dict.fromkeys(topics):
            if topic in partition_counts:
                takers.setdefault(topic, []).append(member)
    _fill(takers, kept, partition_counts)
    _level(takers, kept, earlier or {})
    for partitions in kept.values():
        partitions.sort()
    return kept


def _fill(takers: Mapping[str, list[str]], kept: Kept, partition_counts: Mapping[str, int]) -> None:
    """Assign every unassigned partition to the member with the fewest, topics with few subscribers first."""
    taken = {partition for partitions in kept.values() for partition in partitions}
    rank = {member: i for i, member in enumerate(kept)}
    heap: list[tuple[int, int, str]] = []
    heap_of: list[str] | None = None
    for topic in sorted(takers, key=lambda topic: (len(takers[topic]), takers[topic], topic)):
        if takers[topic] != heap_of:
            heap_of = takers[topic]
            heap = sorted((len(kept[member]), rank[member], member) for member in heap_of)
        for index in range(partition_counts[topic]):
            partition = TopicPartition(topic, index)
            if partition not in taken:
                count, place, member = heappop(heap)
                kept[member].append(partition)
                heappush(heap, (count + 1, place, member))


def _level(takers: Mapping[str, list[str]], kept: Kept, earlier: Mapping[TopicPartition, str]) -> None:
    """Move partitions from members with many to members with few, one chain at a time, until no chain is left."""
    if not kept:
        return
    # A member without a chain never gets one: later moves only raise low counts and lower high counts.
    settled: dict[str, None] = {}
    while True:
        rich = max((member for member in kept if member not in settled), key=lambda m: len(kept[m]), default=None)
        if rich is None:
            return
        chain = _chain(rich, takers, kept)
        if chain is None:
            settled[rich] = None
            continue
        for giver, getter, sample in chain:
            partition = _back_to(getter, sample, kept[giver], earlier)
            kept[giver].remove(partition)
            kept[getter].append(partition)


def _chain(rich: str, takers: Mapping[str, list[str]], kept: Kept) -> list[Move] | None:
    """The shortest chain of moves from this member to a reachable one with at least two fewer partitions."""
    reached: dict[str, Move | None] = {rich: None}
    limit = len(kept[rich]) - 2
    queue = deque([rich])
    while queue:
        poorest: str | None = None
        # Breadth first: a direct move is better than a chain.
        for _ in range(len(queue)):
            giver = queue.popleft()
            for topic, partition in _samples(kept[giver]).items():
                for getter in takers[topic]:
                    if getter in reached:
                        continue
                    reached[getter] = (giver, getter, partition)
                    queue.append(getter)
                    if len(kept[getter]) <= limit and (poorest is None or len(kept[getter]) < len(kept[poorest])):
                        poorest = getter
        if poorest is not None:
            return _unwind(poorest, reached)
    return None


def _back_to(
    getter: str, sample: TopicPartition, given: Sequence[TopicPartition], earlier: Mapping[TopicPartition, str]
) -> TopicPartition:
    """A partition of the sample's topic that the getter had earlier, otherwise the sample."""
    if not earlier:
        return sample
    had = (each for each in given if each.topic == sample.topic and earlier.get(each) == getter)
    return next(had, sample)


def _samples(partitions: Sequence[TopicPartition]) -> dict[str, TopicPartition]:
    """One partition of each topic: the last one, so that the last assigned moves first."""
    return {partition.topic: partition for partition in partitions}


def _unwind(end: str, reached: Mapping[str, Move | None]) -> list[Move]:
    chain: list[Move] = []
    move = reached[end]
    while move is not None:
        chain.append(move)
        move = reached[move[0]]
    return chain
