"""A client that waits for a topic, a partition or a match logs this once, with similar names."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from client.fake_broker import QUICK, FakeBroker
from semel import BatchReader, Consumer, Producer, TopicPartition
from semel._edge import Edge
from semel._net.outage import LastingFacts
from semel.errors import KafkaTimeoutError, TopicAuthorizationFailedError
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

UNHURRIED = {**QUICK, "retry_backoff_ms": 100, "retry_backoff_max_ms": 200}
"""For tests that wait for many seconds: with the backoff of `QUICK` each second costs hundreds of requests."""


def settings(broker: FakeBroker, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": broker.address, **UNHURRIED, **more}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [row.getMessage() for row in caplog.records if row.levelname == "WARNING"]


async def waited(consumer: Consumer[Any, Any]) -> None:
    async with consumer:
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(30)  # virtual: so long passes while the consumer waits
        assert not waiting.done()
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_a_consumer_of_a_missing_topic_warns_once_and_names_a_similar_one(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fake_broker.topics["flights"] = 1
    await waited(Consumer("flihgts", **settings(fake_broker, allow_auto_create_topics=False)))
    (said,) = warnings(caplog)
    assert "topic 'flihgts' does not exist, or this principal may not see it. Did you mean 'flights'?" in said
    assert "This client does not ask the broker to create it" in said


async def test_a_broker_that_does_not_create_topics_is_named(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await waited(Consumer("other", **settings(fake_broker)))
    (said,) = warnings(caplog)
    assert "auto.create.topics.enable" in said
    assert "Did you mean" not in said


async def test_a_topic_that_appears_within_a_second_causes_no_warning_and_one_that_is_deleted_does(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer("new", **settings(fake_broker))
    fake_broker.answers[1] = fake_broker.answers[2] = _never
    async with consumer:
        await asyncio.sleep(0.9)  # virtual
        fake_broker.topics["new"] = 1
        await asyncio.sleep(10)  # virtual
        assert warnings(caplog) == []
        del fake_broker.topics["new"]
        consumer._cluster.request_refresh()
        await asyncio.sleep(10)  # virtual
        assert ["'new' does not exist" in said for said in warnings(caplog)] == [True]


async def _never(_: object) -> None:
    await asyncio.Event().wait()


async def test_a_partition_that_does_not_exist_is_named(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer(**settings(fake_broker, default_api_timeout_ms=500))
    consumer.assign([TopicPartition("t", 7)])
    await waited(consumer)
    (said,) = warnings(caplog)
    assert "t has no partition 7: it has 1, numbered from 0" in said
    async with Consumer(**settings(fake_broker, default_api_timeout_ms=500)) as other:
        with pytest.raises(KafkaTimeoutError, match="t has no partition 7"):
            await other.end_offsets([TopicPartition("t", 7)])


async def test_a_partition_without_a_leader_is_named(fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    fake_broker.leader = -1
    consumer = Consumer(**settings(fake_broker))
    consumer.assign([TopicPartition("t", 0)])
    await waited(consumer)
    (said,) = warnings(caplog)
    assert "t-0 has no leader: its replicas are offline" in said


async def test_a_pattern_that_matches_nothing_is_named(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer(**settings(fake_broker))
    consumer.subscribe(pattern="orders.*")
    await waited(consumer)
    (said,) = warnings(caplog)
    assert "the pattern 'orders.*' matches the start of no topic that this principal may see" in said


async def test_a_topic_that_may_not_be_described_is_named(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(_: object) -> MetadataResponse:
        answer = await fake_broker.metadata(_)  # type: ignore[arg-type]
        answer.topics = [MetadataResponseTopic(name="t", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
        return answer

    fake_broker.answers[3] = refuse
    await waited(Consumer("t", **settings(fake_broker)))
    (said,) = warnings(caplog)
    assert "topic 't' cannot be used, trying again: [29 TOPIC_AUTHORIZATION_FAILED]" in said
    consumer = Consumer(**settings(fake_broker))
    consumer.assign([TopicPartition("t", 0)])
    async with consumer:
        with pytest.raises(TopicAuthorizationFailedError):
            await consumer.getone()


async def test_send_to_a_missing_topic_warns_and_its_timeout_names_a_similar_one(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fake_broker.topics["flights"] = 1
    async with Producer(**settings(fake_broker, max_block_ms=5_000)) as producer:
        with pytest.raises(KafkaTimeoutError, match=r"check its name.* Did you mean 'flights'"):
            await producer.send("flight", b"x")
    (said,) = warnings(caplog)
    assert "topic 'flight' does not exist" in said


async def test_offsets_of_a_missing_topic_say_that_it_is_missing(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async with BatchReader(**settings(fake_broker, default_api_timeout_ms=5_000)) as reader:
        with pytest.raises(KafkaTimeoutError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await reader.bounds([TopicPartition("other", 0)])
    assert ["'other' does not exist" in said for said in warnings(caplog)] == [True]


async def test_a_topic_whose_partitions_get_their_leaders_late_causes_no_warning(
    fake_broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def elected_later(request: Any) -> MetadataResponse:
        answer = await fake_broker.metadata(request)
        rows = [MetadataResponsePartition(partition_index=0, leader_id=-1)]
        code = ErrorCode.LEADER_NOT_AVAILABLE
        answer.topics = [MetadataResponseTopic(name="t", error_code=code, partitions=rows)]
        return answer

    fake_broker.answers[3] = elected_later
    fake_broker.answers[1] = fake_broker.answers[2] = _never
    async with Consumer("t", **settings(fake_broker)):
        await asyncio.sleep(3)  # virtual
        fake_broker.answers[3] = fake_broker.metadata
        await asyncio.sleep(10)  # virtual
    assert warnings(caplog) == []


def test_a_fact_is_logged_once_after_its_time_and_again_when_it_recurs() -> None:
    clock = Edge()
    now = 0.0
    clock.monotonic = lambda: now  # type: ignore[method-assign]
    facts: LastingFacts[str] = LastingFacts(clock)
    assert facts.due({"a": 1.0, "b": 0.0}) == ["b"]
    now = 1.0
    assert facts.due({"a": 1.0, "b": 0.0}) == ["a"]
    assert facts.due({"b": 0.0}) == []
    assert facts.due({"a": 1.0}) == []
    now = 2.0
    assert facts.due({"a": 1.0, "b": 0.0}) == ["a", "b"]
