"""`initTransactions` raises TimeoutException: the coordinator does not answer within max.block.ms."""

from __future__ import annotations

import asyncio

import pytest
from broker.troubles.conftest import MakeScene
from broker.troubles.single_topic_broker import PATIENCE_S, TOPIC, SingleTopicBroker, heard_out, refused
from confluent_kafka import KafkaException
from semel._command_line.common import FOUND_TROUBLE
from semel.errors import KafkaConnectionError, KafkaTimeoutError


@pytest.mark.proves("init-transactions-times-out")
async def test_init_transactions_times_out_and_may_be_repeated(
    make_scene: MakeScene,
) -> None:
    topic_broker = make_scene(durability="fsync")
    async with topic_broker.producer("ANOTHER"):
        pass  # now the transactions topic exists, and the coordinator is known
    await topic_broker.stall_disk()
    producer = topic_broker.producer(max_block_ms=200)
    with refused(
        KafkaTimeoutError, "'TEST-TID-0'", "within 200 ms", "did not answer InitProducerId", "safe to try again"
    ):
        await producer.start()
    await topic_broker.release_disk()
    async with topic_broker.producer() as again, again.transaction():
        await again.send(TOPIC, b"1")
    assert await topic_broker.values(1) == [b"1"]


@pytest.mark.proves("init-transactions-times-out")
async def test_librdkafka_may_call_it_again_on_the_same_producer(make_scene: MakeScene) -> None:
    topic_broker = make_scene(durability="fsync")
    await topic_broker.stall_disk()
    producer = topic_broker.librdkafka()
    with pytest.raises(KafkaException, match="TIMED_OUT") as failed:
        await asyncio.to_thread(producer.init_transactions, 0.3)
    assert failed.value.args[0].retriable()
    await topic_broker.release_disk()
    await asyncio.to_thread(producer.init_transactions, PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"1")
    await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)
    assert await topic_broker.values(1) == [b"1"]


@pytest.mark.proves("init-transactions-times-out")
async def test_it_waits_for_a_decided_commit_and_times_out_with_the_reason(topic_broker: SingleTopicBroker) -> None:
    """A new instance cannot begin until all markers of the last transaction are written."""
    async with topic_broker.producer(max_block_ms=300) as old:
        await old.begin_transaction()
        await old.send_and_wait(TOPIC, b"1")
        await topic_broker.lose_leader(TOPIC)
        with refused(KafkaTimeoutError, "commit_transaction()", "call commit_transaction() again"):
            await old.commit_transaction()
        with refused(KafkaTimeoutError, "'TEST-TID-0'", "safe to try again"):
            await topic_broker.producer(max_block_ms=300).start()
        story = await topic_broker.semel("txn", "why", "TEST-TID-0")
        assert "PrepareCommit" in story
        assert "The commit is decided and durable; it waits until every partition has its marker" in story
        assert "T-TEST-0" in story
        assert "T-TEST-0" in await topic_broker.semel("topic", "stuck", TOPIC, status=FOUND_TROUBLE)
        await topic_broker.find_leader()
        await heard_out(old.commit_transaction)
    async with topic_broker.producer() as new, new.transaction():
        await new.send(TOPIC, b"2")
    assert await topic_broker.values(2) == [b"1", b"2"]


@pytest.mark.proves("init-transactions-times-out")
async def test_without_a_broker_the_error_names_the_addresses(topic_broker: SingleTopicBroker) -> None:
    await topic_broker.kill()
    with refused(KafkaConnectionError, topic_broker.at, "Check that the broker runs"):
        await topic_broker.producer(bootstrap_timeout_ms=200).start()
    await topic_broker.start()
    async with topic_broker.producer() as again, again.transaction():
        await again.send(TOPIC, b"1")
    assert await topic_broker.values(1) == [b"1"]
