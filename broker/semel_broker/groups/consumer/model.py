"""PURE: A group of the consumer protocol as data: members, target assignment, current assignments; and its changes.

A change is what one record of `__consumer_offsets` says. `ConsumerGroup.apply` is the only way in, for the coordinator
and for a replay. The words are those of KIP-848:

    group epoch        counts the changes of members, subscriptions and topics
    assignment epoch   the group epoch that the target assignment was made for
    target assignment  the partitions that each member should have
    current assignment the partitions that a member has, at its member epoch, and those that it has yet to revoke

A member reaches the assignment epoch once it has revoked what the target assignment takes from it. A partition is given
to a member only after its former owner has revoked it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import IntEnum
from typing import ClassVar, Final, TypeVar

import msgspec
from semel_protocol.consumer_protocol import PROTOCOL_TYPE

T = TypeVar("T")

TopicIdPartition = tuple[bytes, int]
"""(topic id, partition)."""
TopicIdPartitions = frozenset[TopicIdPartition]

CONSUMER: Final = "consumer"
"""The kind of groups of the consumer protocol."""
NOTHING: Final[TopicIdPartitions] = frozenset()
LEFT_STATIC: Final = -2
"""The epoch of a static member that has left and may return within its session timeout."""
NO_EPOCH: Final = -1


class MemberState(IntEnum):
    """The states of a member, with the numbers of Kafka's records.

    STABLE: the member has its target assignment. UNREVOKED: the member has to revoke partitions first. UNRELEASED: the
    member waits for partitions that other members have to revoke.
    """

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


NEXT: dict[MemberState, tuple[MemberState, ...]] = {
    MemberState.STABLE: (MemberState.UNREVOKED, MemberState.UNRELEASED),
    MemberState.UNREVOKED: (MemberState.STABLE, MemberState.UNRELEASED),
    MemberState.UNRELEASED: (MemberState.STABLE, MemberState.UNREVOKED),
}
"""All transitions between states."""


class Classic(msgspec.Struct, frozen=True):
    """The fields of a member of the classic protocol. `protocols`: (name, metadata) of its assignors, in the order of
    its preference."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol(self) -> str:
        """The assignor that the coordinator names to the member: the one that the member prefers."""
        return self.protocols[0][0]


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A member and its subscription: topics by name, and by `regex` (None: none). `classic`: the member uses the
    classic protocol."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: tuple[str, ...] = ()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: Classic | None = None


class Current(msgspec.Struct, frozen=True, kw_only=True):
    """The partitions that a member has (`assigned`), and those that it has to revoke (`revoking`), at its epoch."""

    epoch: int = 0
    previous_epoch: int = NO_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: TopicIdPartitions = NOTHING
    revoking: TopicIdPartitions = NOTHING

    @property
    def held(self) -> TopicIdPartitions:
        """All partitions that no other member may have."""
        return self.assigned | self.revoking

    def enter(self, state: MemberState, **fields: object) -> Current:
        """Change state, as `NEXT` allows."""
        assert state is self.state or state in NEXT[self.state], f"{self.state} -> {state}"
        return msgspec.structs.replace(self, state=state, **fields)


class TopicFacts(msgspec.Struct, frozen=True):
    """A topic as the group knows it."""

    topic_id: bytes
    partition_count: int


class Resolved(msgspec.Struct, frozen=True):
    """The topics that a regular expression matched, at `version` of this broker's topics (-1: read from a record).
    `timestamp_ms`: wall time."""

    topics: tuple[str, ...]
    version: int = -1
    timestamp_ms: int = -1


# --- changes: each is one record, and None in its last field is a tombstone ------------------------------------------


class SetEpoch(msgspec.Struct, frozen=True):
    epoch: int | None


class SetTopics(msgspec.Struct, frozen=True):
    topics: dict[str, TopicFacts] | None


class SetMember(msgspec.Struct, frozen=True):
    member_id: str
    member: Member | None


class SetAssignmentEpoch(msgspec.Struct, frozen=True):
    epoch: int | None


class SetTarget(msgspec.Struct, frozen=True):
    member_id: str
    places: TopicIdPartitions | None


class SetCurrent(msgspec.Struct, frozen=True):
    member_id: str
    current: Current | None


class SetRegex(msgspec.Struct, frozen=True):
    regex: str
    resolved: Resolved | None


Change = SetEpoch | SetTopics | SetMember | SetAssignmentEpoch | SetTarget | SetCurrent | SetRegex


