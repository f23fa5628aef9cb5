"""Transactions of the Producer with semel's own broker, in both versions of the protocol: read back as committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker.harness import Harness
from client.consuming import until
from semel import Admin, Consumer, ConsumerGroupMetadata, NewTopic, Producer, TopicPartition
from semel.errors import CommitFailedError, IllegalOperation, ProducerFenced, TransactionHasFailed
from support.against import OutsideBroker, outside
from support.processes import BrokerProcess
from support.tiers import tiered

PATIENCE_S = 20
POSITIONS = TopicPartition("in", 0)


@pytest.fixture(params=["1", "2"], ids=["version1", "version2"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness | OutsideBroker]:
    if there := outside(request):
        if request.param == "1":
            pytest.skip("the transaction version is the cluster's: once is enough")
        yield there
        return
    harness = Harness(
        tmp_path / "data",
        group_initial_rebalance_delay_ms="0",
        transaction_version=request.param,
        transaction_abort_timed_out_transaction_cleanup_interval_ms="50",
        durability="os",
    )
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()


def producer(port: int, **settings: Any) -> Producer:
    return Producer(bootstrap_servers=f"127.0.0.1:{port}", **{"transactional_id": "x", **settings})


async def read(port: int, topic: str, count: int, isolation: Any = "read_committed") -> list[bytes]:
    """The first values that a reader gets from a topic of one partition, and those of a moment later."""
    found: list[bytes] = []
    async with Consumer(bootstrap_servers=f"127.0.0.1:{port}", isolation_level=isolation) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < count:
                found.append((await consumer.getone()).value)
        rest = await consumer.getmany(timeout_ms=50)
        return found + [record.value for records in rest.values() for record in records]


async def until_committed(consumer: Consumer, at: TopicPartition, offset: int) -> None:
    """Kafka answers a commit before the group's offsets have their marker."""

    async def is_there() -> bool:
        return await consumer.committed(at) == offset

    await until(is_there)


async def test_consumers_get_the_committed_records_and_no_others(broker: Harness) -> None:
    expected = []
    async with producer(broker.port) as made:
        for number in range(12):
            await made.begin_transaction()
            await made.send("t", b"%d-a" % number, partition=0)
            await made.send("t", b"%d-b" % number, partition=0)
            if number % 3:
                await made.commit_transaction()
                expected += [b"%d-a" % number, b"%d-b" % number]
            else:
                await made.abort_transaction()
        assert await read(broker.port, "t", len(expected)) == expected
        everything = await read(broker.port, "t", 2, "read_uncommitted")
    assert set(expected) <= set(everything)


async def test_an_open_transaction_holds_readers_back_until_it_ends(broker: Harness) -> None:
    async with producer(broker.port) as made, producer(broker.port, transactional_id=None) as plain:
        await made.begin_transaction()
        await made.send_and_wait("t", b"1", partition=0)
        await plain.send_and_wait("t", b"2", partition=0)
        reading = asyncio.create_task(read(broker.port, "t", 2))
        await asyncio.sleep(0.1)
        assert not reading.done()
        await made.commit_transaction()
        assert await reading == [b"1", b"2"]


async def test_consume_transform_produce_moves_records_and_positions_together(broker: Harness) -> None:
    address = f"127.0.0.1:{broker.port}"
    async with producer(broker.port, transactional_id=None) as plain:
        for number in range(50):
            await plain.send("in", b"%d" % number, partition=0)
    done = 0
    for attempt in range(6):
        async with (
            Consumer(
                "in",
                bootstrap_servers=address,
                group_id="g",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            ) as consumer,
            producer(broker.port) as made,
        ):
            first = await consumer.getone()
            assert first.offset == done
            more = (await consumer.getmany(max_records=7)).get(POSITIONS, [])
            await made.begin_transaction()
            for record in (first, *more):
                await made.send("out", b"<" + record.value + b">", partition=0)
            position = first.offset + 1 + len(more)
            await made.send_offsets_to_transaction({POSITIONS: position}, consumer.group_metadata())
            if attempt % 3 == 1:
                await made.abort_transaction()
            else:
                await made.commit_transaction()
                done = position
            assert await consumer.committed(POSITIONS) == done
    assert await read(broker.port, "out", done) == [b"<%d>" % number for number in range(done)]


