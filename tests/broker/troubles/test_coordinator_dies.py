"""The coordinator dies before, between or after the records that end a transaction; a partition is unreachable."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from broker.troubles.conftest import MakeScene
from broker.troubles.single_topic_broker import PATIENCE_S, TOPIC, SingleTopicBroker, heard_out, refused
from semel import TopicPartition
from semel._command_line.common import FOUND_TROUBLE
from semel.errors import KafkaTimeoutError
from semel_protocol.hashes import coordinator_partition
from semel_storage.internal_topics import TRANSACTION_STATE


@pytest.fixture(params=[1, 2], ids=["version1", "version2"])
def topic_broker(make_scene: MakeScene, request: pytest.FixtureRequest) -> SingleTopicBroker:
    topic_broker = make_scene(transaction_version=request.param)
    topic_broker.broker.create_topic("other")
    return topic_broker


@pytest.mark.proves("coordinator-dies")
async def test_before_the_decision_is_stored_the_commit_is_retried(
    topic_broker: SingleTopicBroker, tmp_path: Path
) -> None:
    async with topic_broker.producer() as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"1")
        await topic_broker.kill()
        committing = asyncio.create_task(producer.commit_transaction())
        await topic_broker.start()
        await committing
    assert await topic_broker.values(1) == [b"1"]
    assert [row.what for row in await topic_broker.dump(tmp_path)] == ["1", "COMMIT"]


@pytest.mark.proves("coordinator-dies")
@pytest.mark.parametrize("commit", [True, False])
async def test_after_the_decision_is_stored_the_next_coordinator_writes_the_markers(
    topic_broker: SingleTopicBroker, commit: bool, tmp_path: Path
) -> None:
    """One of two partitions has its marker. In the end both have it once, and the producer gets the outcome."""
    async with topic_broker.producer(max_block_ms=150) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"1")
        await producer.send_and_wait("other", b"1")
        await topic_broker.lose_leader("other")
        end = producer.commit_transaction if commit else producer.abort_transaction
        with refused(KafkaTimeoutError, "call"):
            await end()
        state = "PrepareCommit" if commit else "PrepareAbort"
        assert state in await topic_broker.semel("txn", "why", "TEST-TID-0")
        await topic_broker.kill()
        await topic_broker.start()
        await heard_out(end)
        async with producer.transaction():
            for topic in (TOPIC, "other"):
                await producer.send(topic, b"2")
    expected = [b"1", b"2"] if commit else [b"2"]
    for topic in (TOPIC, "other"):
        assert await topic_broker.values(len(expected), topic=topic) == expected
    for topic in (TOPIC, "other"):
        markers = [row.what for row in await topic_broker.dump(tmp_path, f"{topic}-0")]
        assert markers == ["1", "COMMIT" if commit else "ABORT", "2", "COMMIT"]
        await topic_broker.start()


@pytest.mark.proves("coordinator-dies")
async def test_after_the_end_is_stored_a_retry_is_answered_as_the_first_try(
    topic_broker: SingleTopicBroker, tmp_path: Path
) -> None:
    """The broker dies before its answer; the client retries and gets the commit as the outcome."""
    async with topic_broker.producer(max_block_ms=150) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"1")
        await topic_broker.lose_leader(TOPIC)
        with refused(KafkaTimeoutError, "call commit_transaction() again"):
            await producer.commit_transaction()
        await topic_broker.kill()  # the client's request is lost with it
        await topic_broker.start()
        await topic_broker.wait_for("was committed", "txn", "why", "TEST-TID-0")
        await heard_out(producer.commit_transaction)
    assert await topic_broker.values(1) == [b"1"]
    assert [row.what for row in await topic_broker.dump(tmp_path)] == ["1", "COMMIT"]


@pytest.mark.proves("unreachable-partition")
async def test_an_unreachable_partition_delays_only_its_own_readers(topic_broker: SingleTopicBroker) -> None:
    """The commit takes longer than transaction.timeout.ms and still commits."""
    async with topic_broker.producer(max_block_ms=150, transaction_timeout_ms=300) as producer:
        await producer.begin_transaction()
        for topic in (TOPIC, "other"):
            await producer.send_and_wait(topic, b"1")
        await topic_broker.lose_leader("other")
        with refused(KafkaTimeoutError, "call commit_transaction() again"):
            await producer.commit_transaction()
        assert await topic_broker.values(1) == [b"1"]
        await asyncio.sleep(0.4)  # past its transaction.timeout.ms, and several sweeps
        stuck = await topic_broker.semel("topic", "stuck", "other", status=FOUND_TROUBLE)
        assert "held by transactional id TEST-TID-0" in stuck
        assert "is not stuck" in await topic_broker.semel("topic", "stuck", TOPIC)
        story = await topic_broker.semel("txn", "why", "TEST-TID-0")
        assert "The commit is decided and durable; it waits until every partition has its marker" in story
        await topic_broker.find_leader()
        await heard_out(producer.commit_transaction)
    assert await topic_broker.values(1, topic="other") == [b"1"]


@pytest.mark.proves("coordinator-dies")
async def test_offsets_and_records_are_decided_together_over_the_death_of_the_coordinator(
    topic_broker: SingleTopicBroker,
) -> None:
    """Consume, transform, produce: killed between the output and the input's offset, nothing is doubled or lost."""
    done: list[bytes] = []
    async with topic_broker.producer(None) as plain:
        for number in range(6):
            await plain.send("other", b"%d" % number)
    async with topic_broker.producer() as producer, topic_broker.reader(group_id="g") as consumer:
        partition = TopicPartition("other", 0)
        consumer.assign([partition])
        for number in range(6):
            async with asyncio.timeout(PATIENCE_S):
                record = await consumer.getone()
            async with producer.transaction():
                await producer.send_and_wait(TOPIC, b"<%s>" % record.value)
                if number % 2:
                    await topic_broker.kill()
                    await topic_broker.start()
                await producer.send_offsets_to_transaction({partition: record.offset + 1}, "g")
            done.append(b"<%d>" % number)
            assert await consumer.committed(partition) == number + 1
    assert await topic_broker.values(6) == done


@pytest.mark.proves("damaged-transaction-log")
async def test_a_damaged_transaction_log_is_reported_and_kept(
    topic_broker: SingleTopicBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """The coordinator does not continue from a part of its log; requests without transactions work."""
    async with topic_broker.producer() as producer, producer.transaction():
        await producer.send(TOPIC, b"1")
    await topic_broker.stop()
    disk = topic_broker.broker._disk
    path = f"data/{TRANSACTION_STATE}-{coordinator_partition('TEST-TID-0', 50)}/{0:020}.log"
    whole = disk.read_bytes(path)
    disk.overwrite(path, whole[:-1] + bytes([whole[-1] ^ 0xFF]))
    with caplog.at_level(logging.ERROR, "semel_broker"):
        await topic_broker.start()
        with refused(KafkaTimeoutError, "'TEST-TID-0'", "COORDINATOR_NOT_AVAILABLE"):
            await topic_broker.producer(max_block_ms=300).start()
    assert "transactions_not_loaded" in caplog.text
    async with topic_broker.producer(None) as plain:
        await plain.send_and_wait(TOPIC, b"2")
    await topic_broker.stop()
    disk.overwrite(path, whole)
    await topic_broker.start()
    async with topic_broker.producer() as producer, producer.transaction():
        await producer.send(TOPIC, b"3")
    assert await topic_broker.values(3) == [b"1", b"2", b"3"]
