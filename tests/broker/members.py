"""A member of a consumer group that speaks the raw wire, for tests of groups and offsets."""

from __future__ import annotations

from typing import Any

from broker.wire import Wire
from semel_protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from semel_protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from semel_protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest
from semel_protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from semel_protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment

MEMBER_ID_REQUIRED = 79


def subscription(*topics: str) -> bytes:
    """The subscription metadata of a consumer for its assignor (version 0)."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


class WireMember:
    """One connection, and the member's identity in its group."""

    def __init__(self, wire: Wire, group: str = "g", *, instance: str | None = None, topics: tuple[str, ...] = ("t",)):
        self.wire, self.group, self.instance, self.topics = wire, group, instance, topics
        self.member_id = ""
        self.generation = -1
        self.protocol_type: str | None = "consumer"
        self.protocol: str | None = "range"

    def join_request(self, **fields: Any) -> JoinGroupRequest:
        settings: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription(*self.topics))],
        }
        return JoinGroupRequest(**{**settings, **fields})

    async def join(self, version: int | None = None, **fields: Any) -> Any:
        """Join as a client does, a second time with the given id, and take over the identity of the answer."""
        response = await self.wire.call(self.join_request(**fields), version)
        if response.error_code == MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            response = await self.wire.call(self.join_request(**fields), version)
        return self.take(response)

    def take(self, response: Any) -> Any:
        if response.error_code == 0:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.protocol_type, self.protocol = response.protocol_type or self.protocol_type, response.protocol_name
        return response

    async def sync(self, assignments: dict[str, bytes] | None = None, version: int | None = None) -> Any:
        return await self.wire.call(self.sync_request(assignments), version)

    def sync_request(self, assignments: dict[str, bytes] | None = None) -> SyncGroupRequest:
        rows = [SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in (assignments or {}).items()]
        return SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignments=rows,
        )

    async def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return int((await self.wire.call(request)).error_code)

    async def leave(self, member_id: str | None = None, instance: str | None = None) -> Any:
        row = LeaveGroupRequestMember(
            member_id=self.member_id if member_id is None else member_id, group_instance_id=instance
        )
        return await self.wire.call(LeaveGroupRequest(group_id=self.group, members=[row]))

    async def enter(self) -> None:
        """Join an empty group and assign all partitions to this member."""
        assert (await self.join()).error_code == 0
        assert (await self.sync({self.member_id: b"all"})).assignment == b"all"

    async def commit(
        self, offsets: dict[int, int], *, topic: str = "t", metadata: str = "", **fields: Any
    ) -> list[int]:
        """Commit partition -> offset; the error code of each."""
        response = await self.wire.call(self.commit_request(offsets, topic=topic, metadata=metadata), **fields)
        return [row.error_code for row in response.topics[0].partitions]

    def commit_request(self, offsets: dict[int, int], *, topic: str = "t", metadata: str = "") -> OffsetCommitRequest:
        rows = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=metadata)
            for index, offset in offsets.items()
        ]
        return OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
        )


async def committed(wire: Wire, group: str, *partitions: int, topic: str = "t") -> list[int]:
    """The committed offsets of some partitions, -1 for none, by OffsetFetch v7."""
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))]
    )
    response = await wire.call(request, 7)
    assert response.error_code == 0
    assert all(row.error_code == 0 for row in response.topics[0].partitions)
    return [row.committed_offset for row in response.topics[0].partitions]