async def test_positions_of_a_member_that_lost_its_partitions_are_refused(broker: Harness) -> None:
    address = f"127.0.0.1:{broker.port}"
    settings: dict[str, Any] = {"bootstrap_servers": address, "group_id": "g", "auto_offset_reset": "earliest"}
    async with producer(broker.port) as made:
        async with Consumer("t", **settings) as consumer:
            old = consumer.group_metadata()
            assert (old.group_id, old.generation_id >= 1, bool(old.member_id)) == ("g", True, True)
        async with Consumer("t", **settings) as consumer:
            await made.begin_transaction()
            await made.send_and_wait("t", b"gone", partition=0)
            with pytest.raises(CommitFailedError):
                await made.send_offsets_to_transaction({TopicPartition("t", 0): 1}, old)
            with pytest.raises(TransactionHasFailed):
                await made.commit_transaction()
            await made.abort_transaction()
            async with made.transaction():
                await made.send_offsets_to_transaction({TopicPartition("t", 0): 2}, consumer.group_metadata())
            await until_committed(consumer, TopicPartition("t", 0), 2)


@pytest.mark.proves("offsets-after-a-revocation")
@pytest.mark.parametrize("how", ["silent for too long", "in a rebalance that did not wait"])
async def test_offsets_of_records_revoked_while_processed_are_refused(broker: Harness, how: str) -> None:
    address = f"127.0.0.1:{broker.port}"
    settings: dict[str, Any] = {"bootstrap_servers": address, "group_id": "g", "auto_offset_reset": "earliest"}
    settings |= {"enable_auto_commit": False, "heartbeat_interval_ms": 50}
    patience = {"max_poll_interval_ms": 300} if how == "silent for too long" else {"rebalance_timeout_ms": 300}
    place = TopicPartition("t", 0)
    async with Producer(bootstrap_servers=address) as feeder, producer(broker.port) as made:
        for number in range(2):
            await feeder.send_and_wait("t", b"%d" % number, partition=0)
        async with asyncio.timeout(PATIENCE_S), Consumer("t", **settings, **patience) as slow:
            assert (await slow.getone()).offset == 0
            await made.begin_transaction()
            await made.send("out", b"late", partition=0)
            while "max_poll_interval_ms" in patience and slow.assignment():
                await asyncio.sleep(0.01)
            async with Consumer("t", **settings) as other:  # which has joined by then, in a new generation
                with pytest.raises(CommitFailedError):
                    await made.send_offsets_to_transaction({place: 1}, slow.group_metadata())
                await made.abort_transaction()
                assert await other.committed(place) is None


@pytest.mark.proves("same-generation-after-a-revocation")
@pytest.mark.parametrize("name", [None, "the slow one"], ids=["dynamic", "static"])
async def test_offsets_of_records_revoked_while_processed_are_refused_in_the_same_generation(
    broker: Harness, name: str | None
) -> None:
    """A member that joins again unchanged gets the present generation: no rebalance, no new number."""
    address = f"127.0.0.1:{broker.port}"
    settings: dict[str, Any] = {"bootstrap_servers": address, "group_id": "g", "auto_offset_reset": "earliest"}
    settings |= {"enable_auto_commit": False, "heartbeat_interval_ms": 50, "partition_assignment_strategy": ("range",)}
    async with (
        asyncio.timeout(PATIENCE_S),
        Admin(bootstrap_servers=address) as admin,
        Producer(bootstrap_servers=address) as feeder,
        producer(broker.port) as made,
        Consumer(**settings) as leader,
        Consumer(**settings, rebalance_timeout_ms=200, group_instance_id=name) as slow,
    ):
        await admin.create_topics([NewTopic("two", 2)])
        for consumer in (leader, slow):
            consumer.subscribe(["two"])
        while not (leader.assignment() and slow.assignment()):
            await asyncio.gather(leader.getmany(timeout_ms=20), slow.getmany(timeout_ms=20))
        (place,) = slow.assignment()
        await feeder.send_and_wait("two", b"0", partition=place.partition)
        assert (await slow.getone()).value == b"0"
        before = slow.group_metadata()
        await made.begin_transaction()
        await made.send("out", b"late", partition=0)

        group = slow._group
        assert group is not None
        assigned = group.assignments
        group.request_rejoin("as upon an answer that came before the coordinator died")
        again: list[Consumer] = []  # the next owner of the partition reads the record again
        while group.assignments == assigned:
            again += [leader] * len(await leader.getmany(timeout_ms=20))
        for metadata in (before, slow.group_metadata()):
            with pytest.raises(CommitFailedError):
                await made.send_offsets_to_transaction({place: 1}, metadata)
            await made.abort_transaction()
            await made.begin_transaction()
        while not again:
            for consumer in (leader, slow):
                again += [consumer] * len(await consumer.getmany(timeout_ms=20))
        await made.send_offsets_to_transaction({place: 1}, again[0].group_metadata())
        await made.commit_transaction()

        await until_committed(slow, place, 1)


