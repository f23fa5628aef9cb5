"""Members of one group against a real broker: the partitions of each while members join, leave, crash and stall."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable

import pytest
from broker.harness import Harness
from client.consume.test_consumer import grow, numbers
from client.consuming import Reader, produce, take, tp, until
from semel import ConsumerRebalanceListener, TopicPartition
from semel._group.group import NEXT, State
from semel.consumer import Consumer
from semel.errors import CommitFailedError, ConsumerStoppedError, FencedInstanceIdError, InconsistentGroupProtocolError

EAGER = ("range",)
COOPERATIVE = ("cooperative-sticky",)


def member_of(bootstrap: str, *topics: str, **settings: object) -> Consumer:
    merged = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 50,
        "session_timeout_ms": 6000,
        "rebalance_timeout_ms": 3000,
        "fetch_max_wait_ms": 100,
        "retry_backoff_ms": 20,
        **settings,
    }
    return Consumer(*(topics or ("t",)), bootstrap_servers=bootstrap, **merged)  # type: ignore[arg-type]


async def spread(bootstrap: str, values: list[bytes], partitions: int = 6) -> None:
    for partition in range(partitions):
        await produce(bootstrap, values[partition::partitions], partition=partition)


@pytest.fixture
async def wide(bootstrap: str) -> str:
    """A topic `t` of six partitions."""
    await produce(bootstrap, [b"0"])
    await grow(bootstrap, 6)
    return bootstrap


class ListenerCalls(ConsumerRebalanceListener):
    """Records the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self.calls.append(("revoked", revoked))

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> Awaitable[None] | None:
        self.calls.append(("assigned", assigned))
        return None

    async def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self.calls.append(("lost", lost))


def shares(*readers: Reader) -> list[int]:
    return [len(reader.consumer.assignment()) for reader in readers]


def test_every_state_is_in_the_table_and_can_be_left_and_reached() -> None:
    assert set(NEXT) == set(State)
    assert all(NEXT[state] for state in State if state is not State.STOPPED)
    reachable = {after for nexts in NEXT.values() for after in nexts}
    assert reachable == set(State)


@pytest.mark.parametrize("strategy", [EAGER, ("roundrobin",), ("sticky",), COOPERATIVE], ids=lambda s: s[0])
async def test_three_members_one_leaves_one_joins_and_every_record_is_read_once(
    wide: str, strategy: tuple[str, ...]
) -> None:
    settings = {"partition_assignment_strategy": strategy}
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


async def test_kip429_partitions_that_stay_are_read_without_a_pause(wide: str) -> None:
    listener = ListenerCalls()
    consumer = member_of(wide, partition_assignment_strategy=COOPERATIVE)
    consumer.subscribe(["t"], listener=listener)
    async with Reader(consumer) as one:
        await until(lambda: shares(one) == [6])
        async with Reader(member_of(wide, partition_assignment_strategy=COOPERATIVE)) as two:
            await until(lambda: shares(one, two) == [3, 3])
            kept = one.consumer.assignment()
            moved = next(partitions for what, partitions in listener.calls if what == "revoked")
            assert len(moved) == 3
            assert not kept & set(moved)
            assert [what for what, _ in listener.calls[:2]] == ["assigned", "revoked"]
            assert all(not partitions for what, partitions in listener.calls[2:] if what == "assigned"), (
                "nothing new came"
            )


async def test_a_member_that_crashes_is_replaced_after_its_session(wide: str, broker: Harness) -> None:
    async with Reader(member_of(wide)) as one:
        two = Reader(member_of(wide, session_timeout_ms=6000))
        async with two:
            await until(lambda: shares(one, two) == [3, 3])
            await two.crash()
            await until(lambda: shares(one) == [6], timeout_s=12)


