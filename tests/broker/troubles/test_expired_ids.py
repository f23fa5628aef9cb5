"""transactional.id.expiration.ms and producer.id.expiration.ms: ids that expired while their producer was idle."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from broker.troubles.conftest import MakeScene
from broker.troubles.single_topic_broker import PATIENCE_S, TOPIC, SingleTopicBroker, refused
from confluent_kafka import KafkaException
from semel.errors import TransactionHasFailed

QUICK = {
    "transactional_id_expiration_ms": 100,
    "transaction_remove_expired_transaction_cleanup_interval_ms": 20,
}


async def asleep(topic_broker: SingleTopicBroker, name: str = "TEST-TID-0") -> str:
    """Wait until the id has expired; return the output of `semel txn why`."""
    until = time.monotonic() + PATIENCE_S
    while await topic_broker.semel("txn", "list", "-q"):
        assert time.monotonic() < until
        await asyncio.sleep(0.02)
    return await topic_broker.semel("txn", "why", name, status=1)


@pytest.mark.proves("expired-transactional-id", "expired-transactional-id-at-commit")
@pytest.mark.parametrize("version", [1, 2])
async def test_a_producer_with_an_expired_id_gets_an_error_at_commit(
    make_scene: MakeScene, version: int, tmp_path: Path
) -> None:
    """In reports of Kafka a week passes, the transaction is aborted, and no call fails. Here the commit fails."""
    topic_broker = make_scene(transaction_version=version, **QUICK)
    async with topic_broker.producer() as producer:
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"last week")
        assert "transactional.id.expiration.ms" in await asleep(topic_broker)
        await producer.begin_transaction()
        await producer.send(TOPIC, b"this week")
        words = (
            "'TEST-TID-0'",
            "transactional.id.expiration.ms",
            "Call abort_transaction(), then repeat the transaction",
        )
        with refused(TransactionHasFailed, *words):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"this week")
    assert await topic_broker.values(2) == [b"last week", b"this week"]
    rows = await topic_broker.dump(tmp_path)
    assert [row.what for row in rows] == ["last week", "COMMIT", "this week", "COMMIT"]
    assert rows[2].producer_id != rows[0].producer_id


@pytest.mark.proves("expired-transactional-id-at-commit")
async def test_librdkafka_gets_an_error_for_an_expired_id(make_scene: MakeScene) -> None:
    topic_broker = make_scene(**QUICK)
    producer = topic_broker.librdkafka()
    await asyncio.to_thread(producer.init_transactions, PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"last week")
    await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)
    await asleep(topic_broker)
    producer.begin_transaction()
    producer.produce(TOPIC, b"this week")
    with pytest.raises(KafkaException):
        await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)
    new = topic_broker.librdkafka()
    await asyncio.to_thread(new.init_transactions, PATIENCE_S)
    new.begin_transaction()
    new.produce(TOPIC, b"this week")
    await asyncio.to_thread(new.commit_transaction, PATIENCE_S)
    assert await topic_broker.values(2) == [b"last week", b"this week"]


@pytest.mark.proves("expired-transactional-id-at-commit")
async def test_an_open_transaction_keeps_its_id(make_scene: MakeScene) -> None:
    topic_broker = make_scene(**QUICK)
    async with topic_broker.producer() as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"1")
        await asyncio.sleep(0.3)  # three times as long as ids are kept
        assert "TEST-TID-0" in await topic_broker.semel("txn", "list", "-q")
        await producer.commit_transaction()
    assert await topic_broker.values(1) == [b"1"]


@pytest.mark.proves("first-record-at-offset-24")
async def test_a_reader_from_offset_0_begins_at_the_first_committed_record(topic_broker: SingleTopicBroker) -> None:
    """ "Seek to 0, and the first message has offset 24": the records before it were aborted, and the tools show it."""
    async with topic_broker.producer() as producer:
        await producer.begin_transaction()
        for number in range(23):
            await producer.send(TOPIC, b"%d" % number)
        await producer.flush()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(TOPIC, b"first")
    assert await topic_broker.read(1) == [(24, b"first")]
    assert len(await topic_broker.read(24, "read_uncommitted")) == 24
    timeline = await topic_broker.semel("txn", "timeline", TOPIC, "--list")
    assert "1 committed 1 aborted" in timeline


@pytest.mark.proves("expired-producer-id")
async def test_an_expired_producer_does_not_write_duplicates(make_scene: MakeScene) -> None:
    """producer.id.expiration.ms: the partition has dropped the last batches of an idle producer."""
    topic_broker = make_scene(producer_id_expiration_ms=50, producer_id_expiration_check_interval_ms=20)

    def known(node: Any) -> bool:
        return node.broker.topics.partition(TOPIC, 0).log.producers.get(0) is not None

    async with topic_broker.producer(None) as producer:
        await producer.send_and_wait(TOPIC, b"1")
        until = time.monotonic() + PATIENCE_S
        while await topic_broker.inside(known):
            assert time.monotonic() < until
            await asyncio.sleep(0.02)
        for number in (2, 3):
            await producer.send_and_wait(TOPIC, b"%d" % number)
    assert await topic_broker.values(3) == [b"1", b"2", b"3"]


@pytest.mark.proves("expired-producer-id")
async def test_old_record_timestamps_do_not_expire_their_producer(make_scene: MakeScene) -> None:
    """Ids age by the broker's clock, not by record timestamps: a producer of old records is active."""
    topic_broker = make_scene(producer_id_expiration_check_interval_ms=20)
    month_ago_ms = int((time.time() - 30 * 86_400) * 1000)
    async with topic_broker.producer() as producer:
        for number in range(3):
            async with producer.transaction():
                await producer.send_and_wait(TOPIC, b"%d" % number, timestamp_ms=month_ago_ms)
            await asyncio.sleep(0.05)  # two checks for expired ids
    assert await topic_broker.values(3) == [b"0", b"1", b"2"]
