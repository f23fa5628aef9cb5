"""A node loses power during transactions and returns: open and decided transactions, and the errors of clients."""

from __future__ import annotations

import asyncio

import pytest
from broker.troubles.conftest import MakeScene
from broker.troubles.single_topic_broker import PATIENCE_S, TOPIC, SingleTopicBroker, heard_out, refused
from confluent_kafka import KafkaException
from semel import Producer, TopicPartition
from semel.errors import KafkaTimeoutError, ProducerFenced

POSITION = TopicPartition(TOPIC, 0)


@pytest.fixture
def topic_broker(make_scene: MakeScene) -> SingleTopicBroker:
    return make_scene(durability="fsync")


async def half_a_transaction(producer: Producer) -> None:
    await producer.begin_transaction()
    await producer.send_and_wait(TOPIC, b"half")
    await producer.send_offsets_to_transaction({POSITION: 7}, "g")


@pytest.mark.proves("node-without-power")
@pytest.mark.parametrize("seed", range(3))
async def test_an_outage_shorter_than_the_transaction_timeout_is_only_a_delay(
    topic_broker: SingleTopicBroker, seed: int
) -> None:
    async with topic_broker.producer() as producer:
        await half_a_transaction(producer)
        await topic_broker.cut_power(seed)
        waiting = await producer.send(TOPIC, b"other half")
        committing = asyncio.create_task(producer.commit_transaction())
        await topic_broker.start()
        await committing
        assert waiting.done()
        async with producer.transaction():
            await producer.send(TOPIC, b"next")
    assert await topic_broker.values(3) == [b"half", b"other half", b"next"]
    async with topic_broker.reader(group_id="g") as consumer:
        assert await consumer.committed(POSITION) == 7


@pytest.mark.proves("node-without-power")
async def test_an_outage_beyond_the_transaction_timeout_fences_the_producer(
    topic_broker: SingleTopicBroker,
) -> None:
    async with topic_broker.producer(transaction_timeout_ms=150, client_id="web-1") as producer:
        await half_a_transaction(producer)
        await topic_broker.cut_power()
        await asyncio.sleep(0.2)  # longer than transaction.timeout.ms
        await topic_broker.start()
        await topic_broker.wait_for("was aborted", "txn", "why", "TEST-TID-0")
        words = ("'TEST-TID-0'", "open for longer than its transaction.timeout.ms", "allowed were 150 ms", "a new one")
        with refused(ProducerFenced, *words):
            await producer.commit_transaction()
        with refused(ProducerFenced, *words):
            await producer.abort_transaction()
    story = await topic_broker.semel("txn", "why", "TEST-TID-0")
    assert "Its last transaction was aborted" in story
    assert "allowed were 150 ms" in story
    async with topic_broker.producer() as new, new.transaction():
        await new.send(TOPIC, b"again")
    assert await topic_broker.values(1) == [b"again"]
    async with topic_broker.reader(group_id="g") as consumer:
        assert await consumer.committed(POSITION) is None


@pytest.mark.proves("node-without-power")
async def test_librdkafka_is_fenced_by_the_timeout_and_a_new_producer_continues(
    topic_broker: SingleTopicBroker,
) -> None:
    producer = topic_broker.librdkafka(transaction_timeout_ms=1_000)
    await asyncio.to_thread(producer.init_transactions, PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"half")
    assert await asyncio.to_thread(producer.flush, PATIENCE_S) == 0
    await topic_broker.cut_power()
    await asyncio.sleep(1.1)  # longer than transaction.timeout.ms
    await topic_broker.start()
    await topic_broker.wait_for("allowed were 1000 ms", "txn", "why", "TEST-TID-0")
    with pytest.raises(KafkaException) as fenced:
        await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)
    assert fenced.value.args[0].fatal()
    new = topic_broker.librdkafka()
    await asyncio.to_thread(new.init_transactions, PATIENCE_S)
    new.begin_transaction()
    new.produce(TOPIC, b"again")
    await asyncio.to_thread(new.commit_transaction, PATIENCE_S)
    assert await topic_broker.values(1) == [b"again"]


@pytest.mark.proves("node-without-power")
@pytest.mark.parametrize("seed", range(3))
async def test_power_is_cut_during_an_unanswered_commit(topic_broker: SingleTopicBroker, seed: int) -> None:
    """The client repeats the commit until it learns the outcome: all records are stored once."""
    async with topic_broker.producer(max_block_ms=100, transaction_timeout_ms=30_000) as producer:
        await half_a_transaction(producer)
        await topic_broker.stall_disk()
        with refused(KafkaTimeoutError, "the outcome is not known", "call commit_transaction() again"):
            await producer.commit_transaction()
        await topic_broker.cut_power(seed)
        await topic_broker.start()
        await heard_out(producer.commit_transaction)
    assert await topic_broker.values(1) == [b"half"]
    async with topic_broker.reader(group_id="g") as consumer:
        assert await consumer.committed(POSITION) == 7


@pytest.mark.proves("node-without-power")
async def test_readers_continue_at_their_position_after_an_outage(topic_broker: SingleTopicBroker) -> None:
    """The consumer is disconnected; it reads each record once, and no uncommitted one."""
    async with topic_broker.producer() as producer, topic_broker.reader() as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        found = []
        for number in range(4):
            async with producer.transaction():
                await producer.send_and_wait(TOPIC, b"%d" % number)
                if number == 2:
                    await topic_broker.cut_power()
                    await topic_broker.start()
            async with asyncio.timeout(PATIENCE_S):
                found.append((await consumer.getone()).value)
        assert found == [b"0", b"1", b"2", b"3"]