async def test_partitions_are_not_revoked_while_their_records_are_processed(wide: str) -> None:
    await spread(wide, numbers(1, 60))
    one = member_of(wide, rebalance_timeout_ms=20_000, auto_commit_interval_ms=60_000)
    await one.start()
    in_hand = await take(one, 20)
    async with Reader(member_of(wide)) as two:
        await asyncio.sleep(0.4)
        assert not two.consumer.assignment(), "the first member has not come back yet"
        asking = asyncio.create_task(take(one, 1))
        await until(lambda: len(two.consumer.assignment()) == 3)
        in_hand += await asking
        await one.stop()
        await until(lambda: len(two.records) == 60 - len(in_hand))
        assert len({(r.partition, r.offset) for r in in_hand + two.records}) == 60, "each read once"


async def test_records_in_hand_for_longer_than_the_rebalance_timeout_are_read_again(wide: str) -> None:
    one = member_of(wide, rebalance_timeout_ms=600)
    await one.start()
    assert [record.value for record in await take(one, 1)] == [b"0"]
    async with Reader(member_of(wide)) as two:
        await until(lambda: len(two.consumer.assignment()) == 3)
        async with Reader(one, started=True) as again:
            await until(lambda: b"0" in two.values + again.values)


async def test_a_member_past_max_poll_interval_leaves_and_joins_again_when_it_polls(wide: str) -> None:
    listener = ListenerCalls()
    one = member_of(wide, max_poll_interval_ms=300, rebalance_timeout_ms=300)
    one.subscribe(["t"], listener=listener)
    await one.start()
    await one.getmany(timeout_ms=2000)
    await until(lambda: listener.calls[-1][0] == "lost")
    assert one.assignment() == frozenset()
    await asyncio.sleep(0.2)
    assert listener.calls[-1][0] == "lost", "no group has asked yet"
    with pytest.raises(CommitFailedError):
        await one.commit({tp(0): 1})
    assert await one.getone() is not None, "not committed, so read again"
    await one.stop()


async def test_a_static_member_comes_back_to_what_it_had_without_a_rebalance(wide: str) -> None:
    listener = ListenerCalls()
    watcher = member_of(wide, group_instance_id="w")
    watcher.subscribe(["t"], listener=listener)
    async with Reader(watcher) as one:
        two = Reader(member_of(wide, group_instance_id="s"))
        async with two:
            await until(lambda: shares(one, two) == [3, 3])
            had = two.consumer.assignment()
        told = len(listener.calls)
        async with Reader(member_of(wide, group_instance_id="s")) as again:
            await until(lambda: shares(again) == [3])
            assert again.consumer.assignment() == had
            assert len(listener.calls) == told


async def test_a_second_owner_of_an_instance_id_fences_the_first(wide: str) -> None:
    first = member_of(wide, group_instance_id="s")
    await first.start()
    async with Reader(member_of(wide, group_instance_id="s")) as second:
        await until(lambda: shares(second) == [6])
        with pytest.raises(FencedInstanceIdError, match="group_instance_id"):
            await asyncio.wait_for(drain(first), 5)
    await first.stop()


async def drain(consumer: Consumer) -> None:
    while True:
        await consumer.getmany(timeout_ms=50)


async def test_members_without_a_common_assignor_get_an_error(wide: str) -> None:
    async with Reader(member_of(wide, partition_assignment_strategy=EAGER)) as one:
        await until(lambda: shares(one) == [6])
        other = member_of(wide, partition_assignment_strategy=COOPERATIVE)
        with pytest.raises(InconsistentGroupProtocolError, match="partition_assignment_strategy"):
            await other.start()
        assert shares(one) == [6]


async def test_new_partitions_of_a_topic_are_shared_out(bootstrap: str) -> None:
    await produce(bootstrap, [b"0"])
    async with Reader(member_of(bootstrap, metadata_max_age_ms=100)) as one:
        await until(lambda: shares(one) == [1])
        await grow(bootstrap, 4)
        await until(lambda: shares(one) == [4])
        await produce(bootstrap, [b"1"], partition=3)
        await until(lambda: sorted(one.values) == [b"0", b"1"])
        generation = one.consumer._group.member.generation  # type: ignore[union-attr]
        await asyncio.sleep(0.4)
        assert one.consumer._group.member.generation == generation, "one change, one rebalance"  # type: ignore[union-attr]


