"""One member's requests to its coordinator: JoinGroup, SyncGroup, Heartbeat, LeaveGroup; and its identity.

Nothing here reacts to errors. Every call but `leave` raises them, and `Group` decides.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec
from semel_protocol.acls import Operation
from semel_protocol.consumer_protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    Subscription,
    by_topic,
    decode_embedded,
    encode_embedded,
)
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from semel_protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember, LeaveGroupResponse
from semel_protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

from semel._assignment.assignors import Assignor, GroupMember
from semel._assignment.protocol import encode_assignment, partitions_of, read_assignment
from semel._config.consumer import ConsumerConfig
from semel._group.offsets import Membership
from semel._net.cluster import Cluster
from semel._net.connection import Connection
from semel._net.pool import ConnectionPurpose
from semel.errors import InconsistentGroupProtocolError, KafkaError, UnsupportedVersionError, error_for
from semel.structs import TopicPartition

log = logging.getLogger(__name__)

STATIC_SINCE = 5
"""The JoinGroup version that has group_instance_id (KIP-345)."""
REBALANCE_GRACE_MS = 5_000
"""The time that JoinGroup and SyncGroup may take beyond the rebalance timeout, as in Kafka's own client."""
LEAVE_TIMEOUT_MS = 2_000
"""The longest time for LeaveGroup. Without it the session ends by itself."""


class JoinedGeneration(msgspec.Struct, frozen=True, kw_only=True):
    """A generation that this member is part of. members: empty unless this member is the group's leader.

    skip_assignment: the leader must not assign, because a static member came back (KIP-814).
    """

    generation: int
    assignor: Assignor
    leads: bool
    skip_assignment: bool = False
    members: tuple[GroupMember, ...] = ()


