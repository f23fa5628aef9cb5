"""PURE: The assignors of the consumer protocol: from members and topics to a target assignment.

`uniform` is the default. It is sticky: no partition moves unless that makes the loads more equal. Among members with
the same subscription the numbers of partitions differ by at most one. With different subscriptions no single move could
make them more equal. `range` gives each member one run of consecutive partitions of each topic, so the same partitions
of topics with equal numbers of partitions go together.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from semel_broker.groups.consumer.model import NOTHING, TopicIdPartition, TopicIdPartitions


class Subscriber(msgspec.Struct, frozen=True):
    """A member as an assignor sees it. `topics`: ids. `target`: its partitions in the previous target assignment.
    `assigned`: those that it has now."""

    topics: frozenset[bytes]
    target: TopicIdPartitions = NOTHING
    instance_id: str | None = None
    assigned: TopicIdPartitions = NOTHING


Subscribers = Mapping[str, Subscriber]
"""Member id -> subscription."""
Topics = Mapping[bytes, int]
"""Topic id -> number of partitions."""
Assignor = Callable[[Subscribers, Topics], dict[str, TopicIdPartitions]]
"""Every subscriber is in the result, and each partition of a subscribed topic has one member."""


def _readers(subscribers: Subscribers, topics: Topics) -> dict[tuple[str, ...], list[bytes]]:
    """Topics by the members that subscribe to them, all in order; topics without a subscriber are left out."""
    readers: dict[bytes, list[str]] = {topic_id: [] for topic_id in sorted(topics)}
    for member_id in sorted(subscribers):
        for topic_id in subscribers[member_id].topics:
            if topic_id in readers:
                readers[topic_id].append(member_id)
    found: dict[tuple[str, ...], list[bytes]] = {}
    for topic_id, members in readers.items():
        if members:
            found.setdefault(tuple(members), []).append(topic_id)
    return found


def uniform(subscribers: Subscribers, topics: Topics) -> dict[str, TopicIdPartitions]:
    """Keep what members have, give the rest to the members with the fewest partitions, then move as few as possible.

    A partition that its member has not got yet moves first: a member that restarts gets its partitions back.
    """
    owner: dict[TopicIdPartition, str] = {}
    for member_id in sorted(subscribers):
        subscriber = subscribers[member_id]
        for place in sorted(subscriber.target):
            if place[0] in subscriber.topics and place[1] < topics.get(place[0], 0):
                owner.setdefault(place, member_id)
    owned: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in subscribers}
    for place, member_id in owner.items():
        owned[member_id].add(place)
    by_readers = _readers(subscribers, topics)
    for members in sorted(by_readers, key=len):  # partitions with the least choice first
        _give_out(members, by_readers[members], topics, owner, owned)
    assert sum(map(len, owned.values())) == len(owner), "each partition has one owner"
    while sum(_balance(members, set(topic_ids), owned, subscribers) for members, topic_ids in by_readers.items()):
        pass
    return {member_id: frozenset(places) for member_id, places in owned.items()}


def _give_out(
    members: Sequence[str],
    topic_ids: Sequence[bytes],
    topics: Topics,
    owner: dict[TopicIdPartition, str],
    owned: dict[str, set[TopicIdPartition]],
) -> None:
    """Give the partitions of these topics that have no owner to the members with the fewest partitions."""
    loads = [(len(owned[member_id]), member_id) for member_id in members]
    heapq.heapify(loads)
    for topic_id in topic_ids:
        for partition in range(topics[topic_id]):
            place = topic_id, partition
            if place not in owner:
                load, member_id = loads[0]
                owner[place] = member_id
                owned[member_id].add(place)
                heapq.heapreplace(loads, (load + 1, member_id))


def _balance(
    members: Sequence[str], topic_ids: set[bytes], owned: dict[str, set[TopicIdPartition]], subscribers: Subscribers
) -> bool:
    """Move partitions of these topics, which all `members` read, from the most loaded member to the least loaded one.
    Whether one moved. Each move makes the sum of the squares of the loads smaller, so the moves end."""
    loads = [len(owned[member_id]) for member_id in members]
    if max(loads) - min(loads) <= 1:
        return False
    has_moved = False

    def weight(member_id: str) -> tuple[int, bool, str]:
        is_pending = movable[member_id][0] not in subscribers[member_id].assigned
        return len(owned[member_id]), is_pending, member_id

    movable = {}
    for member_id in members:
        places = sorted((place for place in owned[member_id] if place[0] in topic_ids), reverse=True)
        movable[member_id] = sorted(places, key=lambda place: place in subscribers[member_id].assigned)
    while True:
        light = min(members, key=lambda member_id: (len(owned[member_id]), member_id))
        heavy = max((member_id for member_id in members if movable[member_id]), key=weight, default=light)
        if len(owned[heavy]) - len(owned[light]) <= 1:
            return has_moved
        place = movable[heavy].pop(0)
        owned[heavy].remove(place)
        owned[light].add(place)
        movable[light].append(place)
        has_moved = True


def ranges(subscribers: Subscribers, topics: Topics) -> dict[str, TopicIdPartitions]:
    """Run of consecutive partitions, by the order of instance ids, then of member ids."""
    owned: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in subscribers}
    for readers, topic_ids in _readers(subscribers, topics).items():
        members = sorted(readers, key=lambda each: (subscribers[each].instance_id is None, _name(each, subscribers)))
        for topic_id in topic_ids:
            each, more = divmod(topics[topic_id], len(members))
            start = 0
            for rank, member_id in enumerate(members):
                end = start + each + (rank < more)
                owned[member_id].update((topic_id, partition) for partition in range(start, end))
                start = end
    return {member_id: frozenset(places) for member_id, places in owned.items()}


def _name(member_id: str, subscribers: Subscribers) -> str:
    return subscribers[member_id].instance_id or member_id


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": uniform, "range": ranges}
"""By the name that members ask for (`group.remote.assignor`)."""