async def test_group_metadata_of_a_consumer_without_a_membership(broker: Harness) -> None:
    address = f"127.0.0.1:{broker.port}"
    async with Consumer(bootstrap_servers=address, group_id="g") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert consumer.group_metadata() == ConsumerGroupMetadata("g")
    with pytest.raises(IllegalOperation, match="group_id"):
        Consumer(bootstrap_servers=address).group_metadata()


async def test_a_fenced_producer_gets_the_name_of_the_other_client(broker: Harness) -> None:
    async with producer(broker.port, client_id="first") as old:
        await old.begin_transaction()
        await old.send_and_wait("t", b"zombie", partition=0)
        async with producer(broker.port, client_id="second") as new:
            async with new.transaction():
                await new.send("t", b"new", partition=0)
            who = r"a new producer with this transactional\.id.*'second' at 127"
            if isinstance(broker, OutsideBroker):
                who = r"epoch \d+ has it now.*Another producer with this transactional_id was started.*no fence ledger"
            with pytest.raises(ProducerFenced, match=who):
                await old.commit_transaction()
            with pytest.raises(ProducerFenced, match=who):
                await old.abort_transaction()
        assert await read(broker.port, "t", 1) == [b"new"]


async def test_a_producer_past_its_transaction_timeout_gets_the_reason(broker: Harness) -> None:
    async with producer(broker.port, transaction_timeout_ms=100) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"slow", partition=0)
        async with producer(broker.port, transactional_id=None) as plain:
            await plain.send_and_wait("t", b"plain", partition=0)
        assert await read(broker.port, "t", 1) == [b"plain"]  # the coordinator has aborted it
        if isinstance(broker, OutsideBroker):
            await _commits_too_late(made)
            return
        with pytest.raises(ProducerFenced, match=r"transaction\.timeout\.ms"):
            await made.commit_transaction()


async def _commits_too_late(made: Producer) -> None:
    """Kafka fences the producer with version 1 of the protocol; with version 2 it can abort and continue."""
    with pytest.raises(
        (ProducerFenced, TransactionHasFailed), match=r"open for longer than.*transaction_timeout_ms=100"
    ) as e:
        await made.commit_transaction()
    if e.type is TransactionHasFailed:
        await made.abort_transaction()
        async with made.transaction():
            await made.send("t", b"next", partition=0)


async def test_a_producer_with_an_expired_id_gets_the_reason_and_continues(tmp_path: Path) -> None:
    broker = Harness(
        tmp_path / "data",
        transactional_id_expiration_ms="100",
        transaction_remove_expired_transaction_cleanup_interval_ms="20",
        durability="os",
    )
    await broker.start()
    try:
        async with producer(broker.port) as made:
            async with made.transaction():
                await made.send("t", b"0", partition=0)
            await asyncio.sleep(0.4)
            with pytest.raises(TransactionHasFailed, match=r"transactional\.id"):
                async with made.transaction():
                    await made.send("t", b"gone", partition=0)
            async with made.transaction():
                await made.send("t", b"1", partition=0)
            assert await read(broker.port, "t", 2) == [b"0", b"1"]
    finally:
        await broker.stop()


async def test_a_broker_restart_during_a_transaction_loses_nothing(broker: Harness) -> None:
    broker.settings["port"] = str(broker.port)
    async with producer(broker.port) as made:
        for number in range(4):
            async with made.transaction():
                await made.send_and_wait("t", b"%d-a" % number, partition=0)
                await broker.restart()
                await made.send("t", b"%d-b" % number, partition=0)
                await made.send_offsets_to_transaction({TopicPartition("t", 0): number + 1}, "g")
    expected = [b"%d-%s" % (number, part) for number in range(4) for part in (b"a", b"b")]
    assert await read(broker.port, "t", 8) == expected


@pytest.mark.real_time
@pytest.mark.parametrize("version", tiered(["1", "2"], lambda version: version == "2"))
async def test_killed_brokers_neither_split_nor_duplicate_a_transaction(tmp_path: Path, version: str) -> None:
    settings = {"transaction.version": version}
    broker = BrokerProcess(tmp_path / "data", **settings)
    await asyncio.to_thread(broker.start)
    try:
        async with producer(broker.port) as made:
            for number in range(60):
                async with made.transaction():
                    for part in b"ab":
                        await made.send("t", b"%d-%c" % (number, part), partition=0)
                    if number in (15, 30, 45):
                        await asyncio.to_thread(broker.kill_and_restart, 0.1)
        expected = [b"%d-%c" % (number, part) for number in range(60) for part in b"ab"]
        assert await read(broker.port, "t", 120) == expected
    finally:
        await asyncio.to_thread(broker.stop)
