"""One member's talk with its group's coordinator: JoinGroup, SyncGroup, Heartbeat, LeaveGroup; and who it is.

Nothing here decides what to do about an error: every call but the goodbye raises it, `_group` decides.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from semel_protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember, LeaveGroupResponse
from semel_protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

from semel._assignment.assignors import Assignor, GroupMember
from semel._assignment.protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    Subscription,
    by_topic,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from semel._config.consumer import ConsumerConfig
from semel._group.offsets import Membership
from semel._net.cluster import Cluster
from semel._net.connection import Connection
from semel._net.pool import Role
from semel.errors import InconsistentGroupProtocolError, KafkaError, UnsupportedVersionError, error_for
from semel.structs import TopicPartition

log = logging.getLogger(__name__)

STATIC_SINCE = 5
"""JoinGroup version that knows group_instance_id (KIP-345)."""
REBALANCE_GRACE_MS = 5_000
"""What JoinGroup and SyncGroup may take beyond the rebalance timeout, as Kafka's own client allows."""
LEAVE_TIMEOUT_MS = 2_000
"""A member that cannot say goodbye in time just goes: its session ends by itself."""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A generation this member is part of. `members` is empty unless it leads.

    skip_assignment: it leads but must not share out anew, being a static member that came back (KIP-814).
    """

    generation: int
    assignor: Assignor
    leads: bool
    skip_assignment: bool = False
    members: tuple[GroupMember, ...] = ()


class Member:
    """The member's identity: what the coordinator knows it by. Generation -1: not (or no longer) a member.

    outdated: as whom it was given records that are in the application's hands still, of partitions that are not its own
    any more.
    """

    def __init__(self, cluster: Cluster, config: ConsumerConfig) -> None:
        assert config.group_id is not None
        self._cluster, self._config = cluster, config
        self.group_id = config.group_id
        self.member_id = ""
        self.generation = NO_GENERATION
        self.outdated: Membership | None = None
        self._last = self.membership

    @property
    def membership(self) -> Membership:
        """As whom to commit."""
        return Membership(self.generation, self.member_id, self._config.group_instance_id)

    @property
    def transaction_membership(self) -> Membership:
        """As whom to commit in a transaction. Who was a member says so, for nobody would be refused who is none."""
        return self.outdated or (self._last if self.generation == NO_GENERATION else self.membership)

    @property
    def is_outdated(self) -> bool:
        """Whether the application has records in hand that were taken from who this still is."""
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
    ) -> Joined:
        """Enters a rebalance and returns when everybody has.

        owned: what is kept while rebalancing (cooperative); had: what it last had, for sticky assignors; generation: of
        that assignment.
        """
        config = self._config
        protocols = [
            JoinGroupRequestProtocol(
                name=assignor.name,
                metadata=encode_subscription(
                    Subscription(
                        topics=sorted(topics),
                        user_data=assignor.user_data(had, generation),
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
        return Joined(
            generation=answer.generation_id,
            assignor=assignor,
            leads=leads,
            skip_assignment=answer.skip_assignment,
            members=tuple(
                assignor.member(row.member_id, row.group_instance_id, decode_subscription(row.metadata))
                for row in (answer.members if leads else ())
            ),
        )

    async def _send_join(self, protocols: list[JoinGroupRequestProtocol]) -> JoinGroupResponse:
        config = self._config
        connection = await self._connection()
        if self.is_static and connection.version(JoinGroupRequest) < STATIC_SINCE:
            raise UnsupportedVersionError(f"{connection.name} does not know static members (JoinGroup v{STATIC_SINCE})")
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
        self, joined: Joined, assignments: Mapping[str, Sequence[TopicPartition]]
    ) -> tuple[TopicPartition, ...]:
        """Hands in the assignments, as the leader, and returns this member's own."""
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
                    SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
                    for member_id, partitions in assignments.items()
                ],
            ),
            timeout_ms=max(config.request_timeout_ms, config.rebalance_wait_ms + REBALANCE_GRACE_MS),
        )
        self._check(answer.error_code, "sync")
        return decode_assignment(answer.assignment)

    async def heartbeat(self) -> None:
        """Raises RebalanceInProgressError when the group is rebalancing, and the other errors of membership."""
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
        """Says goodbye, so that the others rebalance at once; if it cannot, the session ends by itself. Static members
        do not: they mean to come back."""
        if not self.member_id or self.is_static:
            return
        member_id = self.member_id
        self.forget_identity()
        try:
            await self._send_leave(member_id)
        except KafkaError as error:
            log.info("group %r: could not say goodbye: %s", self.group_id, error)

    async def _send_leave(self, member_id: str) -> None:
        # Not on the connection that a JoinGroup may still be waiting on: the goodbye would wait behind it.
        node_id = await self._cluster.coordinator(self.group_id, timeout_ms=LEAVE_TIMEOUT_MS)
        connection = await self._cluster.connection(node_id, Role.DATA)
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
            raise error_for(code, f"{what} group {self.group_id!r}")
