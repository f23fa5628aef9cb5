"""A member of the consumer protocol (KIP-848) that speaks the raw wire."""

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
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from semel_protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)

Owned = frozenset[tuple[bytes, int]]


class HeartbeatingMember:
    """One member. `owned`: its partitions, as of the last answers."""

    def __init__(
        self,
        wire: Wire,
        member_id: str,
        group: str = "g",
        *,
        topics: tuple[str, ...] | None = ("t",),
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.wire, self.member_id, self.group, self.instance = wire, member_id, group, instance
        self.topics, self.regex, self.assignor = topics, regex, assignor
        self.epoch = 0
        self.owned: Owned = frozenset()

    @property
    def partitions(self) -> list[int]:
        return sorted(partition for _, partition in self.owned)

    def request(self, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        joins = self.epoch == 0
        rows: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(self.owned):
            rows.setdefault(topic_id, []).append(partition)
        settings: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            "rebalance_timeout_ms": 10_000 if joins else -1,
            "subscribed_topic_names": list(self.topics or ()) if joins else None,
            "subscribed_topic_regex": self.regex if joins else None,
            "server_assignor": self.assignor if joins else None,
            "topic_partitions": [
                ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=found)
                for topic_id, found in rows.items()
            ],
        }
        return ConsumerGroupHeartbeatRequest(**{**settings, **fields})

    async def beat(self, version: int = 1, **fields: Any) -> int:
        """Send one heartbeat. Returns its error code."""
        return self.take(await self.wire.call(self.request(**fields), version))

    def take(self, answer: Any) -> int:
        code: int = answer.error_code
        if code == 0:
            self.epoch, self.member_id = answer.member_epoch, answer.member_id
            if answer.assignment is not None:
                self.owned = frozenset(
                    (row.topic_id, index) for row in answer.assignment.topic_partitions for index in row.partitions
                )
        return code

    async def leave(self, epoch: int = -1) -> int:
        answer = await self.wire.call(self.request(member_epoch=epoch, topic_partitions=None), 1)
        self.epoch, self.owned = 0, frozenset()
        return int(answer.error_code)

    async def commit(
        self, offsets: dict[int, int], *, epoch: int | None = None, topic: str = "t", version: int = 9
    ) -> list[int]:
        rows = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata="")
            for index, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch if epoch is None else epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)],
        )
        answer = await self.wire.call(request, version)
        return [row.error_code for row in answer.topics[0].partitions]

    async def fetch(self, *partitions: int, epoch: int | None = None, topic: str = "t", is_named: bool = True) -> Any:
        """Fetch the offsets of the group. is_named: whether the request has a member id."""
        row = OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=self.member_id if is_named else None,
            member_epoch=self.epoch if epoch is None else epoch,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))],
        )
        return (await self.wire.call(OffsetFetchRequest(groups=[row]), 9)).groups[0]


async def settle(*members: HeartbeatingMember, rounds: int = 4) -> None:
    """Send heartbeats of all members until each has its target assignment."""
    for _ in range(rounds):
        for member in members:
            assert await member.beat() == 0
