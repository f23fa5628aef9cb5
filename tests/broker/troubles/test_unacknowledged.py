""" "The client hasn't received acknowledgment for some previously sent messages and can no longer retry them." """

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker.troubles.conftest import MakeScene
from broker.troubles.single_topic_broker import PATIENCE_S, TOPIC, SingleTopicBroker, heard_out, refused
from confluent_kafka import KafkaException, Producer
from semel.errors import KafkaTimeoutError, TransactionHasFailed

TRIES_MAX = 20

IMPATIENT = {"request_timeout_ms": 100, "delivery_timeout_ms": 250}


@pytest.fixture
def topic_broker(make_scene: MakeScene) -> SingleTopicBroker:
    return make_scene(durability="fsync")


@pytest.mark.proves("unacknowledged-message")
@pytest.mark.parametrize("version", [1, 2])
async def test_a_record_in_doubt_fails_its_transaction_not_the_producer(
    make_scene: MakeScene, version: int, tmp_path: Path
) -> None:
    """Other clients must close the producer. Here the transaction is aborted, with the record if stored."""
    topic_broker = make_scene(durability="fsync", transaction_version=version)
    async with topic_broker.producer(**IMPATIENT) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"1")
        await topic_broker.stall_disk()
        with refused(KafkaTimeoutError, "delivery_timeout_ms=250", "T-TEST-0", "may or may not be stored"):
            await producer.send_and_wait(TOPIC, b"in doubt")
        words = ("'TEST-TID-0'", "may or may not be stored", "Call abort_transaction(), then repeat the transaction")
        with refused(TransactionHasFailed, *words):
            await producer.commit_transaction()
        await topic_broker.release_disk()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"1 again")
    assert await topic_broker.values(1) == [b"1 again"]
    rows = await topic_broker.dump(tmp_path)
    assert [row.what for row in rows] == ["1", "in doubt", "ABORT", "1 again", "COMMIT"]
    if version == 2:
        assert rows[3].epoch > rows[0].epoch, "a late request cannot enter the next transaction"


@pytest.mark.proves("unacknowledged-message")
async def test_an_unsent_record_is_reported_as_not_stored(topic_broker: SingleTopicBroker) -> None:
    async with topic_broker.producer(**IMPATIENT, max_block_ms=200) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"1")
        await topic_broker.kill()
        with refused(KafkaTimeoutError, "delivery_timeout_ms=250", "T-TEST-0", "(not stored)"):
            await producer.send_and_wait(TOPIC, b"2")
        with refused(TransactionHasFailed, "(not stored)", "Call abort_transaction()"):
            await producer.commit_transaction()
        await topic_broker.start()
        await heard_out(producer.abort_transaction)
        async with producer.transaction():
            await producer.send(TOPIC, b"1 again")
    assert await topic_broker.values(1) == [b"1 again"]


@pytest.mark.proves("unacknowledged-message")
async def test_records_after_one_in_doubt_are_stored_once_and_in_order(topic_broker: SingleTopicBroker) -> None:
    async with topic_broker.producer(None, **IMPATIENT) as producer:
        await producer.send_and_wait(TOPIC, b"1")
        await topic_broker.stall_disk()
        with refused(KafkaTimeoutError, "may or may not be stored"):
            await producer.send_and_wait(TOPIC, b"in doubt")
        await topic_broker.release_disk()
        await producer.send_and_wait(TOPIC, b"2")
    assert await topic_broker.values(3) == [b"1", b"in doubt", b"2"]


def _commits(producer: Producer) -> bool:
    try:
        producer.commit_transaction(PATIENCE_S)
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        return False
    return True


@pytest.mark.proves("unacknowledged-message")
async def test_librdkafka_aborts_and_continues(topic_broker: SingleTopicBroker) -> None:
    """Its next transaction works, too: unsent records leave a gap of sequences, which needs a new epoch."""
    producer = topic_broker.librdkafka(message_timeout_ms=500, request_timeout_ms=200, retry_backoff_ms=20)
    await asyncio.to_thread(producer.init_transactions, PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"1")
    assert await asyncio.to_thread(producer.flush, PATIENCE_S) == 0
    await topic_broker.kill()
    producer.produce(TOPIC, b"2")
    await asyncio.to_thread(producer.flush, PATIENCE_S)
    aborted = 0
    while not await asyncio.to_thread(_commits, producer):
        aborted += 1  # again if the broker takes longer to start than message_timeout_ms
        assert aborted <= TRIES_MAX
        if not topic_broker.broker.is_running:
            await topic_broker.start()
        await asyncio.to_thread(producer.abort_transaction, PATIENCE_S)
        producer.begin_transaction()
        producer.produce(TOPIC, b"1 again")
    assert aborted
    assert await topic_broker.values(1) == [b"1 again"]


@pytest.mark.proves("unsent-records-at-close")
async def test_unsent_records_at_close_are_reported_and_aborted(topic_broker: SingleTopicBroker) -> None:
    """`producer.close()` raises no error, but each unsent record reports its failure."""
    producer = topic_broker.producer(linger_ms=60_000, delivery_timeout_ms=120_000)
    await producer.start()
    await producer.begin_transaction()
    waiting = await producer.send(TOPIC, b"1")
    await producer.stop()
    with refused(Exception, "the transaction is being aborted"):
        waiting.result()
    plain = topic_broker.producer(None, linger_ms=60_000, delivery_timeout_ms=120_000)
    await plain.start()
    sent = await plain.send(TOPIC, b"2")
    await plain.stop()
    assert sent.result().offset == 0, "without a transaction a clean stop sends the waiting records"
    assert await topic_broker.values(1) == [b"2"]