class ConsumerGroup:
    """The members of one group of the consumer protocol, and what they have. Only `apply` changes it.

    `seen_version`: the version of this broker's topics (`Catalog`) that the last decision was made with; it is not
    stored.
    """

    kind: ClassVar[str] = CONSUMER
    protocol_type: ClassVar[str] = PROTOCOL_TYPE

    __slots__ = (
        "assignment_epoch",
        "currents",
        "epoch",
        "group_id",
        "instances",
        "members",
        "owners",
        "regexes",
        "seen_version",
        "targets",
        "topics",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.seen_version = -1
        self.epoch = 0
        self.assignment_epoch = 0
        self.topics: dict[str, TopicFacts] = {}
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}
        self.targets: dict[str, TopicIdPartitions] = {}
        self.currents: dict[str, Current] = {}
        self.owners: dict[TopicIdPartition, str] = {}
        self.regexes: dict[str, Resolved] = {}

    def copy(self) -> ConsumerGroup:
        """A group that a decision may change; the values are immutable and shared."""
        made = ConsumerGroup(self.group_id)
        made.epoch, made.assignment_epoch, made.topics = self.epoch, self.assignment_epoch, self.topics
        made.members, made.instances = dict(self.members), dict(self.instances)
        made.targets, made.currents = dict(self.targets), dict(self.currents)
        made.owners, made.regexes = dict(self.owners), dict(self.regexes)
        return made

    def apply(self, change: Change) -> None:
        """Put one change into effect. Changes with different keys may come in any order."""
        match change:
            case SetEpoch(epoch):
                assert epoch is None or epoch >= self.epoch, (self.group_id, self.epoch, epoch)
                self.epoch = epoch or 0
            case SetAssignmentEpoch(epoch):
                assert epoch is None or epoch >= self.assignment_epoch, (self.group_id, self.assignment_epoch, epoch)
                self.assignment_epoch = epoch or 0
            case SetTopics(topics):
                self.topics = topics or {}
            case SetMember(member_id, member):
                self._set_member(member_id, member)
            case SetCurrent(member_id, current):
                self._set_current(member_id, current)
            case SetTarget(member_id, places):
                _put(self.targets, member_id, places)
            case SetRegex(regex, resolved):
                _put(self.regexes, regex, resolved)

    def _set_member(self, member_id: str, member: Member | None) -> None:
        before = self.members.get(member_id)
        if before is not None and self.instances.get(before.instance_id or "") == member_id:
            del self.instances[before.instance_id or ""]
        _put(self.members, member_id, member)
        if member is not None and member.instance_id is not None:
            self.instances[member.instance_id] = member_id

    def _set_current(self, member_id: str, current: Current | None) -> None:
        assert current is None or current.assigned.isdisjoint(current.revoking), (self.group_id, current)
        before = self.currents.get(member_id)
        for place in before.held if before is not None else ():
            if self.owners.get(place) == member_id:
                del self.owners[place]
        _put(self.currents, member_id, current)
        if current is not None:
            self.owners |= dict.fromkeys(current.held, member_id)

    # --- reading ---

    @property
    def is_blank(self) -> bool:
        return not (self.epoch or self.members)

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_unused(self) -> bool:
        return self.is_empty

    @property
    def generation_id(self) -> int:
        """The group epoch."""
        return self.epoch

    def unused_since_ms(self) -> int | None:
        """Each offset ages from its commit: the records do not say since when the group is empty."""
        return -1

    def end(self, wall_ms: int) -> None:
        """Requests wait for the lock, and then look for the group in the table."""

    @property
    def state_name(self) -> str:
        """The state of the group, under the names that ConsumerGroupDescribe and ListGroups show."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        return "Stable" if all(map(self.has_reached_target, self.members)) else "Reconciling"

    def has_reached_target(self, member_id: str) -> bool:
        """Whether the member has its target assignment; a static member that has left has nothing to reach."""
        current = self.current(member_id)
        if current.epoch == LEFT_STATIC:
            return True
        return current.state is MemberState.STABLE and current.epoch == self.assignment_epoch

    def current(self, member_id: str) -> Current:
        """The current assignment of a member."""
        return self.currents.get(member_id) or Current()

    def topics_read(self) -> frozenset[str]:
        """The names of the topics that members subscribe to."""
        return frozenset(name for member in self.members.values() for name in self.topics_of(member))

    def topics_of(self, member: Member) -> frozenset[str]:
        """The names of the topics that a member subscribes to."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return frozenset((*member.topics, *(resolved.topics if resolved is not None else ())))


def _put(table: dict[str, T], key: str, value: T | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def by_topic(places: Iterable[TopicIdPartition]) -> dict[bytes, list[int]]:
    """Partitions by topic id, both in order, as messages and records name them."""
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    for topic_id, partition in places:
        found[topic_id].append(partition)
    return {topic_id: sorted(found[topic_id]) for topic_id in sorted(found)}
