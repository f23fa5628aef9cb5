"""Guarantees for readers and their limits: transactions deleted in part, moved partitions, two workers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker.troubles.conftest import MakeScene
from broker.troubles.single_topic_broker import PATIENCE_S, TOPIC, SingleTopicBroker, refused
from semel import Admin, Consumer, TopicPartition
from semel._command_line.common import FOUND_TROUBLE
from semel.errors import CommitFailedError, TransactionHasFailed

PARTITION = TopicPartition(TOPIC, 0)


@pytest.mark.proves("part-of-a-transaction")
async def test_a_transaction_with_deleted_first_records_is_still_read(topic_broker: SingleTopicBroker) -> None:
    """Committed records stay committed and aborted ones aborted after their first records are deleted."""
    async with topic_broker.producer("a") as aborting, topic_broker.producer("c") as committing:
        await aborting.begin_transaction()
        await committing.begin_transaction()
        for number in range(4):
            await aborting.send_and_wait(TOPIC, b"a%d" % number)
            await committing.send_and_wait(TOPIC, b"c%d" % number)
        await aborting.abort_transaction()
        await committing.commit_transaction()
    async with Admin(bootstrap_servers=topic_broker.at) as admin:
        await admin.delete_records({PARTITION: 3})
    async with topic_broker.reader() as consumer:
        consumer.assign([PARTITION])
        await consumer.seek_to_beginning()
        async with asyncio.timeout(PATIENCE_S):
            found = [(await consumer.getone()).value for _ in range(3)]
        rest = await consumer.getmany(timeout_ms=50)
    assert (found, rest) == ([b"c1", b"c2", b"c3"], {})


@pytest.mark.proves("part-of-a-transaction")
async def test_a_reader_may_begin_in_the_middle_of_a_transaction(topic_broker: SingleTopicBroker) -> None:
    async with topic_broker.producer() as producer:
        for outcome in ("abort", "commit"):
            await producer.begin_transaction()
            for number in range(4):
                await producer.send_and_wait(TOPIC, b"%s %d" % (outcome.encode(), number))
            await getattr(producer, f"{outcome}_transaction")()
    for start, first in ((2, 5), (7, 7)):
        async with topic_broker.reader() as consumer:
            consumer.assign([PARTITION])
            consumer.seek(PARTITION, start)
            async with asyncio.timeout(PATIENCE_S):
                record = await consumer.getone()
            assert (record.offset, record.value) == (first, b"commit %d" % (first - 5))


@pytest.mark.proves("offsets-of-an-old-generation", "partition-moves-to-another-id")
@pytest.mark.parametrize("version", [1, 2])
async def test_a_moved_partition_is_committed_by_one_worker_only(make_scene: MakeScene, version: int) -> None:
    """Each worker has its own transactional id, so the group's generation fences the old one."""
    topic_broker = make_scene(transaction_version=version)
    await asyncio.to_thread(topic_broker.broker.create_topic, "in")
    source = TopicPartition("in", 0)
    async with topic_broker.producer(None) as plain:
        await plain.send_and_wait("in", b"1")
    settings = {"group_id": "workers", "session_timeout_ms": 6_000, "enable_auto_commit": False}
    slow = topic_broker.reader(**settings)
    slow.subscribe(["in"])
    await slow.start()
    async with topic_broker.producer("T0") as zombie, topic_broker.producer("T1") as heir:
        record = await _one(slow)
        of_the_zombie = slow.group_metadata()
        await zombie.begin_transaction()
        await zombie.send_and_wait(TOPIC, b"<1> of T0")
        await slow.stop()  # the group moves the partition; the worker does not notice
        async with topic_broker.reader(**settings) as quick:
            quick.subscribe(["in"])
            assert (await _one(quick)).offset == record.offset
            async with heir.transaction():
                await heir.send(TOPIC, b"<1> of T1")
                await heir.send_offsets_to_transaction({source: record.offset + 1}, quick.group_metadata())
            with refused(CommitFailedError, "'workers'", "Another member owns the partitions now"):
                await zombie.send_offsets_to_transaction({source: record.offset + 1}, of_the_zombie)
            with refused(TransactionHasFailed, "Call abort_transaction()"):
                await zombie.commit_transaction()
            await zombie.abort_transaction()
            assert await quick.committed(source) == record.offset + 1
    assert await topic_broker.values(1) == [b"<1> of T1"]


async def _one(consumer: Consumer) -> object:
    async with asyncio.timeout(PATIENCE_S):
        return await consumer.getone()


@pytest.mark.proves("offsets-and-output")
async def test_offsets_of_a_transaction_count_with_its_records_or_not_at_all(
    topic_broker: SingleTopicBroker, tmp_path: Path
) -> None:
    """Neither "output, then crash, then the same input again" nor "offset, then crash, then no output"."""
    async with topic_broker.reader(group_id="g") as consumer, topic_broker.producer() as producer:
        consumer.assign([PARTITION])
        await consumer.commit({PARTITION: 0})
        await producer.begin_transaction()
        await producer.send_and_wait(TOPIC, b"1")
        await producer.send_offsets_to_transaction({PARTITION: 5}, "g")
        assert "Offsets committed in a transaction take effect when it ends" in await topic_broker.semel(
            "group", "stuck", "g", "--wait", "0", status=FOUND_TROUBLE
        )
        await producer.abort_transaction()
        assert await consumer.committed(PARTITION) == 0
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"2")
            await producer.send_offsets_to_transaction({PARTITION: 6}, "g")
        assert await consumer.committed(PARTITION) == 6
    assert await topic_broker.values(1) == [b"2"]
