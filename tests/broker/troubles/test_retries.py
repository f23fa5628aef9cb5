"""Retries: a lost answer, a batch that overtook another, records lost by the broker, a record that is too large."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from broker.troubles.conftest import MakeScene
from broker.troubles.single_topic_broker import PATIENCE_S, TOPIC, SingleTopicBroker, refused
from semel.errors import MessageSizeTooLargeError, TransactionHasFailed


@pytest.mark.proves("broker-dies-before-the-answer")
@pytest.mark.parametrize("client", ["semel", "aiokafka", "librdkafka"])
async def test_a_broker_that_dies_between_storing_and_answering_has_each_record_once(
    make_scene: MakeScene, client: str
) -> None:
    """The records are in the log, the sync does not end, the process is killed: the client sends them again."""
    topic_broker = make_scene(durability="fsync")
    values = [b"%d" % number for number in range(5)]

    async def with_semel() -> None:
        async with topic_broker.producer(None) as producer:
            await asyncio.gather(*[await producer.send(TOPIC, value) for value in values])

    async def with_aiokafka() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=topic_broker.at, enable_idempotence=True, retry_backoff_ms=20)
        await producer.start()
        await asyncio.gather(*[await producer.send(TOPIC, value, partition=0) for value in values])
        await producer.stop()

    def with_librdkafka() -> None:
        producer = topic_broker.librdkafka(None, enable_idempotence=True, retry_backoff_ms=20)
        for value in values:
            producer.produce(TOPIC, value)
        assert producer.flush(PATIENCE_S) == 0

    works = {"semel": with_semel, "aiokafka": with_aiokafka, "librdkafka": lambda: asyncio.to_thread(with_librdkafka)}
    await _warm_up(topic_broker)
    await topic_broker.stall_disk()
    working = asyncio.create_task(works[client]())
    await _until_end_offset(topic_broker, 2)
    await topic_broker.kill()
    assert not working.done()
    await topic_broker.start()
    await working
    assert await topic_broker.values(6) == [b"warm", *values]


async def _warm_up(topic_broker: SingleTopicBroker) -> None:
    """Allocate a block of producer ids first, because it must be durable; the test stalls the disk later."""
    async with topic_broker.producer(None) as producer:
        await producer.send_and_wait(TOPIC, b"warm")


async def _until_end_offset(topic_broker: SingleTopicBroker, offset: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await topic_broker.inside(lambda node: node.broker.topics.partition(TOPIC, 0).end_offset) < offset:
            await asyncio.sleep(0.01)


@pytest.mark.proves("lost-acknowledged-records")
async def test_lost_acknowledged_records_log_a_warning(make_scene: MakeScene, caplog: pytest.LogCaptureFixture) -> None:
    """durability=os and a power cut, as on any broker without sync: the gap in the sequences shows the loss."""
    topic_broker = make_scene(durability="os")
    async with topic_broker.producer(None) as producer:
        await _lose_the_last(topic_broker, producer)
        with caplog.at_level(logging.WARNING, "semel"):
            await producer.send_and_wait(TOPIC, b"3")
    for words in (
        "T-TEST-0",
        "the broker has lost acknowledged records",
        "The producer continues under a new epoch",
    ):
        assert words in caplog.text
    assert await topic_broker.values(2) == [b"1", b"3"]


@pytest.mark.proves("lost-acknowledged-records")
async def test_in_a_transaction_lost_records_are_an_error(make_scene: MakeScene) -> None:
    topic_broker = make_scene(durability="os")
    async with topic_broker.producer() as producer:
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"0")
        await producer.begin_transaction()
        await _lose_the_last(topic_broker, producer)
        await producer.send(TOPIC, b"3")
        with refused(TransactionHasFailed, "T-TEST-0", "Call abort_transaction(), then repeat the transaction"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"again")
    assert await topic_broker.values(2) == [b"0", b"again"]


async def _lose_the_last(topic_broker: SingleTopicBroker, producer: Any) -> None:
    """Two records are acknowledged; the power cut loses the second one."""
    await producer.send_and_wait(TOPIC, b"1")

    async def sync_all(node: Any) -> None:
        for partition in [each for each in node.broker.topics.partitions() if each.is_open]:
            await partition.log.durability.sync()

    await asyncio.to_thread(topic_broker.broker.call, sync_all)
    await producer.send_and_wait(TOPIC, b"2")
    await topic_broker.kill()
    topic_broker.broker._disk.crash()
    await topic_broker.start()


@pytest.mark.proves("message-too-large")
async def test_a_record_too_large_for_the_client_fails_alone(topic_broker: SingleTopicBroker) -> None:
    async with topic_broker.producer() as producer, producer.transaction():
        await producer.send(TOPIC, b"before")
        with refused(MessageSizeTooLargeError, "max_request_size=1048576", "max.message.bytes on the topic"):
            await producer.send(TOPIC, bytes(1_626_232))
        await producer.send(TOPIC, b"after")
    assert await topic_broker.values(2) == [b"before", b"after"]


@pytest.mark.proves("message-too-large")
async def test_a_record_too_large_for_the_topic_fails_its_transaction_with_the_setting_to_change(
    topic_broker: SingleTopicBroker,
) -> None:
    await asyncio.to_thread(lambda: topic_broker.broker.create_topic("small", max_message_bytes=1_000))
    async with topic_broker.producer() as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("small", b"before")
        words = ("max.message.bytes", "Call abort_transaction(), then repeat the transaction")
        await producer.send("small", bytes(2_000))
        with refused(TransactionHasFailed, *words):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("small", b"after")
    assert await topic_broker.values(1, topic="small") == [b"after"]


@pytest.mark.proves("many-reconnects")
async def test_an_unreachable_broker_gets_few_connection_attempts(topic_broker: SingleTopicBroker) -> None:
    """Each closed connection keeps its port for a minute; immediate retries would use up all ports."""
    attempts = 0

    def close_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.close()

    async with topic_broker.producer(None) as producer:
        await producer.send_and_wait(TOPIC, b"1")
        await topic_broker.kill()
        server = await asyncio.start_server(close_at_once, "127.0.0.1", topic_broker.broker.port)
        sent = [await producer.send(TOPIC, b"%d" % number) for number in range(2, 100)]
        await asyncio.sleep(1)  # attempts within it are counted
        server.close()
        await server.wait_closed()
        assert 1 <= attempts <= 20
        await topic_broker.start()
        await asyncio.gather(*sent)
    assert await topic_broker.values(99) == [b"%d" % number for number in range(1, 100)]
