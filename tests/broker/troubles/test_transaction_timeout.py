"""transaction.timeout.ms: its expiry, the readers that it blocks until then, and its allowed values."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker.troubles.conftest import MakeScene
from broker.troubles.single_topic_broker import PATIENCE_S, TOPIC, SingleTopicBroker, refused
from confluent_kafka import KafkaException
from semel import TopicPartition
from semel._command_line.common import FOUND_TROUBLE
from semel.errors import InvalidProducerEpoch, InvalidTransactionTimeout, ProducerFenced

WHY_EXPIRED = ("'TEST-TID-0'", "open for longer than its transaction.timeout.ms", "by broker 0", "allowed were 100 ms")


@pytest.mark.proves("transaction-timeout")
async def test_a_slow_producer_is_fenced_with_the_open_time_in_the_error(
    topic_broker: SingleTopicBroker, tmp_path: Path
) -> None:
    async with topic_broker.producer(transaction_timeout_ms=100) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"slow")
        await topic_broker.wait_for("was aborted", "txn", "why", "TEST-TID-0")
        for call in (producer.commit_transaction, producer.abort_transaction, producer.begin_transaction):
            with refused(ProducerFenced, *WHY_EXPIRED, "Stop this producer; a new one continues"):
                await call()
    assert await topic_broker.read_nothing()
    assert "allowed were 100 ms" in await topic_broker.semel("txn", "why", "TEST-TID-0")
    rows = await topic_broker.dump(tmp_path)
    assert [(row.what, row.epoch - rows[0].epoch) for row in rows] == [("slow", 0), ("ABORT", 1)]


@pytest.mark.proves("transaction-timeout")
@pytest.mark.parametrize("version", [1, 2])
async def test_a_zombie_that_still_writes_is_fenced_by_the_marker(
    make_scene: MakeScene, version: int, tmp_path: Path
) -> None:
    topic_broker = make_scene(transaction_version=version)
    async with topic_broker.producer(transaction_timeout_ms=100) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"slow")
        await topic_broker.wait_for("was aborted", "txn", "why", "TEST-TID-0")
        zombie = await producer.send(TOPIC, b"zombie")
        with refused(ProducerFenced, *WHY_EXPIRED):
            await producer.commit_transaction()
        with refused(InvalidProducerEpoch, "T-TEST-0", "stop this one"):
            await zombie
    assert [row.what for row in await topic_broker.dump(tmp_path)] == ["slow", "ABORT"]


@pytest.mark.proves("dangling-transaction")
async def test_a_hanging_transaction_blocks_later_ones_and_tools_name_its_owner(
    topic_broker: SingleTopicBroker,
) -> None:
    """Its producer is gone; readers of committed records wait for it, at most for its timeout."""
    dead = topic_broker.librdkafka("gone", client_id="worker-7", transaction_timeout_ms=1_500)
    await asyncio.to_thread(dead.init_transactions, PATIENCE_S)
    dead.begin_transaction()
    dead.produce(TOPIC, b"never")
    assert await asyncio.to_thread(dead.flush, PATIENCE_S) == 0
    async with topic_broker.producer() as producer, producer.transaction():
        await producer.send(TOPIC, b"behind it")
    stuck = await topic_broker.semel("topic", "stuck", TOPIC, status=FOUND_TROUBLE)
    for words in (
        "last stable offset 0",
        "held by transactional id gone",
        "client 'worker-7' at 127.0.0.1",
        "otherwise the coordinator aborts it at",
        "(transaction.timeout.ms is ",
        "semel txn abort gone",
    ):
        assert words in stuck
    assert "gone" in await topic_broker.semel("txn", "list", "--open", "-q")
    assert await topic_broker.read(1) == [(1, b"behind it")]
    assert "is not stuck" in await topic_broker.semel("topic", "stuck", TOPIC)
    with pytest.raises(KafkaException):
        await asyncio.to_thread(dead.commit_transaction, PATIENCE_S)


@pytest.mark.proves("dangling-transaction")
async def test_other_partitions_do_not_wait_for_a_hanging_transaction(topic_broker: SingleTopicBroker) -> None:
    await asyncio.to_thread(topic_broker.broker.create_topic, "other")
    async with topic_broker.producer("gone") as dead, topic_broker.producer() as producer:
        await dead.begin_transaction()
        await dead.send_and_wait(TOPIC, b"never")
        async with producer.transaction():
            await producer.send("other", b"1")
        assert await topic_broker.values(1, topic="other") == [b"1"]


@pytest.mark.proves("low-transaction-timeout")
async def test_a_timeout_shorter_than_the_sweep_takes_effect_with_the_next_sweep(make_scene: MakeScene) -> None:
    """transaction.abort.timed.out.transaction.cleanup.interval.ms: a shorter timeout also waits for this sweep."""
    sweep = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 600}
    topic_broker = make_scene(**sweep)
    async with topic_broker.producer(transaction_timeout_ms=50) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"slow")
        await asyncio.sleep(0.06)  # longer than transaction.timeout.ms
        if "Ongoing" in (
            story := await topic_broker.semel("txn", "why", "TEST-TID-0")
        ):  # unless a sweep was due just now
            assert "the coordinator aborts it at its next sweep (transaction.timeout.ms = 50)" in story
        await topic_broker.wait_for("was aborted", "txn", "why", "TEST-TID-0")
        with refused(ProducerFenced, "allowed were 50 ms"):
            await producer.commit_transaction()


@pytest.mark.proves("high-transaction-timeout")
async def test_a_timeout_above_the_brokers_maximum_is_refused_with_both_names(topic_broker: SingleTopicBroker) -> None:
    words = ("'TEST-TID-0'", "transaction_timeout_ms=900001", "transaction.max.timeout.ms")
    with refused(InvalidTransactionTimeout, *words):
        await topic_broker.producer(transaction_timeout_ms=900_001).start()
    with pytest.raises(KafkaException, match="INVALID_TRANSACTION_TIMEOUT") as refusal:
        await asyncio.to_thread(topic_broker.librdkafka(transaction_timeout_ms=900_001).init_transactions, PATIENCE_S)
    assert refusal.value.args[0].fatal()
    async with topic_broker.producer(transaction_timeout_ms=900_000) as producer, producer.transaction():
        await producer.send(TOPIC, b"1")
    assert await topic_broker.values(1) == [b"1"]


@pytest.mark.proves("transaction-timeout")
async def test_an_operator_need_not_wait_for_the_timeout(topic_broker: SingleTopicBroker) -> None:
    async with topic_broker.producer("gone") as dead, topic_broker.producer() as producer:
        await dead.begin_transaction()
        await dead.send_and_wait(TOPIC, b"never")
        async with producer.transaction():
            await producer.send(TOPIC, b"behind it")
        await topic_broker.semel("txn", "abort", "gone", "-y")
        assert await topic_broker.values(1) == [b"behind it"]
        with refused(ProducerFenced, "'gone'", "an operator ended it"):
            await dead.commit_transaction()


@pytest.mark.proves("dangling-transaction")
async def test_a_blocked_group_gets_the_hanging_transaction(topic_broker: SingleTopicBroker) -> None:
    async with (
        topic_broker.producer("gone", client_id="worker-7") as dead,
        topic_broker.reader(group_id="g") as consumer,
    ):
        consumer.assign([TopicPartition(TOPIC, 0)])
        await consumer.commit({TopicPartition(TOPIC, 0): 0})
        await dead.begin_transaction()
        await dead.send_and_wait(TOPIC, b"never")
        told = await topic_broker.semel("group", "stuck", "g", "--wait", "0", status=FOUND_TROUBLE)
        assert "transactional id gone" in told
        assert "client 'worker-7'" in told
