"""What a group guarantees by either protocol, against a real broker: its members join, leave, crash and come back."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from broker.harness import Harness
from client.consume.test_consumer import grow, numbers
from client.consuming import Reader, produce, tp, until
from client.group.members import (
    CLASSIC,
    CONSUMER,
    ListenerCalls,
    create,
    member_of,
    shares,
    skip_without_consumer_protocol,
    spread,
)
from semel import ConsumerRebalanceListener, TopicPartition
from semel.errors import CommitFailedError
from support.against import OutsideBroker


def assigned_by(strategy: str) -> dict[str, Any]:
    return {**CLASSIC, "partition_assignment_strategy": (strategy,)}


STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


@pytest.fixture(params=[CLASSIC, CONSUMER], ids=["classic", "consumer"])
async def settings(request: pytest.FixtureRequest, broker: Harness | OutsideBroker) -> dict[str, Any]:
    """The settings of all members of the test."""
    if request.param is CONSUMER:
        await skip_without_consumer_protocol(broker)
    return dict(request.param)


@pytest.mark.parametrize(
    "settings", [*map(assigned_by, STRATEGIES), CONSUMER], ids=[*STRATEGIES, "consumer"], indirect=True
)
async def test_three_members_one_leaves_one_joins_and_every_record_is_read_once(
    settings: dict[str, Any], wide: str
) -> None:
    async with (
        Reader(member_of(wide, **settings)) as one,
        Reader(member_of(wide, **settings)) as two,
        Reader(member_of(wide, **settings)) as three,
    ):
        await until(lambda: shares(one, two, three) == [2, 2, 2])
        await spread(wide, numbers(1, 100))
        await until(lambda: sum(len(r.values) for r in (one, two, three)) >= 100)
        await three.stop()
        await until(lambda: shares(one, two) == [3, 3])
        await spread(wide, numbers(100, 200))
        async with Reader(member_of(wide, **settings)) as four:
            await until(lambda: shares(one, two, four) == [2, 2, 2])
            await spread(wide, numbers(200, 300))
            await until(lambda: sum(len(r.values) for r in (one, two, three, four)) >= 300)
            read = Counter(one.values + two.values + three.values + four.values)
    assert sorted(read, key=int) == numbers(0, 300)
    assert set(read.values()) == {1}


async def test_a_member_that_crashes_is_replaced_after_its_session(settings: dict[str, Any], wide: str) -> None:
    async with Reader(member_of(wide, **settings)) as one:
        two = Reader(member_of(wide, **settings))
        async with two:
            await until(lambda: shares(one, two) == [3, 3])
            await two.crash()
            await until(lambda: shares(one) == [6], timeout_s=12)


async def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    settings: dict[str, Any], wide: str
) -> None:
    listener = ListenerCalls()
    watcher = member_of(wide, **settings, group_instance_id="w")
    watcher.subscribe(["t"], listener=listener)
    async with Reader(watcher) as one:
        two = Reader(member_of(wide, **settings, group_instance_id="s"))
        async with two:
            await until(lambda: shares(one, two) == [3, 3])
            had = two.consumer.assignment()
        told = len(listener.calls)
        async with Reader(member_of(wide, **settings, group_instance_id="s")) as again:
            await until(lambda: shares(again) == [3])
            assert again.consumer.assignment() == had
            assert len(listener.calls) == told


async def test_new_partitions_of_a_topic_are_shared_out_in_one_rebalance(
    settings: dict[str, Any], bootstrap: str
) -> None:
    await create(bootstrap, t=1)
    await produce(bootstrap, [b"0"])
    async with Reader(member_of(bootstrap, **settings, metadata_max_age_ms=100)) as one:
        await until(lambda: shares(one) == [1])
        await grow(bootstrap, 4)
        await until(lambda: shares(one) == [4], timeout_s=20)
        await produce(bootstrap, [b"1"], partition=3)
        await until(lambda: sorted(one.values) == [b"0", b"1"])
        generation = one.consumer.group_metadata().generation_id
        await asyncio.sleep(0.4)
        assert one.consumer.group_metadata().generation_id == generation, "one change, one rebalance"


async def test_a_listener_seeks_before_the_first_record_and_commits_before_the_last_moment(
    settings: dict[str, Any], wide: str
) -> None:
    await produce(wide, numbers(1, 10))

    class SeekingListener(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            if assigned:
                consumer.seek(tp(0), 5)
                assert await consumer.position(tp(1)) == 0

        async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            await consumer.commit({tp(0): 8})

    consumer = member_of(wide, **settings, enable_auto_commit=False)
    consumer.subscribe(["t"], listener=SeekingListener())
    async with consumer:
        assert (await consumer.getone()).offset == 5
    async with member_of(wide, **settings, enable_auto_commit=False) as after:
        assert await after.committed(tp(0)) == 8


@pytest.mark.parametrize(
    "settings", [assigned_by("cooperative-sticky"), CONSUMER], ids=["classic", "consumer"], indirect=True
)
async def test_commits_go_through_while_others_join(settings: dict[str, Any], wide: str) -> None:
    """A commit during a rebalance succeeds, or fails because the partition moved.

    It must not wait for its own records: the rebalance waits for records in hand and the application for its commit, so
    only a timeout would end both.
    """
    await spread(wide, numbers(1, 3000))
    one = member_of(wide, **settings, enable_auto_commit=False)
    await one.start()
    outcomes: Counter[str] = Counter()
    enough = asyncio.Event()
    loop = asyncio.get_running_loop()
    commits_s: list[float] = []

    async def work() -> None:
        while not enough.is_set():
            for partition, rows in (await one.getmany(timeout_ms=50, max_records=2)).items():
                before = loop.time()
                try:
                    await one.commit({partition: rows[-1].offset + 1})
                    outcomes["committed"] += 1
                except CommitFailedError:
                    outcomes["moved"] += 1
                commits_s.append(loop.time() - before)

    working = asyncio.create_task(work())
    for _ in range(2):
        async with Reader(member_of(wide, **settings, enable_auto_commit=False)) as two:
            await until(lambda: len(two.consumer.assignment()) == 3)
        await until(lambda: len(one.assignment()) == 6)
    enough.set()
    await asyncio.wait_for(working, 5)
    assert outcomes["committed"] > 0
    assert max(commits_s) < 2
    await one.stop()


async def test_a_broker_restart_causes_no_rebalance(settings: dict[str, Any], wide: str, broker: Harness) -> None:
    broker.settings["port"] = str(broker.port)
    listener = ListenerCalls()
    watcher = member_of(wide, **settings)
    watcher.subscribe(["t"], listener=listener)
    async with Reader(watcher) as one, Reader(member_of(wide, **settings)) as two:
        await until(lambda: shares(one, two) == [3, 3])
        told = len(listener.calls)
        await broker.restart()
        await spread(wide, numbers(1, 30))
        await until(lambda: len(one.values + two.values) >= 30, timeout_s=15)
        assert len(listener.calls) == told
        assert sorted(one.values + two.values, key=int) == numbers(0, 30)
