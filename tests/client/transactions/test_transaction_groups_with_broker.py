"""Transaction groups with semel's own broker, in both versions of the protocol: read back as committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker.harness import Harness
from client.transactions.test_transactions_with_broker import PATIENCE_S, read
from semel import Admin, GroupStep, PreparedTransaction, Producer, TopicPartition, TransactionGroup
from semel.errors import (
    InvalidTransactionTimeout,
    InvalidTxnState,
    ProducerFenced,
    TransactionalIdNotFound,
    TransactionHasFailed,
    TransactionWasCommitted,
)
from support.processes import BrokerProcess

pytestmark = pytest.mark.semel_only("needs transaction groups (BeginTransactionGroup, API 20001)")


@pytest.fixture(params=["1", "2"], ids=["version1", "version2"])
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    harness = Harness(
        tmp_path / "data",
        transaction_version=request.param,
        transaction_abort_timed_out_transaction_cleanup_interval_ms="50",
        durability="os",
    )
    await harness.start()
    try:
        yield harness
    finally:
        await harness.stop()


@pytest.fixture
async def group(broker: Harness) -> AsyncIterator[TransactionGroup]:
    async with driver(broker.port) as made:
        yield made


def driver(port: int, **settings: Any) -> TransactionGroup:
    return TransactionGroup("g", bootstrap_servers=f"127.0.0.1:{port}", **{"owner": "tests", **settings})


def member(port: int, step: GroupStep, name: str = "a", **settings: Any) -> Producer:
    return Producer(
        bootstrap_servers=f"127.0.0.1:{port}",
        transactional_id=f"g/{name}",
        transaction_group_step=step,
        **settings,
    )


async def written(producer: Producer, *values: bytes) -> PreparedTransaction:
    await producer.begin_transaction()
    for value in values:
        await producer.send("t", value, partition=0)
    prepared = await producer.prepare_transaction()
    assert prepared is not None
    return prepared


async def test_consumers_get_complete_steps_and_nothing_else(broker: Harness, group: TransactionGroup) -> None:
    expected: list[bytes] = []
    step = await group.begin()
    async with member(broker.port, step, "a") as a, member(broker.port, step, "b") as b:
        for number in range(6):
            if number:
                step = await group.begin()
                await asyncio.gather(a.join(step), b.join(step))
            values = b"%d-a" % number, b"%d-b" % number
            prepared = [await written(a, values[0]), await written(b, values[1])]
            if number % 3 == 1:
                await group.abort(step)
            else:
                assert await group.commit(step, f"batch {number}", prepared)
                expected += values
        assert await read(broker.port, "t", len(expected)) == expected


async def test_positions_of_a_group_move_with_the_step(broker: Harness, group: TransactionGroup) -> None:
    step = await group.begin()
    at = TopicPartition("in", 0)
    async with (
        member(broker.port, step) as a,
        Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin,
        Producer(bootstrap_servers=f"127.0.0.1:{broker.port}") as plain,
    ):
        await plain.send_and_wait("in", b"x", partition=0)
        await a.begin_transaction()
        await a.send_offsets_to_transaction({at: 1}, "readers")
        prepared = await a.prepare_transaction()
        assert prepared is not None
        await group.commit(step, "0", [prepared])
        assert (await admin.list_consumer_group_offsets("readers"))[at].offset == 1


async def test_a_transaction_that_is_not_listed_is_aborted_and_its_producer_gets_the_reason(
    broker: Harness, group: TransactionGroup
) -> None:
    step = await group.begin()
    async with member(broker.port, step, "a") as a, member(broker.port, step, "late") as late:
        kept = await written(a, b"kept")
        await late.begin_transaction()
        await late.send("t", b"dropped", partition=0)
        await late.flush()
        await group.commit(step, "0", [kept])
        await late.send("t", b"more", partition=0)
        with pytest.raises(ProducerFenced, match="the step of its transaction group was decided"):
            await late.prepare_transaction()
    assert await read(broker.port, "t", 1) == [b"kept"]


async def test_a_worker_of_an_older_step_is_fenced_with_the_driver_of_the_next_step(
    broker: Harness, group: TransactionGroup
) -> None:
    step = await group.begin()
    async with member(broker.port, step, "busy") as busy, member(broker.port, step, "idle") as idle:
        await busy.begin_transaction()
        await busy.send_and_wait("t", b"1", partition=0)
        await idle.begin_transaction()
        newer = await group.begin()
        for zombie in (busy, idle):
            await zombie.send("t", b"2", partition=0)
            with pytest.raises(ProducerFenced, match=r"step 2 .*was begun .*by tests"):
                await zombie.prepare_transaction()
            await zombie.join(newer)
        with pytest.raises(ProducerFenced, match=r"step 2 was begun at .* by tests, client 'semel' at 127"):
            await member(broker.port, step, "new").start()
        with pytest.raises(ProducerFenced, match=r"step 2 was begun at .* by tests"):
            await group.commit(step, "0", [])
        await group.commit(newer, "0", [await written(busy, b"3"), await written(idle, b"4")])
    assert await read(broker.port, "t", 2) == [b"3", b"4"]


async def test_a_late_member_gets_the_outcome_of_its_step(broker: Harness, group: TransactionGroup) -> None:
    step = await group.begin()
    async with member(broker.port, step) as a, member(broker.port, step, "idle") as idle:
        await idle.begin_transaction()
        await group.commit(step, "batch 0", [await written(a, b"1")])
        with pytest.raises(TransactionWasCommitted):
            await a.abort_transaction()
        with pytest.raises(TransactionWasCommitted):
            await group.abort(step)
        await idle.send("t", b"2", partition=0)
        with pytest.raises(ProducerFenced, match="committed as 'batch 0'"):
            await idle.prepare_transaction()
        assert await group.commit(step, "batch 0", [])
        with pytest.raises(InvalidTxnState, match="committed as 'batch 0'"):
            await group.commit(step, "batch 1", [])


async def test_a_member_aborts_its_transaction_and_writes_again(broker: Harness, group: TransactionGroup) -> None:
    step = await group.begin()
    async with member(broker.port, step) as a:
        stale = await written(a, b"wrong")
        await a.abort_transaction()
        fresh = await written(a, b"right")
        with pytest.raises(ProducerFenced):
            await group.commit(step, "0", [stale])
        await group.commit(step, "0", [fresh])
    assert await read(broker.port, "t", 1) == [b"right"]


async def test_a_member_that_is_fenced_by_another_of_its_name_says_so(broker: Harness, group: TransactionGroup) -> None:
    step = await group.begin()
    async with member(broker.port, step) as first:
        await first.begin_transaction()
        await first.send_and_wait("t", b"1", partition=0)
        async with member(broker.port, step) as second:
            await first.send("t", b"1", partition=0)
            with pytest.raises((ProducerFenced, TransactionHasFailed), match="new producer"):
                await first.prepare_transaction()
            await group.commit(step, "0", [await written(second, b"2")])
    assert await read(broker.port, "t", 1) == [b"2"]


async def test_a_step_that_takes_too_long_is_aborted_as_a_whole(broker: Harness) -> None:
    async with driver(broker.port, timeout_ms=150) as group:
        step = await group.begin()
        async with member(broker.port, step) as a, member(broker.port, step, "b") as b:
            prepared = await written(a, b"1")
            await written(b, b"2")
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    async with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
                        (found,) = await admin.describe_transaction_groups(["g"])
                    if not found.is_open:
                        break
                    await asyncio.sleep(0.05)
            with pytest.raises(InvalidTxnState, match="150 ms"):
                await group.commit(step, "0", [prepared])
            assert not any(each.is_open for each in found.members)
    with pytest.raises(InvalidTransactionTimeout):
        async with driver(broker.port, timeout_ms=2**31 - 1) as group:
            await group.begin()


async def test_groups_are_described_with_their_drivers(broker: Harness, group: TransactionGroup) -> None:
    async with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
        assert await admin.describe_transaction_groups() == []
        with pytest.raises(TransactionalIdNotFound, match="'g'"):
            await admin.describe_transaction_groups(["g"])
        step = await group.begin()
        async with member(broker.port, step) as a:
            prepared = await written(a, b"1")
            (found,) = await admin.describe_transaction_groups()
            assert (found.name, found.epoch, found.state, found.owner) == ("g", 1, "Open", "tests")
            assert found.client == "client 'semel' at 127.0.0.1"
            assert found.open_since_ms is not None
            assert not found.is_overdue(found.open_since_ms)
            assert found.is_overdue(found.open_since_ms + found.timeout_ms + 1)
            (row,) = found.members
            assert (row.transactional_id, row.group_epoch, row.is_open) == ("g/a", 1, True)
            await group.commit(step, "batch 0", [prepared])
        (found,) = await admin.describe_transaction_groups(["g"])
        assert (found.state, found.decided_token, found.decided_epoch) == ("Committed", "batch 0", 1)
        await admin.abort_transaction_group("g", "the till is closed")
        (found,) = await admin.describe_transaction_groups(["g"])
        assert (found.state, found.epoch, found.decided_token) == ("Aborted", 2, "batch 0")
        with pytest.raises(ProducerFenced, match="the till is closed"):
            await group.commit(step, "batch 1", [])


@pytest.mark.real_time
async def test_killed_brokers_neither_split_nor_duplicate_a_step(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    await asyncio.to_thread(broker.start)
    kills: list[asyncio.Task[None]] = []
    try:
        async with driver(broker.port) as group:
            step = await group.begin()
            async with member(broker.port, step, "a") as a, member(broker.port, step, "b") as b:
                for number in range(24):
                    if number:
                        step = await group.begin()
                        await asyncio.gather(a.join(step), b.join(step))
                    prepared = [await written(each, b"%d" % number) for each in (a, b)]
                    if number % 6 == 3:
                        kills.append(asyncio.create_task(asyncio.to_thread(broker.kill_and_restart, 0.1)))
                    assert await group.commit(step, str(number), prepared)
        await asyncio.gather(*kills)
        assert await read(broker.port, "t", 48) == [b"%d" % (number // 2) for number in range(48)]
    finally:
        await asyncio.to_thread(broker.stop)
