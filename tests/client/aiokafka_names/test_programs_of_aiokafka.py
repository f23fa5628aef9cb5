"""Programs written for aiokafka use its classes in these ways; here they run on `semel.aiokafka`."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any

import pytest
from client.consuming import produce, take, tp
from semel.aiokafka import (
    AIOKafkaAdminClient,
    AIOKafkaClient,
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
)
from semel.aiokafka.errors import ConsumerStoppedError, IllegalOperation, ProducerFenced
from semel.aiokafka.partitioner import DefaultPartitioner
from semel.errors import KafkaConfigurationError


class SettingText(str, Enum):  # noqa: UP042  (as many frameworks write it)
    """A setting's values, as frameworks name them."""

    PLAINTEXT = "PLAINTEXT"
    PLAIN = "PLAIN"


# Settings


def test_a_loop_is_accepted_before_it_runs_and_another_one_is_refused_at_start() -> None:
    def program() -> None:
        loop = asyncio.new_event_loop()
        for kind in (AIOKafkaProducer, AIOKafkaConsumer, AIOKafkaAdminClient):
            with pytest.warns(DeprecationWarning, match="loop"):
                client = kind(loop=loop)
            other = asyncio.new_event_loop()
            with pytest.raises(KafkaConfigurationError, match="another event loop"):
                other.run_until_complete(client.start())
            other.close()
        loop.close()

    with ThreadPoolExecutor(1) as pool:  # without a loop that runs
        pool.submit(program).result()


async def test_acks_below_all_turn_idempotence_off_unless_it_is_asked_for() -> None:
    """In aiokafka idempotence is off by default."""
    for acks in (0, 1):
        assert AIOKafkaProducer(acks=acks)._config.enable_idempotence is False
        with pytest.raises(KafkaConfigurationError, match="contradicts"):
            AIOKafkaProducer(acks=acks, enable_idempotence=True)
    assert AIOKafkaProducer()._config.enable_idempotence is True


async def test_a_transactional_id_turns_idempotence_on() -> None:
    """FastStream gives both settings, with its default False."""
    assert AIOKafkaProducer(transactional_id="x", enable_idempotence=False)._config.enable_idempotence is True


async def test_members_of_text_enumerations_are_settings() -> None:
    AIOKafkaConsumer(security_protocol=SettingText.PLAINTEXT, sasl_mechanism=SettingText.PLAIN)


async def test_settings_are_attributes_with_an_underscore() -> None:
    consumer = AIOKafkaConsumer(bootstrap_servers=["a:1", "b:2"], enable_auto_commit=False, group_id="g")
    assert (consumer._enable_auto_commit, consumer._group_id, consumer._closed) == (False, "g", False)
    assert consumer._client._bootstrap_servers == ["a:1", "b:2"]
    assert isinstance(AIOKafkaProducer()._partitioner, DefaultPartitioner)
    with pytest.raises(AttributeError, match="_nothing"):
        _ = consumer._nothing


# Consumer


async def test_a_record_sent_after_start_is_read_from_the_latest_position_of_a_topic_that_start_created(
    bootstrap: str,
) -> None:
    for group_id in (None, "g"):
        consumer = AIOKafkaConsumer(f"new-{group_id}", bootstrap_servers=bootstrap, group_id=group_id)
        await consumer.start()
        await produce(bootstrap, [b"first"], f"new-{group_id}")
        assert [record.value for record in await take(consumer, 1)] == [b"first"]
        await consumer.stop()


async def test_start_continues_without_a_topic_that_does_not_appear(bootstrap: str) -> None:
    consumer = AIOKafkaConsumer("missing", bootstrap_servers=bootstrap, allow_auto_create_topics=False)
    await consumer.start()
    assert not consumer.assignment()
    await consumer.stop()
    assert consumer._closed


class PrintingListener(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self.calls.append(("revoked", revoked))

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.calls.append(("assigned", assigned))


async def test_a_rebalance_listener_gets_sets(bootstrap: str) -> None:
    await produce(bootstrap, [b"a"])
    listener = PrintingListener()
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id="g")
    consumer.subscribe(["t"], listener=listener)
    await consumer.start()
    await consumer.stop()
    assert listener.calls == [("assigned", {tp(0)}), ("revoked", {tp(0)})]
    with pytest.raises(TypeError, match="on_partitions_revoked"):
        AIOKafkaConsumer().subscribe(["t"], listener=object())  # type: ignore[arg-type]


async def test_a_getmany_that_waits_at_stop_returns_nothing_and_later_calls_raise(bootstrap: str) -> None:
    consumer = AIOKafkaConsumer("t", bootstrap_servers=bootstrap)
    await consumer.start()
    waiting = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
    await asyncio.sleep(1)
    await consumer.stop()
    assert await waiting == {}
    with pytest.raises(ConsumerStoppedError):
        await consumer.getmany()
    with pytest.raises(ConsumerStoppedError):
        async for _ in consumer:
            pass


# Producer


async def test_a_producer_has_a_client_with_the_metadata_of_its_topics(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.flush()
    async with producer:
        await producer.client.add_topic("t")
        await producer.send_and_wait("t", b"a")
        assert producer.client.cluster.topics() == {"t"}
        assert producer._metadata.partitions_for_topic("t") == {0}
        assert producer._metadata.partitions_for_topic("other") is None
        assert not producer._closed
    assert producer._closed


@pytest.mark.semel_only("Kafka lists its internal topics, too")
async def test_a_client_reads_all_topics_until_it_gets_topics_of_its_own(bootstrap: str) -> None:
    await produce(bootstrap, [b"a"], "a")
    await produce(bootstrap, [b"b"], "b")
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    assert await client.force_metadata_update()
    cluster = client.cluster
    assert cluster.topics() == {"a", "b"}
    (broker,) = cluster.brokers()
    assert cluster.leader_for_partition(tp(0, "a")) == broker.node_id
    assert cluster.partitions_for_broker(broker.node_id) == {tp(0, "a"), tp(0, "b")}
    assert cluster.available_partitions_for_topic("a") == {0}
    assert await client.set_topics(["b"])
    assert client.cluster.partitions_for_topic("b") == {0}
    await client.add_topic("created")
    assert await client._wait_on_metadata("created") == {0}
    await client.close()


async def test_a_transaction_of_a_fenced_producer_raises_producer_fenced(bootstrap: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": bootstrap, "transactional_id": "x"}
    async with AIOKafkaProducer(**settings) as old, AIOKafkaProducer(**settings) as new:
        async with new.transaction():
            await new.send_and_wait("t", b"new")
        with pytest.raises(ProducerFenced, match="transactional_id"):
            async with old.transaction():
                await old.send_and_wait("t", b"old")


async def test_offsets_outside_of_a_transaction_are_refused_whatever_the_group(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="x") as producer:
        with pytest.raises(IllegalOperation):
            await producer.send_offsets_to_transaction({}, group_id=None)  # type: ignore[arg-type]
        async with producer.transaction():
            with pytest.raises(ValueError, match="group_id"):
                await producer.send_offsets_to_transaction({}, group_id=None)  # type: ignore[arg-type]
