"""PURE: the placement of the replicas of new partitions on brokers.

Replicas are spread evenly. The loss of a broker or a rack takes at most one replica of a partition while there are
other racks. Leaders are spread first, then followers, each partition on as many racks as possible (KIP-36). Brokers
without a rack count as one rack, as in Kafka.

A placement depends on the partitions that exist, not on chance or on the partition's index. So a topic that grows stays
even, and topics of one partition are not all placed on the first broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from itertools import chain, zip_longest
from operator import itemgetter
from typing import Final

import msgspec

from semel_broker.cluster.image import Image

STEP_ELEMENTS: Final = 32
"""The cost of placing one partition, in array elements that could be decoded meanwhile."""


class Load(msgspec.Struct):
    """For each broker, the number of partitions with it as the preferred leader, and the number of its replicas."""

    leaders: Counter[int]
    replicas: Counter[int]

    def add(self, replicas: Sequence[int]) -> None:
        """Add a partition's replicas, the preferred leader first."""
        self.leaders[replicas[0]] += 1
        self.replicas.update(replicas)

    def add_all(self, rows: Sequence[Sequence[int]]) -> None:
        """Add the replicas of many partitions."""
        self.leaders.update(map(itemgetter(0), rows))
        self.replicas.update(chain.from_iterable(rows))


def load(image: Image) -> Load:
    """The load of the brokers, over all topics."""
    total = Load(Counter(), Counter())
    for stored in image.topics.values():
        total.add_all(stored.value.replicas)
    return total


def place(
    count: int,
    factor: int,
    racks: Mapping[int, str],
    *,
    existing: Sequence[Sequence[int]] = (),
    elsewhere: Load | None = None,
) -> Generator[int, None, list[list[int]]]:
    """The replicas of `count` new partitions of a topic, `factor` each, the preferred leader first.

    `racks`: the available brokers, each with its rack ("": none). `existing`: the partitions that the topic has.
    `elsewhere`: the load of other topics; it decides between brokers that are equal for this topic. Works in steps and
    yields the cost of each, in array elements (`Slices.finish`).
    """
    assert 1 <= factor <= len(racks), f"{factor} replicas on {len(racks)} brokers"
    plan = _Plan(racks, elsewhere or Load(Counter(), Counter()))
    for replicas in existing:
        plan.add(replicas)
        yield STEP_ELEMENTS
    placed = []
    for _ in range(count):
        placed.append(plan.next(factor))
        yield STEP_ELEMENTS
    return placed


ANY_SLOT: Final = -1
"""Stands for all positions in the list of replicas together."""


class _Plan:
    """The placement of one topic, partition by partition."""

    def __init__(self, racks: Mapping[int, str], elsewhere: Load) -> None:
        self._racks = racks
        self._ring = _interleaved(racks)
        self._at = {node_id: position for position, node_id in enumerate(self._ring)}
        self._elsewhere = elsewhere
        self._here = Load(Counter(), Counter())
        self._leads_in: Counter[str] = Counter()
        self._pairs: Counter[tuple[int, int, int]] = Counter()

    def add(self, replicas: Sequence[int]) -> None:
        self._here.add(replicas)
        self._leads_in[self._racks.get(replicas[0], "")] += 1
        for slot, node_id in enumerate(replicas):
            self._pairs[replicas[0], slot, node_id] += 1
            self._pairs[replicas[0], ANY_SLOT, node_id] += 1

    def next(self, factor: int) -> list[int]:
        """Place one more partition. Returns its replicas, the preferred leader first."""
        leader = min(self._ring, key=self._as_leader)
        followers: list[int] = []
        in_rack = Counter((self._racks[leader],))
        while len(followers) < factor - 1:
            others = [node_id for node_id in self._ring if node_id != leader and node_id not in followers]
            follower = min(others, key=lambda node_id: self._as_follower(node_id, leader, in_rack))
            followers.append(follower)
            in_rack[self._racks[follower]] += 1
        chosen = [leader, *self._rotated(leader, followers)]
        self.add(chosen)
        return chosen

    def _as_leader(self, node_id: int) -> tuple[int, ...]:
        """The sort key of candidates for leader: fewest leaderships in this topic, then the rack with the fewest."""
        return (
            self._here.leaders[node_id],
            self._leads_in[self._racks[node_id]],
            self._elsewhere.leaders[node_id],
            self._elsewhere.replicas[node_id],
            self._at[node_id],
        )

    def _as_follower(self, node_id: int, leader: int, in_rack: Counter[str]) -> tuple[int, ...]:
        """The sort key of candidates for follower: a rack without a replica of the partition; fewest followers of this
        topic; fewest partitions with this leader; fewest replicas of other topics; the next broker on the ring."""
        return (
            in_rack[self._racks[node_id]],
            self._here.replicas[node_id] - self._here.leaders[node_id],
            self._pairs[leader, ANY_SLOT, node_id],
            self._elsewhere.replicas[node_id],
            (self._at[node_id] - self._at[leader]) % len(self._ring),
        )

    def _rotated(self, leader: int, followers: list[int]) -> list[int]:
        """The followers in an order that spreads the partitions of this leader over many brokers if it fails: first the
        broker that is the first follower of this leader in the fewest partitions, and so on."""
        ordered: list[int] = []
        while followers:
            slot = len(ordered) + 1
            follower = min(followers, key=lambda node_id: self._pairs[leader, slot, node_id])
            followers.remove(follower)
            ordered.append(follower)
        return ordered


def _interleaved(racks: Mapping[int, str]) -> list[int]:
    """All brokers, ordered so that neighbours are in different racks if possible."""
    by_rack: dict[str, list[int]] = {}
    for node_id in sorted(racks):
        by_rack.setdefault(racks[node_id], []).append(node_id)
    rows = zip_longest(*(nodes for _, nodes in sorted(by_rack.items())))
    return [node_id for node_id in chain.from_iterable(rows) if node_id is not None]