class GroupIdentity:
    """The member's identity for the coordinator. generation -1: not, or no longer, a member.

    outdated: the membership under which the application got records of partitions that are revoked since.
    """

    def __init__(self, cluster: Cluster, config: ConsumerConfig) -> None:
        assert config.group_id is not None
        self._cluster, self._config = cluster, config
        self.group_id = config.group_id
        self.member_id = ""
        self.generation = NO_GENERATION
        self.outdated: Membership | None = None
        self._last = self.membership
        self._leaving = ""
        """The member id of a LeaveGroup without an outcome: the call was cancelled."""

    @property
    def membership(self) -> Membership:
        """The membership for commits."""
        return Membership(self.generation, self.member_id, self._config.group_instance_id)

    @property
    def transaction_membership(self) -> Membership:
        """The membership for commits in a transaction. After the membership ended it is the last one, so that the
        coordinator refuses it: a commit without a membership would be accepted.
        """
        return self.outdated or (self._last if self.generation == NO_GENERATION else self.membership)

    @property
    def is_outdated(self) -> bool:
        """Whether the application processes records that it got under the current member id and that are revoked
        since.
        """
        return self.outdated is not None and self.outdated.member_id == self.member_id

    @property
    def is_static(self) -> bool:
        return self._config.group_instance_id is not None

    def forget_generation(self) -> None:
        self.generation = NO_GENERATION

    def forget_identity(self) -> None:
        self.member_id, self.generation = "", NO_GENERATION

    async def join(
        self, topics: Sequence[str], owned: Sequence[TopicPartition], had: Sequence[TopicPartition], generation: int
    ) -> JoinedGeneration:
        """Join the group and return when the rebalance has all its members.

        owned: the partitions kept while rebalancing (cooperative).
        had: the last assignment, for sticky assignors. generation: of that assignment.
        """
        config = self._config
        protocols = [
            JoinGroupRequestProtocol(
                name=assignor.name,
                metadata=encode_embedded(
                    Subscription(
                        topics=sorted(topics),
                        user_data=assignor.user_data(had, generation, sorted(topics)),
                        owned_partitions=by_topic(owned),
                        generation_id=generation if owned else NO_GENERATION,
                        rack_id=config.client_rack or None,
                    )
                ),
            )
            for assignor in config.assignors
        ]
        answer = await self._send_join(protocols)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = await self._send_join(protocols)
        self._check(answer.error_code, "join")
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self._last = self.membership
        leads = answer.leader == answer.member_id
        assignor = next((a for a in config.assignors if a.name == answer.protocol_name), None)
        if assignor is None:
            raise InconsistentGroupProtocolError(f"the group runs {answer.protocol_name!r}, which was not offered")
        return JoinedGeneration(
            generation=answer.generation_id,
            assignor=assignor,
            leads=leads,
            skip_assignment=answer.skip_assignment,
            members=tuple(
                assignor.member(row.member_id, row.group_instance_id, decode_embedded(Subscription, row.metadata))
                for row in (answer.members if leads else ())
            ),
        )

    async def _send_join(self, protocols: list[JoinGroupRequestProtocol]) -> JoinGroupResponse:
        config = self._config
        connection = await self._connection()
        if self.is_static and connection.version(JoinGroupRequest) < STATIC_SINCE:
            raise UnsupportedVersionError(f"{connection.name} has no static members (JoinGroup v{STATIC_SINCE})")
        answer: JoinGroupResponse = await connection.request(
            JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.rebalance_wait_ms,
                member_id=self.member_id,
                group_instance_id=config.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=protocols,
            ),
            timeout_ms=max(config.request_timeout_ms, config.rebalance_wait_ms + REBALANCE_GRACE_MS),
        )
        return answer

    async def sync(
        self, joined: JoinedGeneration, assignments: Mapping[str, Sequence[TopicPartition]]
    ) -> tuple[TopicPartition, ...]:
        """Send the assignments, as the group's leader, and return this member's own."""
        config = self._config
        connection = await self._connection()
        answer: SyncGroupResponse = await connection.request(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=joined.generation,
                member_id=self.member_id,
                group_instance_id=config.group_instance_id,
                protocol_type=PROTOCOL_TYPE,
                protocol_name=joined.assignor.name,
                assignments=[
                    SyncGroupRequestAssignment(
                        member_id=member_id,
                        assignment=encode_assignment(partitions, joined.assignor.assignment_data(member_id)),
                    )
                    for member_id, partitions in assignments.items()
                ],
            ),
            timeout_ms=max(config.request_timeout_ms, config.rebalance_wait_ms + REBALANCE_GRACE_MS),
        )
        self._check(answer.error_code, "sync")
        assignment = read_assignment(answer.assignment)
        joined.assignor.adopted(assignment)
        return partitions_of(assignment.assigned_partitions)

    async def heartbeat(self) -> None:
        """Raise RebalanceInProgressError when the group is rebalancing, and the other errors of membership."""
        connection = await self._connection()
        answer: HeartbeatResponse = await connection.request(
            HeartbeatRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self._config.group_instance_id,
            ),
            timeout_ms=min(self._config.request_timeout_ms, self._config.session_timeout_ms),
        )
        self._check(answer.error_code, "heartbeat")

    async def leave(self) -> None:
        """Leave the group, so that the others rebalance at once. If that fails, the session ends by itself. Static
        members do not leave (KIP-345). A call that follows a cancelled one completes it.
        """
        member_id = self.member_id or self._leaving
        if not member_id or self.is_static:
            return
        self.forget_identity()
        self._leaving = member_id
        try:
            await self._send_leave(member_id)
        except KafkaError as error:
            log.info("group %r: cannot leave, the session will time out: %s", self.group_id, error)
        self._leaving = ""

    async def _send_leave(self, member_id: str) -> None:
        # Not on the coordinator connection: LeaveGroup would wait there for the answer of a JoinGroup.
        node_id = await self._cluster.coordinator(self.group_id, timeout_ms=LEAVE_TIMEOUT_MS)
        connection = await self._cluster.connection(node_id, ConnectionPurpose.DATA)
        answer: LeaveGroupResponse = await connection.request(
            LeaveGroupRequest(
                group_id=self.group_id,
                member_id=member_id,
                members=[LeaveGroupRequestMember(member_id=member_id)],
            ),
            timeout_ms=LEAVE_TIMEOUT_MS,
        )
        self._check(answer.error_code, "leave")

    async def _connection(self) -> Connection:
        try:
            return await self._cluster.coordinator_connection(self.group_id)
        except KafkaError:
            self._cluster.forget_coordinator(self.group_id)
            raise

    def _check(self, code: int, what: str) -> None:
        if code:
            right = self._cluster.right(Operation.READ, group=self.group_id)
            raise error_for(code, f"{what} group {self.group_id!r}", right)
