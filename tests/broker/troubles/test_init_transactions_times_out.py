"""`initTransactions` raises TimeoutException: the coordinator does not answer within max.block.ms."""

from __future__ import annotations

import asyncio

import pytest
from broker.troubles.conftest import MakeScene
from broker.troubles.scene import PATIENCE_S, TOPIC, Scene, heard_out, refused
from confluent_kafka import KafkaException
from semel.cli.shared.common import FOUND_TROUBLE
from semel.errors import KafkaConnectionError, KafkaTimeoutError


@pytest.mark.proves("init-transactions-times-out")
async def test_init_transactions_times_out_and_may_be_repeated(
    make_scene: MakeScene,
) -> None:
    scene = make_scene(durability="fsync")
    async with scene.producer("ANOTHER"):
        pass  # now the transactions topic exists, and the coordinator is known
    await scene.stall_disk()
    producer = scene.producer(max_block_ms=200)
    with refused(
        KafkaTimeoutError, "'TEST-TID-0'", "within 200 ms", "did not answer InitProducerId", "safe to try again"
    ):
        await producer.start()
    await scene.release_disk()
    async with scene.producer() as again, again.transaction():
        await again.send(TOPIC, b"1")
    assert await scene.values(1) == [b"1"]


@pytest.mark.proves("init-transactions-times-out")
async def test_librdkafka_may_call_it_again_on_the_same_producer(make_scene: MakeScene) -> None:
    scene = make_scene(durability="fsync")
    await scene.stall_disk()
    producer = scene.librdkafka()
    with pytest.raises(KafkaException, match="TIMED_OUT") as failed:
        await asyncio.to_thread(producer.init_transactions, 0.3)
    assert failed.value.args[0].retriable()
    await scene.release_disk()
    await asyncio.to_thread(producer.init_transactions, PATIENCE_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"1")
    await asyncio.to_thread(producer.commit_transaction, PATIENCE_S)
    assert await scene.values(1) == [b"1"]


@pytest.mark.proves("init-transactions-times-out")
async def test_it_waits_for_a_decided_commit_and_times_out_with_the_reason(scene: Scene) -> None:
    """A new instance cannot begin until all markers of the last transaction are written."""
    async with scene.producer(max_block_ms=300) as old:
        await old.begin_transaction()
        await old.send_and_wait(TOPIC, b"1")
        await scene.lose_leader(TOPIC)
        with refused(KafkaTimeoutError, "commit_transaction()", "call commit_transaction() again"):
            await old.commit_transaction()
        with refused(KafkaTimeoutError, "'TEST-TID-0'", "safe to try again"):
            await scene.producer(max_block_ms=300).start()
        story = await scene.semel("txn", "why", "TEST-TID-0")
        assert "PrepareCommit" in story
        assert "The commit is decided and durable; it waits until every partition has its marker" in story
        assert "T-TEST-0" in story
        assert "T-TEST-0" in await scene.semel("topic", "stuck", TOPIC, status=FOUND_TROUBLE)
        await scene.find_leader()
        await heard_out(old.commit_transaction)
    async with scene.producer() as new, new.transaction():
        await new.send(TOPIC, b"2")
    assert await scene.values(2) == [b"1", b"2"]


@pytest.mark.proves("init-transactions-times-out")
async def test_without_a_broker_the_error_names_the_addresses(scene: Scene) -> None:
    await scene.kill()
    with refused(KafkaConnectionError, scene.at, "Check that the broker runs"):
        await scene.producer(bootstrap_timeout_ms=200).start()
    await scene.start()
    async with scene.producer() as again, again.transaction():
        await again.send(TOPIC, b"1")
    assert await scene.values(1) == [b"1"]
