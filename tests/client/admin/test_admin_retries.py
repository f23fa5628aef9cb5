"""Admin against a scripted broker: the requests that are retried, those that are not, and the errors of unknown
outcomes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from client.fake_broker import FakeBroker
from semel.admin import LATEST, Admin, NewTopic
from semel.errors import (
    BrokerResponseError,
    KafkaProtocolError,
    KafkaTimeoutError,
    NonEmptyGroup,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from semel.structs import TopicPartition
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from semel_protocol.messages.k19_create_topics import CreateTopicsResponse, CreateTopicsResponseTopic
from semel_protocol.messages.k20_delete_topics import DeleteTopicsResponse, DeleteTopicsResponseTopic
from semel_protocol.messages.k42_delete_groups import DeleteGroupsResponse, DeleteGroupsResponseResult


def admin_of(fake: FakeBroker, **settings: Any) -> Admin:
    return Admin(bootstrap_servers=fake.address, retry_backoff_ms=1, max_block_ms=3000, **settings)


def script(fake: FakeBroker, api_key: int, *answers: Any) -> list[Any]:
    """Answer this API with these answers, one per request, the last one for ever.

    An exception closes the connection.
    """
    seen: list[Any] = []

    async def answer(request: Any) -> Any:
        chosen = answers[min(len(seen), len(answers) - 1)]
        seen.append(request)
        if isinstance(chosen, Exception):
            raise chosen
        return chosen

    fake.answers[api_key] = answer
    return seen


def created(**codes: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreateTopicsResponseTopic(name=name, error_code=code) for name, code in codes.items()]
    )


async def test_a_new_controller_gets_only_the_parts_without_an_outcome(fake_broker: FakeBroker) -> None:
    seen = script(fake_broker, 19, created(a=0, b=ErrorCode.NOT_CONTROLLER), created(b=0))
    async with admin_of(fake_broker) as admin:
        await admin.create_topics([NewTopic("a"), NewTopic("b")])
    assert [[topic.name for topic in request.topics] for request in seen] == [["a", "b"], ["b"]]


async def test_a_final_error_is_not_retried(fake_broker: FakeBroker) -> None:
    rows = [DeleteTopicsResponseTopic(name="x", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    seen = script(fake_broker, 20, DeleteTopicsResponse(responses=rows))
    async with admin_of(fake_broker) as admin:
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.delete_topics(["x"])
    assert len(seen) == 1


async def test_a_refusal_after_a_lost_answer_notes_that_the_first_try_may_have_succeeded(
    fake_broker: FakeBroker,
) -> None:
    script(fake_broker, 19, ConnectionError("lost"), created(a=ErrorCode.TOPIC_ALREADY_EXISTS))
    async with admin_of(fake_broker) as admin:
        with pytest.raises(TopicAlreadyExistsError) as caught:
            await admin.create_topics([NewTopic("a")])
    assert "may have taken effect" in caught.value.__notes__[-1]


async def test_a_call_times_out_while_there_is_no_controller(fake_broker: FakeBroker) -> None:
    script(fake_broker, 19, created(a=ErrorCode.NOT_CONTROLLER))
    async with admin_of(fake_broker) as admin:
        with pytest.raises(KafkaTimeoutError, match="NOT_CONTROLLER"):
            await admin.create_topics([NewTopic("a")], timeout_ms=100)


async def test_an_answer_that_leaves_something_out_is_an_error(fake_broker: FakeBroker) -> None:
    script(fake_broker, 19, created(a=0))
    async with admin_of(fake_broker) as admin:
        with pytest.raises(KafkaProtocolError, match="'b'"):
            await admin.create_topics([NewTopic("a"), NewTopic("b")])


async def test_an_api_that_the_broker_does_not_serve_says_so_at_once(fake_broker: FakeBroker) -> None:
    del fake_broker.versions[19]
    async with admin_of(fake_broker) as admin, asyncio.timeout(2):
        with pytest.raises(UnsupportedVersionError, match="CreateTopics"):
            await admin.create_topics([NewTopic("a")])


async def test_a_moved_coordinator_is_looked_up_again(fake_broker: FakeBroker) -> None:
    def deleted(code: int) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[DeleteGroupsResponseResult(group_id="g", error_code=code)])

    seen = script(
        fake_broker, 42, deleted(ErrorCode.NOT_COORDINATOR), deleted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), deleted(0)
    )
    async with admin_of(fake_broker) as admin:
        await admin.delete_consumer_groups(["g"])
        assert len(seen) == 3
        assert len(fake_broker.seen(10)) == 2  # loading is waited for where it happens
        script(fake_broker, 42, deleted(ErrorCode.NON_EMPTY_GROUP))
        with pytest.raises(NonEmptyGroup, match="'g'"):
            await admin.delete_consumer_groups(["g"])


async def test_a_new_leader_gets_a_request_for_its_partitions_only(fake_broker: FakeBroker) -> None:
    fake_broker.topics["t"] = 2

    def offsets(*rows: tuple[int, int, int]) -> ListOffsetsResponse:
        partitions = [
            ListOffsetsResponsePartition(partition_index=index, error_code=code, offset=offset)
            for index, code, offset in rows
        ]
        return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(name="t", partitions=partitions)])

    seen = script(fake_broker, 2, offsets((0, 0, 5), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)), offsets((1, 0, 6)))
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    async with admin_of(fake_broker) as admin:
        found = await admin.list_offsets({zero: LATEST, one: LATEST})
    assert (found[zero].offset, found[one].offset) == (5, 6)
    assert [row.partition_index for row in seen[1].topics[0].partitions] == [1]


async def test_a_cancelled_call_leaves_an_admin_that_still_works(fake_broker: FakeBroker) -> None:
    script(fake_broker, 19, created(a=ErrorCode.NOT_CONTROLLER))
    async with admin_of(fake_broker) as admin:
        calling = asyncio.ensure_future(admin.create_topics([NewTopic("a")]))
        await asyncio.sleep(0.01)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        script(fake_broker, 19, created(a=0))
        await admin.create_topics([NewTopic("a")])


async def test_unknown_error_codes_are_shown_by_number(fake_broker: FakeBroker) -> None:
    script(fake_broker, 19, created(a=9999))
    async with admin_of(fake_broker) as admin:
        with pytest.raises(BrokerResponseError, match="9999"):
            await admin.create_topics([NewTopic("a")])
