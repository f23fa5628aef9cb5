"""Admin and consumer groups that live."""

from __future__ import annotations

import pytest
from semel.admin import Admin, NewTopic
from semel.consumer import Consumer
from semel.errors import GroupSubscribedToTopicError, NonEmptyGroup, UnknownMemberIdError
from semel.structs import OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_a_living_group_is_described_with_members_and_assignments(bootstrap: str) -> None:
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 2)])
        async with Consumer(
            "t",
            bootstrap_servers=bootstrap,
            group_id="g",
            client_id="reader",
            group_instance_id="one",
            session_timeout_ms=6_000,
            enable_auto_commit=False,
        ) as consumer:
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
            (group,) = await admin.describe_consumer_groups(["g"])
            assert (group.group_id, group.state, group.coordinator) == ("g", "Stable", 0)
            assert (group.protocol_type, group.protocol) == ("consumer", "range")
            (member,) = group.members
            assert (member.client_id, member.client_host) == ("reader", "127.0.0.1")
            assert member.subscription == ("t",)
            assert sorted(member.assignment) == [T0, T1]
            with pytest.raises(NonEmptyGroup):
                await admin.delete_consumer_groups(["g"])
            with pytest.raises(UnknownMemberIdError):
                await admin.alter_consumer_group_offsets("g", {T0: OffsetAndMetadata(0)})
            await consumer.commit({T0: 0})
            with pytest.raises(GroupSubscribedToTopicError):
                await admin.delete_consumer_group_offsets("g", [T0])
        assert await admin.list_consumer_group_offsets("g") == {T0: OffsetAndMetadata(0, "")}
