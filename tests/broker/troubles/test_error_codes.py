"""The error codes of the troubleshooting chapters: their requests, their messages, and the clients' reactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from broker.transactional import TransactionalProducer
from broker.troubles.single_topic_broker import PATIENCE_S, TOPIC, SingleTopicBroker
from broker.wire import Wire
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_storage.internal_topics import TRANSACTION_STATE

NAME = "TEST-TID-0"


@pytest.fixture
async def wire(topic_broker: SingleTopicBroker) -> AsyncIterator[Wire]:
    made = await Wire.connect(topic_broker.broker.port)
    yield made
    await made.close()


@pytest.mark.proves("invalid-producer-epoch")
@pytest.mark.parametrize("version", [1, 2])
async def test_invalid_producer_epoch_for_an_older_instance_at_the_partition(
    topic_broker: SingleTopicBroker, wire: Wire, version: int
) -> None:
    """PRODUCER_FENCED at the coordinator, INVALID_PRODUCER_EPOCH at the partition, as in Kafka."""
    old = await TransactionalProducer(wire, version, NAME).init()
    assert (await old.produce(TOPIC, b"1")).error_code == 0
    await TransactionalProducer(wire, version, NAME).init()
    refusal = await old.send(old.produce_request(TOPIC, b"2"), 9 if version == 1 else None)
    assert refusal.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert "a newer instance has fenced this one" in refusal.error_message
    assert await old.end() == (ErrorCode.PRODUCER_FENCED if version == 2 else ErrorCode.INVALID_PRODUCER_EPOCH)


@pytest.mark.proves("invalid-pid-mapping")
async def test_invalid_pid_mapping_for_an_id_that_the_coordinator_does_not_know(wire: Wire) -> None:
    stranger = TransactionalProducer(wire, 1, "never initialised")
    stranger.producer_id, stranger.epoch = 4242, 0
    assert await stranger.add(TOPIC, 0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await stranger.end() == ErrorCode.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.proves("invalid-txn-request")
@pytest.mark.parametrize("version", [1, 2])
async def test_invalid_txn_state_for_ending_a_closed_transaction_differently(wire: Wire, version: int) -> None:
    mine = await TransactionalProducer(wire, version, NAME).init()
    assert await mine.end() == ErrorCode.INVALID_TXN_STATE, "no transaction was begun"
    assert (await mine.produce(TOPIC, b"1")).error_code == 0
    before = mine.producer_id, mine.epoch
    assert await mine.end(commit=True) == 0
    after, (mine.producer_id, mine.epoch) = (mine.producer_id, mine.epoch), before
    assert await mine.end(commit=False) == ErrorCode.INVALID_TXN_STATE, "it was committed"
    assert await mine.end(commit=True) == 0, "a retry gets the same answer"
    assert (mine.producer_id, mine.epoch) == after


@pytest.mark.proves("duplicate-sequence")
async def test_a_duplicate_sequence_is_answered_with_the_first_offset(
    topic_broker: SingleTopicBroker, wire: Wire
) -> None:
    mine = await TransactionalProducer(wire, 2, NAME).init()
    request = mine.produce_request(TOPIC, b"1")
    assert [(row.error_code, row.base_offset) for row in (await mine.send(request), await mine.send(request))] == [
        (0, 0),
        (0, 0),
    ]
    assert await mine.end() == 0
    assert await topic_broker.values(1) == [b"1"]


@pytest.mark.proves("invalid-sequence")
async def test_a_sequence_too_high_is_out_of_order_and_says_what_was_expected(
    topic_broker: SingleTopicBroker, wire: Wire
) -> None:
    mine = await TransactionalProducer(wire, 2, NAME).init()
    assert (await mine.produce(TOPIC, b"1")).error_code == 0
    row = await mine.send(mine.produce_request(TOPIC, b"3", sequence=2))
    assert row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for words in ("sequence 2", "1"):
        assert words in row.error_message
    assert (await mine.produce(TOPIC, b"2")).error_code == 0, "the partition still works"
    assert await mine.end() == 0
    assert await topic_broker.values(2) == [b"1", b"2"]


@pytest.mark.proves("invalid-transaction-timeout")
async def test_invalid_transaction_timeout_outside_of_the_brokers_bounds(wire: Wire) -> None:
    for timeout_ms, code in ((0, 50), (900_001, 50), (900_000, 0), (1, 0)):
        request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=timeout_ms)
        assert (await wire.call(request, 4)).error_code == code


@pytest.mark.proves("not-coordinator")
@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])
@pytest.mark.parametrize("client", ["semel", "librdkafka"])
async def test_not_coordinator_makes_the_client_find_the_coordinator_again(
    topic_broker: SingleTopicBroker, client: str, code: ErrorCode
) -> None:
    """For any error of the coordinator's log: clients retry, and the application gets no error."""
    works = {"semel": _with_semel, "librdkafka": _with_librdkafka}
    await works[client](topic_broker, b"1")
    refusals: list[ErrorCode] = []

    def fail_thrice(node: Any) -> None:
        partition = node.broker.topics.partition(TRANSACTION_STATE, coordinator_partition(NAME, 50))
        append = partition.append

        def failing(*arguments: Any, **keywords: Any) -> Any:
            if len(refusals) < 3:
                refusals.append(code)
                raise KafkaError(code, "not here, not now")
            return append(*arguments, **keywords)

        partition.append = failing

    await topic_broker.inside(fail_thrice)
    await works[client](topic_broker, b"2")
    assert len(refusals) == 3
    assert await topic_broker.values(2) == [b"1", b"2"]


async def _with_semel(topic_broker: SingleTopicBroker, value: bytes) -> None:
    async with topic_broker.producer() as producer, producer.transaction():
        await producer.send(TOPIC, value)


async def _with_librdkafka(topic_broker: SingleTopicBroker, value: bytes) -> None:
    def work() -> None:
        producer = topic_broker.librdkafka(retry_backoff_ms=20)
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(TOPIC, value)
        producer.commit_transaction(PATIENCE_S)

    await asyncio.to_thread(work)


@pytest.mark.proves("not-coordinator")
async def test_clients_wait_while_the_coordinator_loads(topic_broker: SingleTopicBroker) -> None:
    """The broker holds the request while transactions load; a client with less time gets a retriable error."""
    await _with_semel(topic_broker, b"1")
    await topic_broker.kill()
    starting = asyncio.create_task(_with_semel(topic_broker, b"2"))
    await topic_broker.start()
    await starting
    assert await topic_broker.values(2) == [b"1", b"2"]
