"""REQUEST_TIMED_OUT: the broker has a record but cannot make it durable within the request's timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from broker.troubles.conftest import MakeScene
from broker.troubles.single_topic_broker import PATIENCE_S, TOPIC, SingleTopicBroker, heard_out, refused
from broker.wire import Wire, batch, produce_request
from semel.errors import KafkaTimeoutError, TransactionWasCommitted
from semel_protocol.errors import ErrorCode

STALLED_S = 0.7


@pytest.fixture
def topic_broker(make_scene: MakeScene) -> SingleTopicBroker:
    return make_scene(durability="fsync")


@pytest.mark.proves("request-timed-out")
async def test_a_retry_after_request_timed_out_gets_the_same_offset(topic_broker: SingleTopicBroker) -> None:
    wire = await Wire.connect(topic_broker.broker.port)
    records = {"producer_id": await wire.new_producer(), "producer_epoch": 0, "base_sequence": 0}
    request = produce_request(TOPIC, batch(b"1", **records))
    request.timeout_ms = 50
    await topic_broker.stall_disk()
    for _ in range(2):
        async with asyncio.timeout(PATIENCE_S):
            row = (await wire.call(request, 9)).responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert row.base_offset == -1
        for words in ("T-TEST-0", "timeout_ms=50", "send it again, unchanged"):
            assert words in row.error_message
    await topic_broker.release_disk()
    row = (await wire.call(request, 9)).responses[0].partition_responses[0]
    assert (row.error_code, row.base_offset) == (0, 0)
    await wire.close()
    assert await topic_broker.values(1) == [b"1"]


@pytest.mark.proves("request-timed-out")
async def test_partitions_that_were_in_time_are_answered_as_stored(topic_broker: SingleTopicBroker) -> None:
    """One request, two partitions: a durable batch is acknowledged even if the other one times out."""
    wire = await Wire.connect(topic_broker.broker.port)
    records = {"producer_id": await wire.new_producer(), "producer_epoch": 0, "base_sequence": 0}
    await asyncio.to_thread(topic_broker.broker.create_topic, "other")
    assert (await wire.produce(TOPIC, batch(b"1", **records))).error_code == 0
    await topic_broker.stall_disk()
    request, other = produce_request(TOPIC, batch(b"1", **records)), produce_request("other", batch(b"2", **records))
    request.timeout_ms = 50
    request.topic_data += other.topic_data
    topics = (await wire.call(request, 9)).responses
    codes = {topic.name: topic.partition_responses[0].error_code for topic in topics}
    assert codes == {TOPIC: 0, "other": ErrorCode.REQUEST_TIMED_OUT}
    await topic_broker.release_disk()
    await wire.close()


class SemelProducerCase:
    def __init__(self, topic_broker: SingleTopicBroker) -> None:
        self.producer = topic_broker.producer(request_timeout_ms=200)
        self.start, self.stop = self.producer.start, self.producer.stop
        self.begin, self.commit = self.producer.begin_transaction, self.producer.commit_transaction

    async def send(self, value: bytes) -> None:
        await self.producer.send_and_wait(TOPIC, value)


class AiokafkaProducerCase(SemelProducerCase):
    def __init__(self, topic_broker: SingleTopicBroker) -> None:
        settings: dict[str, Any] = {"request_timeout_ms": 200, "retry_backoff_ms": 20}
        self.producer = AIOKafkaProducer(bootstrap_servers=topic_broker.at, transactional_id="TEST-TID-0", **settings)
        self.start, self.stop = self.producer.start, self.producer.stop
        self.begin, self.commit = self.producer.begin_transaction, self.producer.commit_transaction


class Librdkafka:
    def __init__(self, topic_broker: SingleTopicBroker) -> None:
        self.producer = topic_broker.librdkafka(request_timeout_ms=200, retry_backoff_ms=20)

    async def start(self) -> None:
        await asyncio.to_thread(self.producer.init_transactions, PATIENCE_S)

    async def begin(self) -> None:
        self.producer.begin_transaction()

    async def send(self, value: bytes) -> None:
        self.producer.produce(TOPIC, value)
        assert await asyncio.to_thread(self.producer.flush, PATIENCE_S) == 0

    async def commit(self) -> None:
        await asyncio.to_thread(self.producer.commit_transaction, PATIENCE_S)

    async def stop(self) -> None:
        pass


@pytest.mark.proves("request-timed-out")
@pytest.mark.parametrize("client", [SemelProducerCase, AiokafkaProducerCase, Librdkafka])
async def test_a_stalled_disk_causes_no_duplicates(
    topic_broker: SingleTopicBroker, client: Callable[[SingleTopicBroker], Any]
) -> None:
    made = client(topic_broker)
    await made.start()
    await made.begin()
    await made.send(b"half")
    await topic_broker.stall_disk()
    sending = asyncio.create_task(made.send(b"other half"))
    await asyncio.sleep(STALLED_S)  # the client times out and sends the request again
    assert not sending.done()
    await topic_broker.release_disk()
    await sending
    await made.commit()
    await made.begin()
    await made.send(b"next")
    await made.commit()
    await made.stop()
    assert await topic_broker.values(3) == [b"half", b"other half", b"next"]


@pytest.mark.proves("invalid-transition")
async def test_abort_after_a_timed_out_commit_reports_the_commit(topic_broker: SingleTopicBroker) -> None:
    """Elsewhere: "Invalid transition attempted from state COMMITTING_TRANSACTION to state ABORTING_TRANSACTION"."""
    async with topic_broker.producer(max_block_ms=150) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"1")
        await topic_broker.stall_disk()
        with refused(KafkaTimeoutError, "the outcome is not known after max_block_ms=150", "abort_transaction()"):
            await producer.commit_transaction()
        with refused(
            KafkaTimeoutError, "abort_transaction(): the outcome is not known", "call abort_transaction() again"
        ):
            await producer.abort_transaction()
        await topic_broker.release_disk()
        with refused(TransactionWasCommitted, "'TEST-TID-0'", "it is committed", "begin the next one"):
            await heard_out(producer.abort_transaction)
        async with producer.transaction():
            await producer.send(TOPIC, b"2")
    assert await topic_broker.values(2) == [b"1", b"2"]
    assert "Its last transaction was committed" in await topic_broker.semel("txn", "why", "TEST-TID-0")


@pytest.mark.proves("invalid-transition")
async def test_abort_after_a_commit_that_never_arrived_aborts(topic_broker: SingleTopicBroker) -> None:
    async with topic_broker.producer(max_block_ms=150) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"1")
        await topic_broker.kill()
        with refused(KafkaTimeoutError, "call commit_transaction() again"):
            await producer.commit_transaction()
        with refused(KafkaTimeoutError, "call abort_transaction() again"):
            await producer.abort_transaction()
        await topic_broker.start()
        await heard_out(producer.abort_transaction)
        assert "Its last transaction was aborted" in await topic_broker.semel("txn", "why", "TEST-TID-0")
        async with producer.transaction():
            await producer.send(TOPIC, b"2")
    assert await topic_broker.values(1) == [b"2"]


@pytest.mark.proves("invalid-transition")
async def test_librdkafka_retries_a_timed_out_commit(topic_broker: SingleTopicBroker) -> None:
    producer = topic_broker.librdkafka()
    await asyncio.to_thread(producer.init_transactions, PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"1")
    assert await asyncio.to_thread(producer.flush, PATIENCE_S) == 0
    await topic_broker.stall_disk()
    with pytest.raises(Exception, match="TIMED_OUT"):
        await asyncio.to_thread(producer.commit_transaction, 0.2)
    await topic_broker.release_disk()
    await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)
    assert await topic_broker.values(1) == [b"1"]
