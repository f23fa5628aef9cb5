"""Members of one group of the classic protocol against a real broker: what differs from the consumer protocol.

The rest is in test_both_protocols.py.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from client.consume.test_consumer import numbers
from client.consuming import Reader, produce, take, tp, until
from client.group import members
from client.group.members import CLASSIC, ListenerCalls, shares, spread
from semel import ConsumerRebalanceListener, TopicPartition
from semel._group.group import NEXT, State
from semel.consumer import Consumer
from semel.errors import CommitFailedError, ConsumerStoppedError, FencedInstanceIdError, InconsistentGroupProtocolError

member_of = partial(members.member_of, **CLASSIC)

EAGER = ("range",)
COOPERATIVE = ("cooperative-sticky",)


def test_every_state_is_in_the_table_and_can_be_left_and_reached() -> None:
    assert set(NEXT) == set(State)
    assert all(NEXT[state] for state in State if state is not State.STOPPED)
    reachable = {after for nexts in NEXT.values() for after in nexts}
    assert reachable == set(State)


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


async def test_an_exception_of_a_listener_is_raised_once_by_the_next_call(wide: str) -> None:
    class Faulty(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            raise ZeroDivisionError("no")

    consumer = member_of(wide)
    consumer.subscribe(["t"], listener=Faulty())
    with pytest.raises(ZeroDivisionError):
        await consumer.start()


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