async def test_subscribing_to_other_topics_moves_the_member_and_hands_out_nothing_of_the_old(wide: str) -> None:
    await produce(wide, [b"u"], topic="u")
    one = member_of(wide)
    await one.start()
    one.subscribe(["u"])
    assert [record.value for record in await take(one, 1)] == [b"u"]
    assert one.assignment() == {tp(0, "u")}
    one.unsubscribe()
    assert one.assignment() == frozenset()
    async with Reader(member_of(wide)) as two:
        await until(lambda: shares(two) == [6])
    await one.stop()


async def test_a_listener_seeks_before_the_first_record_and_commits_before_the_last_moment(wide: str) -> None:
    await produce(wide, numbers(1, 10))

    class SeekOnAssignment(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            consumer.seek(tp(0), 5)
            assert await consumer.position(tp(1)) == 0

        async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            await consumer.commit({tp(0): 8})

    consumer = member_of(wide, enable_auto_commit=False)
    consumer.subscribe(["t"], listener=SeekOnAssignment())
    async with consumer:
        assert (await consumer.getone()).offset == 5
    async with member_of(wide, enable_auto_commit=False) as after:
        assert await after.committed(tp(0)) == 8


async def test_an_exception_of_a_listener_is_raised_once_by_the_next_call(wide: str) -> None:
    class Faulty(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            raise ZeroDivisionError("no")

    consumer = member_of(wide)
    consumer.subscribe(["t"], listener=Faulty())
    with pytest.raises(ZeroDivisionError):
        await consumer.start()


async def test_commits_go_through_while_others_join(wide: str) -> None:
    """A commit during a rebalance succeeds, or fails because the partition moved.

    It must not wait for its own records: the rebalance waits for records in hand and the application for its commit, so
    only a timeout would end both.
    """
    await spread(wide, numbers(1, 3000))
    one = member_of(wide, partition_assignment_strategy=COOPERATIVE, enable_auto_commit=False)
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
        async with Reader(member_of(wide, partition_assignment_strategy=COOPERATIVE, enable_auto_commit=False)) as two:
            await until(lambda: len(two.consumer.assignment()) == 3)
        await until(lambda: len(one.assignment()) == 6)
    enough.set()
    await asyncio.wait_for(working, 5)
    assert outcomes["committed"] > 0
    assert max(commits_s) < 2
    await one.stop()


async def test_a_broker_restart_causes_no_rebalance(wide: str, broker: Harness) -> None:
    broker.settings["port"] = str(broker.port)
    listener = ListenerCalls()
    watcher = member_of(wide)
    watcher.subscribe(["t"], listener=listener)
    async with Reader(watcher) as one, Reader(member_of(wide)) as two:
        await until(lambda: shares(one, two) == [3, 3])
        told = len(listener.calls)
        await broker.restart()
        await spread(wide, numbers(1, 30))
        await until(lambda: len(one.values + two.values) >= 30, timeout_s=15)
        assert len(listener.calls) == told
        assert len(set(one.values + two.values)) == 30


async def test_cancelling_start_leaves_nothing_behind(wide: str) -> None:
    holder = member_of(wide, rebalance_timeout_ms=20_000)
    await holder.start()
    await holder.getmany(timeout_ms=2000)
    waiting = member_of(wide, client_id="waiting")
    began = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(waiting.start(), 0.3)
    with pytest.raises(ConsumerStoppedError):
        await waiting.getone()
    assert asyncio.get_running_loop().time() - began < 3, "the goodbye does not wait behind the JoinGroup"
    left = [task.get_name() for task in asyncio.all_tasks() if "waiting" in task.get_name()]
    assert left == []
    await holder.stop()
