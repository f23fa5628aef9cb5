"""Admin and consumer groups that have members."""

from __future__ import annotations

import pytest
from broker.consumers import HeartbeatingMember as Member
from broker.harness import Harness
from broker.wire import Wire
from client.fake_broker import FakeBroker
from semel.admin import Admin, ConsumerGroupListing, NewTopic
from semel.consumer import Consumer
from semel.errors import (
    GroupAuthorizationFailedError,
    GroupSubscribedToTopicError,
    NonEmptyGroup,
    UnknownMemberIdError,
)
from semel.structs import OffsetAndMetadata, TopicPartition
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k15_describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
)
from semel_protocol.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseGroup
from semel_protocol.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseGroup,
)

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
            assert member.silent_ms is not None
            assert 0 <= member.silent_ms < 6_000, "its session would have ended"
            assert member.subscription == ("t",)
            assert sorted(member.assignment) == [T0, T1]
            with pytest.raises(NonEmptyGroup):
                await admin.delete_consumer_groups(["g"])
            with pytest.raises(UnknownMemberIdError):
                await admin.alter_consumer_group_offsets("g", {T0: OffsetAndMetadata(0)})
            assert (group.group_type, group.group_epoch, member.member_epoch) == ("classic", None, None)
            await consumer.commit({T0: 0})
            with pytest.raises(GroupSubscribedToTopicError):
                await admin.delete_consumer_group_offsets("g", [T0])
        assert await admin.list_consumer_group_offsets("g") == {T0: OffsetAndMetadata(0, "")}


async def test_groups_are_listed_by_state_and_by_protocol(broker: Harness, bootstrap: str) -> None:
    wire = await Wire.connect(broker.port)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 2)])
        await admin.alter_consumer_group_offsets("classic", {T0: OffsetAndMetadata(0)})
        await Member(wire, "m", "new").beat()
        classic = ConsumerGroupListing("classic", "", "Empty", "classic")
        new = ConsumerGroupListing("new", "consumer", "Stable", "consumer")
        assert await admin.list_consumer_groups() == [classic, new]
        assert await admin.list_consumer_groups(states_filter=["stable"]) == [new]
        assert await admin.list_consumer_groups(states_filter=["Stable", "Empty"]) == [classic, new]
        assert await admin.list_consumer_groups(types_filter=["Classic"]) == [classic]
        assert await admin.list_consumer_groups(states_filter=["Empty"], types_filter=["consumer"]) == []
    await wire.close()


def old_broker(list_groups: int, consumer_group_describe: bool) -> FakeBroker:
    """A broker with the classic groups `busy` (Stable) and `idle` (Empty)."""
    versions = {18: (0, 4), 3: (0, 7), 10: (0, 2), 15: (0, 5), 16: (0, list_groups)}
    states = {"busy": "Stable", "idle": "Empty"}

    async def listed(request: ListGroupsRequest) -> ListGroupsResponse:
        return ListGroupsResponse(groups=[ListGroupsResponseGroup(group_id=name) for name in states])

    async def described(request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        rows = [DescribeGroupsResponseGroup(group_id=name, group_state=states[name]) for name in request.groups]
        return DescribeGroupsResponse(groups=rows)

    broker = FakeBroker(versions=versions | ({69: (0, 0)} if consumer_group_describe else {}))
    broker.answers |= {15: described, 16: listed}
    return broker


def answering(broker: FakeBroker, code: ErrorCode, why: str) -> None:
    async def refused(request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        row = ConsumerGroupDescribeResponseGroup
        return ConsumerGroupDescribeResponse(
            groups=[row(group_id=name, error_code=code, error_message=why) for name in request.group_ids]
        )

    broker.answers[69] = refused


async def test_filters_work_with_brokers_that_have_none() -> None:
    async with old_broker(2, False) as broker, Admin(bootstrap_servers=broker.address) as admin:
        assert [each.state for each in await admin.list_consumer_groups()] == ["", ""]
        assert broker.seen(15) == []
        (found,) = await admin.list_consumer_groups(states_filter=["Empty"])
        assert found == ConsumerGroupListing("idle", "", "Empty", "classic")
        assert len(await admin.list_consumer_groups(types_filter=["classic"])) == 2
        assert await admin.list_consumer_groups(types_filter=["consumer"]) == []


async def test_classic_groups_are_described_where_the_consumer_protocol_is_missing_or_off() -> None:
    async with old_broker(2, False) as broker, Admin(bootstrap_servers=broker.address) as admin:
        assert [each.state for each in await admin.describe_consumer_groups(["busy", "idle"])] == ["Stable", "Empty"]
    for code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND):
        async with old_broker(5, True) as broker, Admin(bootstrap_servers=broker.address) as admin:
            answering(broker, code, "")
            (found,) = await admin.describe_consumer_groups(["busy"])
            assert (found.state, found.group_type, len(broker.seen(69))) == ("Stable", "classic", 1)


async def test_a_refused_description_says_the_brokers_reason() -> None:
    async with old_broker(5, True) as broker, Admin(bootstrap_servers=broker.address) as admin:
        answering(broker, ErrorCode.GROUP_AUTHORIZATION_FAILED, "the reason")
        with pytest.raises(GroupAuthorizationFailedError, match="describing group 'busy': the reason"):
            await admin.describe_consumer_groups(["busy"])
        assert broker.seen(15) == []
