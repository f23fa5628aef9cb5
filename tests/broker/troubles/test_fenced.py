"""ProducerFencedException: the error names the reason, a newer producer or an expired transaction."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker.troubles.conftest import MakeScene
from broker.troubles.single_topic_broker import PATIENCE_S, TOPIC, SingleTopicBroker, refused
from confluent_kafka import KafkaException
from semel import TopicPartition
from semel._command_line.common import FOUND_TROUBLE
from semel.errors import KafkaConfigurationError, ProducerFenced

WHO_AND_WHY = (
    "'TEST-TID-0'",
    "a new producer with this transactional.id was initialised",
    "client 'web-2' at 127.0.0.1",
    "Stop this producer; a new one continues from the last committed transaction",
)


@pytest.mark.proves("producer-fenced")
@pytest.mark.parametrize("call", ["commit", "abort", "send_offsets"])
@pytest.mark.parametrize("version", [1, 2])
async def test_every_call_of_the_older_instance_names_the_new_one_and_the_remedy(
    make_scene: MakeScene, version: int, call: str
) -> None:
    topic_broker = make_scene(transaction_version=version)
    async with topic_broker.producer(client_id="web-1") as old, topic_broker.producer(client_id="web-2") as new:
        await new.begin_transaction()
        await new.send_and_wait(TOPIC, b"new")
        await old.begin_transaction()
        with refused(ProducerFenced, *WHO_AND_WHY):
            if call == "send_offsets":
                await old.send_offsets_to_transaction({TopicPartition(TOPIC, 0): 1}, "g")
            await old.send(TOPIC, b"zombie")
            await (old.commit_transaction() if call == "commit" else old.abort_transaction())
            await old.begin_transaction()
            await old.send(TOPIC, b"zombie")
            await old.commit_transaction()
        for again in (old.begin_transaction, old.commit_transaction, old.abort_transaction):
            with refused(ProducerFenced, *WHO_AND_WHY):
                await again()
        await new.commit_transaction()
    assert await topic_broker.values(1) == [b"new"]
    assert await topic_broker.values(1, "read_uncommitted") == [b"new"]


@pytest.mark.proves("abort-in-a-dump")
async def test_the_older_instances_transaction_is_aborted_first(
    topic_broker: SingleTopicBroker, tmp_path: Path
) -> None:
    """The dump: data of one epoch, the ABORT of the next, and data and COMMIT of the newer instance above both."""
    async with topic_broker.producer(client_id="web-1") as old:
        await old.begin_transaction()
        await old.send_and_wait(TOPIC, b"thisIsMessageValue1")
        async with topic_broker.producer(client_id="web-2") as new:
            async with new.transaction():
                await new.send_and_wait(TOPIC, b"thisIsMessageValue2")
            with refused(ProducerFenced, *WHO_AND_WHY):
                await old.commit_transaction()
    assert await topic_broker.values(1) == [b"thisIsMessageValue2"]
    story = await topic_broker.semel("txn", "why", "TEST-TID-0")
    assert "Its last transaction was committed" in story
    assert "client 'web-2' at 127.0.0.1" in story
    rows = await topic_broker.dump(tmp_path)
    epoch = rows[0].epoch
    assert [(row.what, row.epoch - epoch) for row in rows] == [
        ("thisIsMessageValue1", 0),
        ("ABORT", 1),
        ("thisIsMessageValue2", 2),
        ("COMMIT", 3),
    ]
    assert len({row.producer_id for row in rows}) == 1


@pytest.mark.proves("producer-fenced")
async def test_librdkafka_is_fenced_alike(topic_broker: SingleTopicBroker, tmp_path: Path) -> None:
    old = topic_broker.librdkafka(client_id="web-1")
    await asyncio.to_thread(old.init_transactions, PATIENCE_S)
    old.begin_transaction()
    old.produce(TOPIC, b"thisIsMessageValue1")
    assert await asyncio.to_thread(old.flush, PATIENCE_S) == 0
    new = topic_broker.librdkafka(client_id="web-2")
    await asyncio.to_thread(new.init_transactions, PATIENCE_S)
    new.begin_transaction()
    new.produce(TOPIC, b"thisIsMessageValue2")
    await asyncio.to_thread(new.commit_transaction, PATIENCE_S)
    with pytest.raises(KafkaException) as fenced:
        await asyncio.to_thread(old.commit_transaction, PATIENCE_S)
    assert fenced.value.args[0].fatal()
    assert await topic_broker.values(1) == [b"thisIsMessageValue2"]
    rows = await topic_broker.dump(tmp_path)
    assert [(row.what, row.epoch - rows[0].epoch) for row in rows] == [
        ("thisIsMessageValue1", 0),
        ("ABORT", 1),
        ("thisIsMessageValue2", 2),
        ("COMMIT", 2),
    ]


@pytest.mark.proves("random-transactional-ids")
async def test_random_transactional_ids_fence_no_zombie_and_tools_show_it(
    topic_broker: SingleTopicBroker, tmp_path: Path
) -> None:
    """A reported mistake: the first instance can still commit. Both records are stored, and none is aborted."""
    async with topic_broker.producer("anyValue") as first, topic_broker.producer("differentValue") as second:
        await first.begin_transaction()
        await first.send_and_wait(TOPIC, b"thisIsMessageValue1")
        async with second.transaction():
            await second.send_and_wait(TOPIC, b"thisIsMessageValue2")
        stuck = await topic_broker.semel("topic", "stuck", TOPIC, status=FOUND_TROUBLE)
        assert "held by transactional id anyValue" in stuck
        assert "It was never fenced" in await topic_broker.semel("txn", "why", "anyValue")
        await first.commit_transaction()
    assert await topic_broker.values(2) == [b"thisIsMessageValue1", b"thisIsMessageValue2"]
    rows = await topic_broker.dump(tmp_path)
    assert [row.what for row in rows] == ["thisIsMessageValue1", "thisIsMessageValue2", "COMMIT", "COMMIT"]
    assert len({row.producer_id for row in rows}) == 2


@pytest.mark.proves("producer-fenced")
async def test_abort_after_fencing_raises_the_same_error(
    topic_broker: SingleTopicBroker,
) -> None:
    """`catch (ProducerFencedException e) { producer.abortTransaction(); }` hides the reason behind a second error."""
    async with topic_broker.producer(client_id="web-1") as old:
        await old.begin_transaction()
        await old.send_and_wait(TOPIC, b"zombie")
        async with topic_broker.producer(client_id="web-2"):
            with refused(ProducerFenced, *WHO_AND_WHY):
                try:
                    await old.commit_transaction()
                except ProducerFenced:
                    await old.abort_transaction()
        with refused(ProducerFenced, *WHO_AND_WHY):
            async with old.transaction():
                await old.send(TOPIC, b"never")
    assert await topic_broker.read_nothing()


@pytest.mark.proves("transactional-id-without-idempotence")
def test_a_transactional_id_without_idempotence_is_refused_when_the_producer_is_made(
    topic_broker: SingleTopicBroker,
) -> None:
    with refused(KafkaConfigurationError, "TEST-TID-0", "enable_idempotence=True"):
        topic_broker.producer(enable_idempotence=False)
