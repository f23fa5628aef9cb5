"""PURE: on which brokers new partitions live.

Evenly, and so that neither the loss of a broker nor that of a rack takes more than one replica of a partition while
there are others: leaders are spread first, then followers, each partition on as many racks as there are (KIP-36).
Brokers without a rack are taken as one rack of their own, as Kafka does.

A partition's place depends on what there already is, not on chance or on its number: a topic that grows goes on as
evenly as it began, and topics of one partition do not all end up on the first broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Final

import msgspec

from semel_broker.cluster.image import Image


class Load(msgspec.Struct):
    """How many partitions each broker leads by preference, and how many replicas it has."""

    leaders: Counter[int]
    replicas: Counter[int]

    def add(self, replicas: Sequence[int]) -> None:
        """One more partition, its preferred leader first."""
        self.leaders[replicas[0]] += 1
        self.replicas.update(replicas)


def load(image: Image) -> Load:
    """What the brokers have to carry already, over all topics."""
    total = Load(Counter(), Counter())
    for kept in image.topics.values():
        for replicas in kept.value.replicas:
            total.add(replicas)
    return total


def place(
    count: int,
    factor: int,
    racks: Mapping[int, str],
    *,
    existing: Sequence[Sequence[int]] = (),
    elsewhere: Load | None = None,
) -> list[list[int]]:
    """The replicas of `count` new partitions of a topic, `factor` each, the preferred leader first.

    `racks`: the brokers that may be taken, each with its rack ("": none). `existing`: the partitions that the topic
    has already. `elsewhere`: what other topics put on the brokers; it decides where the topic itself is indifferent.
    """
    assert 1 <= factor <= len(racks), f"{factor} replicas on {len(racks)} brokers"
    plan = _Plan(racks, elsewhere or Load(Counter(), Counter()))
    for replicas in existing:
        plan.add(replicas)
    return [plan.next(factor) for _ in range(count)]


ANYWHERE: Final = -1
"""In place of a slot in the list of replicas: whichever."""


class _Plan:
    """One topic's partitions as they are dealt out."""

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
            self._pairs[replicas[0], ANYWHERE, node_id] += 1

    def next(self, factor: int) -> list[int]:
        """The next partition's replicas."""
        leader = min(self._ring, key=self._as_leader)
        followers: list[int] = []
        in_rack = Counter((self._racks[leader],))
        while len(followers) < factor - 1:
            others = [node_id for node_id in self._ring if node_id != leader and node_id not in followers]
            follower = min(others, key=lambda node_id: self._as_follower(node_id, leader, in_rack))
            followers.append(follower)
            in_rack[self._racks[follower]] += 1
        chosen = [leader, *self._in_turns(leader, followers)]
        self.add(chosen)
        return chosen

    def _as_leader(self, node_id: int) -> tuple[int, ...]:
        """Small is good: who leads least; then a rack that leads least."""
        return (
            self._here.leaders[node_id],
            self._leads_in[self._racks[node_id]],
            self._elsewhere.leaders[node_id],
            self._elsewhere.replicas[node_id],
            self._at[node_id],
        )

    def _as_follower(self, node_id: int, leader: int, in_rack: Counter[str]) -> tuple[int, ...]:
        """Small is good: a rack that the partition is not in; then who follows least, and this leader least; then the
        next one around."""
        return (
            in_rack[self._racks[node_id]],
            self._here.replicas[node_id] - self._here.leaders[node_id],
            self._pairs[leader, ANYWHERE, node_id],
            self._elsewhere.replicas[node_id],
            (self._at[node_id] - self._at[leader]) % len(self._ring),
        )

    def _in_turns(self, leader: int, followers: list[int]) -> list[int]:
        """The followers so ordered that what one broker leads falls to many when it dies: the first of them is who has
        least often been the first behind this leader, and so on."""
        ordered: list[int] = []
        while followers:
            slot = len(ordered) + 1
            follower = min(followers, key=lambda node_id: self._pairs[leader, slot, node_id])
            followers.remove(follower)
            ordered.append(follower)
        return ordered


def _interleaved(racks: Mapping[int, str]) -> list[int]:
    """All brokers, neighbours in different racks where that is possible."""
    by_rack: dict[str, list[int]] = {}
    for node_id in sorted(racks):
        by_rack.setdefault(racks[node_id], []).append(node_id)
    rows = zip_longest(*(nodes for _, nodes in sorted(by_rack.items())))
    return [node_id for node_id in chain.from_iterable(rows) if node_id is not None]
