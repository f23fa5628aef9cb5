"""PURE. The membership of one consumer in a group of the consumer protocol (KIP-848), without its requests.

    UNJOINED -> JOINING -> RECONCILING -> STABLE -> RECONCILING -> ...

The coordinator assigns partitions of topic ids, and gives each one only after its former owner has acknowledged its
revocation. A heartbeat carries what the coordinator does not have yet: all of it when joining and after an error, in
which case the coordinator may have an unanswered heartbeat. A fenced member has lost its partitions, and joins again
with epoch 0 after the application knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec
from semel_protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)

from semel._config.consumer import ConsumerConfig
from semel._group.offsets import Membership

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
"""A static member leaves for a while: its partitions wait for it until its session ends."""
FIRST_INTERVAL_MS = 5_000
"""Kafka's default interval of heartbeats, until the first answer names the group's."""

IdPartition = tuple[bytes, int]
"""(topic id, partition)."""


class State(Enum):
    UNJOINED = "not a member"
    JOINING = "waiting for the first assignment"
    RECONCILING = "exchanging partitions"
    STABLE = "a member"
    FENCED = "losing its partitions"
    LEAVING = "leaving"
    FAILED = "failed for good"
    STOPPED = "stopped"


NEXT: dict[State, tuple[State, ...]] = {
    State.UNJOINED: (State.JOINING, State.LEAVING),
    State.JOINING: (State.RECONCILING, State.FENCED, State.LEAVING, State.FAILED),
    State.RECONCILING: (State.STABLE, State.FENCED, State.LEAVING, State.FAILED),
    State.STABLE: (State.RECONCILING, State.FENCED, State.LEAVING, State.FAILED),
    State.FENCED: (State.JOINING, State.LEAVING),
    State.LEAVING: (State.UNJOINED, State.STOPPED),
    State.FAILED: (State.STOPPED,),
    State.STOPPED: (),
}

MEMBER_STATES = (State.RECONCILING, State.STABLE)
"""The coordinator has given this member an epoch."""
BEATING_STATES = (State.JOINING, *MEMBER_STATES)


class Subscribed(msgspec.Struct, frozen=True):
    """The subscription as the coordinator gets it. regex: "" without one."""

    names: tuple[str, ...] = ()
    regex: str = ""


class ReportedMember(msgspec.Struct, frozen=True):
    """The subscription and the partitions that a heartbeat reports. owned: also partitions that are yet to be adopted.

    The coordinator gives partitions that this member does not report to other members. So a partition counts as owned
    from the answer that assigns it: the member may adopt it while the next heartbeat is under way. It counts as owned
    until another answer takes it away; the next heartbeat reports that.
    """

    subscribed: Subscribed
    owned: frozenset[IdPartition]


class ConsumerMember:
    """The member's identity, its target assignment, and the partitions it owns.

    epoch: 0 before the coordinator has given one.
    outdated: the membership under which the application got records of partitions that are revoked since.
    """

    def __init__(self, config: ConsumerConfig, member_id: str) -> None:
        assert config.group_id is not None
        self._config = config
        self._made_id = member_id
        self.group_id = config.group_id
        self.state = State.UNJOINED
        self.member_id = ""
        self.epoch = JOIN_EPOCH
        self.interval_ms: float = FIRST_INTERVAL_MS
        self.target: frozenset[IdPartition] = frozenset()
        self.targets = 0
        """The number of assignments received. A repeated one counts: the listener gets a call for each."""
        self.owned: frozenset[IdPartition] = frozenset()
        self.outdated: Membership | None = None
        self._known: ReportedMember | None = None
        """The state of this member at the coordinator since the last answer."""
        self._has_sent = False
        self._last = Membership()

    def move(self, state: State) -> None:
        assert state is self.state or state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state

    # For commits

    @property
    def membership(self) -> Membership:
        """The membership for commits. After it ended it is the last one, so that the coordinator refuses it: a commit
        without a membership would be accepted.
        """
        return self._last

    @property
    def transaction_membership(self) -> Membership:
        """The membership for commits in a transaction."""
        return self.outdated or self._last

    @property
    def fetching_membership(self) -> Membership | None:
        """The membership for reading committed offsets; None at the moment without one, which the coordinator
        accepts.
        """
        return self._last if self.state in MEMBER_STATES else None

    # Heartbeats

    def join(self) -> None:
        """Begin to join. The coordinator gets everything with the next heartbeat."""
        self.move(State.JOINING)
        self.epoch, self._known = JOIN_EPOCH, None

    def says(self, subscribed: Subscribed) -> ReportedMember:
        """The state that a heartbeat reports now."""
        return ReportedMember(subscribed, self.owned | self.target)

    def is_due(self, subscribed: Subscribed) -> bool:
        """Whether the coordinator lacks something, so that the next heartbeat does not wait for its interval."""
        return self._known != self.says(subscribed)

    def heartbeat(self, said: ReportedMember, *, makes_own_id: bool) -> ConsumerGroupHeartbeatRequest:
        """The next heartbeat, which says this as far as the coordinator does not have it.

        makes_own_id: in version 0 the coordinator chooses the member id instead.
        """
        config, known = self._config, self._known
        if not self.member_id and makes_own_id:
            self.member_id = self._made_id
        self._has_sent = True
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=config.group_instance_id,
        )
        if known is None:
            request.rack_id = config.client_rack or None
            request.rebalance_timeout_ms = config.rebalance_wait_ms
            request.server_assignor = config.group_remote_assignor
        if known is None or known.subscribed != said.subscribed:
            request.subscribed_topic_names = list(said.subscribed.names)
            # "" replaces an earlier expression. Version 0 has no field for one.
            request.subscribed_topic_regex = said.subscribed.regex if makes_own_id else None
        if known is None or known.owned != said.owned:
            request.topic_partitions = _topic_partitions(said.owned)
        return request

    def answered(
        self, request: ConsumerGroupHeartbeatRequest, said: ReportedMember, answer: ConsumerGroupHeartbeatResponse
    ) -> None:
        """Apply an answer without error. said: what the request says.

        The answer to a request of an older epoch changes nothing: the member was fenced meanwhile.
        """
        if self.state not in BEATING_STATES or request.member_epoch != self.epoch:
            return
        self.member_id = answer.member_id or self.member_id
        self.epoch = answer.member_epoch
        self.interval_ms = answer.heartbeat_interval_ms or self.interval_ms
        self._known = said
        if answer.assignment is not None or self.state is State.JOINING:
            rows = answer.assignment.topic_partitions if answer.assignment is not None else []
            self.target = frozenset((row.topic_id, index) for row in rows for index in row.partitions)
            self.targets += 1
            self.move(State.RECONCILING)
        self._last = Membership(self.epoch, self.member_id, self._config.group_instance_id)

    def unanswered(self) -> None:
        """A heartbeat failed. The coordinator may have applied it or not: the next one carries everything."""
        self._known = None

    # Partitions

    def own(self, partitions: Iterable[IdPartition]) -> None:
        """Replace the owned partitions. The next heartbeat acknowledges them."""
        assert self.state in MEMBER_STATES, self.state
        self.owned = frozenset(partitions)

    def fence(self) -> None:
        """The coordinator has removed this member: all partitions are lost."""
        self.move(State.FENCED)
        self._forget()
        self._has_sent = False

    def leave_request(self) -> ConsumerGroupHeartbeatRequest | None:
        """The last heartbeat, which leaves the group; None when the coordinator has no such member."""
        assert self.state is State.LEAVING
        static = self._config.group_instance_id
        self._forget()
        if not self._has_sent or not self.member_id:
            return None
        self._has_sent = False
        epoch = LEAVE_EPOCH if static is None else STATIC_LEAVE_EPOCH
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, instance_id=static
        )

    def _forget(self) -> None:
        self.epoch, self.target, self.owned, self._known = JOIN_EPOCH, frozenset(), frozenset(), None


def _topic_partitions(partitions: Iterable[IdPartition]) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    by_id: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_id.setdefault(topic_id, []).append(index)
    return [
        ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=indexes)
        for topic_id, indexes in by_id.items()
    ]


def topic_ids(partitions: Iterable[IdPartition]) -> Sequence[bytes]:
    """The distinct topic ids, in order."""
    return sorted(dict.fromkeys(topic_id for topic_id, _ in partitions))
