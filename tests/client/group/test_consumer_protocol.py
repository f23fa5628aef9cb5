"""Members of one group of the consumer protocol (KIP-848) against a real broker: what differs from the classic one.

The rest is in test_both_protocols.py.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker.consumers import HeartbeatingMember as RawConsumer
from broker.harness import Harness
from client.consume.test_consumer import numbers
from client.consuming import Reader, produce, take, tp, until
from client.group import members
from client.group.members import CONSUMER, TIMES, ListenerCalls, create, group_of, shares, spread
from semel import Producer, TopicPartition
from semel._group.consumer_member import State
from semel._group.offsets import Membership, Offsets
from semel.consumer import Consumer
from semel.errors import CommitFailedError, GroupIdNotFound, UnsupportedAssignorError, UnsupportedVersionError
from semel.structs import OffsetAndMetadata
from support.against import OutsideBroker

pytestmark = pytest.mark.usefixtures("consumer_protocol")

member_of = partial(members.member_of, **CONSUMER)

SESSION_S = int(TIMES["group_consumer_session_timeout_ms"]) // 1000


def sent_regex(consumer: Consumer) -> str:
    return group_of(consumer)._subscribed(True).regex


async def test_only_partitions_that_move_are_revoked(wide: str) -> None:
    listener = ListenerCalls()
    consumer = member_of(wide)
    consumer.subscribe(["t"], listener=listener)
    async with Reader(consumer) as one:
        await until(lambda: shares(one) == [6])
        async with Reader(member_of(wide)) as two:
            await until(lambda: shares(one, two) == [3, 3])
            kept = one.consumer.assignment()
            moved = next(partitions for what, partitions in listener.calls if what == "revoked")
            assert len(moved) == 3
            assert not kept & set(moved)
        await until(lambda: shares(one) == [6])
    assert sorted(p for what, partitions in listener.calls if what == "revoked" for p in partitions[:6])[-1] == tp(5)
    assert "lost" not in [what for what, _ in listener.calls]


async def test_partitions_are_not_revoked_while_their_records_are_processed(wide: str) -> None:
    """For longer than the session: heartbeats continue."""
    await spread(wide, numbers(1, 60))
    one = member_of(wide, rebalance_timeout_ms=20_000, auto_commit_interval_ms=60_000)
    await one.start()
    in_hand = await take(one, 20)
    async with Reader(member_of(wide)) as two:
        await asyncio.sleep(SESSION_S + 1)
        asked_for = {record.partition for record in in_hand}
        assert asked_for <= {place.partition for place in one.assignment()}
        asking = asyncio.create_task(take(one, 1))
        await until(lambda: len(two.consumer.assignment()) == 3)
        in_hand += await asking
        await one.stop()
        await until(lambda: len(two.records) == 60 - len(in_hand))
        assert len({(r.partition, r.offset) for r in in_hand + two.records}) == 60, "each read once"


async def test_a_member_with_a_slow_listener_keeps_its_session(wide: str) -> None:
    class SlowListener(ListenerCalls):
        async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            await super().on_partitions_revoked(revoked)
            await asyncio.sleep(SESSION_S + 1)

    listener = SlowListener()
    consumer = member_of(wide, rebalance_timeout_ms=20_000)
    consumer.subscribe(["t"], listener=listener)
    async with Reader(consumer) as one:
        await until(lambda: shares(one) == [6])
        async with Reader(member_of(wide)) as two:
            await until(lambda: any(what == "revoked" for what, _ in listener.calls))
            assert shares(one, two) == [6, 0], "the other gets partitions after the listener has ended"
            await until(lambda: shares(one, two) == [3, 3])
            assert "lost" not in [what for what, _ in listener.calls]


async def test_a_member_past_max_poll_interval_leaves_and_joins_again_when_it_polls(wide: str) -> None:
    listener = ListenerCalls()
    one = member_of(wide, max_poll_interval_ms=600, rebalance_timeout_ms=600)
    one.subscribe(["t"], listener=listener)
    await one.start()
    await one.getmany(timeout_ms=2000)
    await until(lambda: listener.calls[-1][0] == "lost")
    assert one.assignment() == frozenset()
    async with Reader(member_of(wide, enable_auto_commit=False)) as two:
        await until(lambda: shares(two) == [6])
        assert listener.calls[-1][0] == "lost", "the application has not asked yet"
        with pytest.raises(CommitFailedError):
            await one.commit({tp(0): 1})
    assert len(await take(one, 1)) == 1, "not committed, so read again"
    await one.stop()


async def test_a_member_that_the_coordinator_removed_loses_its_partitions_and_comes_back(
    wide: str, broker: Harness | OutsideBroker
) -> None:
    listener = ListenerCalls()
    consumer = member_of(wide)
    consumer.subscribe(["t"], listener=listener)
    async with Reader(consumer) as one:
        await until(lambda: shares(one) == [6] and one.values == [b"0"])
        before = group_of(consumer).member.membership
        other = RawConsumer(await broker.wire(), before.member_id)
        assert await other.leave() == 0
        await until(lambda: ("lost", [tp(n) for n in range(6)]) in listener.calls)
        await until(lambda: shares(one) == [6])
        assert group_of(consumer).member.membership.generation > before.generation
        await produce(wide, [b"1"])
        await until(lambda: one.values[-1] == b"1")


async def test_a_second_owner_of_an_instance_id_waits_for_the_first(wide: str) -> None:
    first = Reader(member_of(wide, group_instance_id="s"))
    async with first:
        await until(lambda: shares(first) == [6])
        async with Reader(member_of(wide, group_instance_id="s")) as second:
            await asyncio.sleep(SESSION_S + 1)
            assert shares(first, second) == [6, 0]
            assert group_of(second.consumer).member.state is State.JOINING
            await first.stop()
            await until(lambda: shares(second) == [6])


async def test_a_pattern_is_evaluated_by_the_broker_and_finds_new_topics(bootstrap: str) -> None:
    await create(bootstrap, orders_1=1, other=1)
    consumer = member_of(bootstrap, metadata_max_age_ms=500)
    consumer._subscription.unsubscribe()
    consumer.subscribe(pattern="orders_")
    async with Reader(consumer) as one:
        await until(lambda: consumer.assignment() == {tp(0, "orders_1")}, timeout_s=40)
        assert sent_regex(consumer) == "(?:orders_).*"
        await create(bootstrap, orders_2=2)
        await produce(bootstrap, [b"new"], topic="orders_2", partition=1)
        await until(lambda: one.values == [b"new"], timeout_s=40)
        assert consumer.assignment() == {tp(0, "orders_1"), tp(0, "orders_2"), tp(1, "orders_2")}


@pytest.mark.parametrize("pattern", ["orders_(?!2)", re.compile("ORDERS_ 1  # digit", re.VERBOSE | re.IGNORECASE)])
async def test_a_pattern_that_brokers_cannot_read_is_evaluated_by_the_client(
    bootstrap: str, pattern: str | re.Pattern[str]
) -> None:
    await create(bootstrap, orders_1=1, orders_2=1)
    consumer = member_of(bootstrap, metadata_max_age_ms=500)
    consumer._subscription.unsubscribe()
    consumer.subscribe(pattern=pattern)
    async with Reader(consumer):
        await until(lambda: consumer.assignment() == {tp(0, "orders_1")}, timeout_s=40)
        assert sent_regex(consumer) == ""


async def test_subscribing_to_other_topics_moves_the_member(wide: str) -> None:
    await create(wide, u=1)
    await produce(wide, [b"u"], topic="u")
    one = member_of(wide)
    await one.start()
    one.subscribe(["u"])
    assert [record.value for record in await take(one, 1)] == [b"u"]
    await until(lambda: one.assignment() == {tp(0, "u")})
    one.unsubscribe()
    assert one.assignment() == frozenset()
    async with Reader(member_of(wide)) as two:
        await until(lambda: shares(two) == [6])
    await one.stop()


async def test_a_subscription_that_is_changed_back_reads_on(wide: str) -> None:
    await create(wide, u=1)
    async with Reader(member_of(wide)) as one:
        await until(lambda: shares(one) == [6] and one.values == [b"0"])
        one.consumer.subscribe(["u"])
        one.consumer.subscribe(["t"])
        await produce(wide, [b"1"])
        await until(lambda: one.values[-1] == b"1")
        one.consumer.unsubscribe()
        one.consumer.subscribe(["t"])
        await until(lambda: shares(one) == [6])
        await produce(wide, [b"2"], partition=5)
        await until(lambda: one.values[-1] == b"2")
        assert shares(one) == [6]


async def test_a_commit_with_the_epoch_before_succeeds_after_a_heartbeat(
    wide: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the answer of a heartbeat, with the next epoch, is still on its way."""
    sent: list[int] = []
    commit = Offsets.commit

    async def late(self: Offsets, offsets: Any, membership: Membership, timeout_ms: float) -> None:
        old = Membership(membership.generation - (not sent), membership.member_id, membership.group_instance_id)
        sent.append(old.generation)
        await commit(self, offsets, old, timeout_ms)

    monkeypatch.setattr(Offsets, "commit", late)
    async with member_of(wide, enable_auto_commit=False) as consumer:
        await until(lambda: len(consumer.assignment()) == 6)
        await consumer.commit({tp(0): OffsetAndMetadata(1, "x")})
        assert sent == [sent[1] - 1, sent[1]]
        assert await consumer.committed(tp(0)) == 1


async def test_a_commit_of_a_partition_that_moved_fails_by_name(wide: str) -> None:
    one = member_of(wide, enable_auto_commit=False)
    async with Reader(one), Reader(member_of(wide)) as two:
        await until(lambda: len(two.consumer.assignment()) == 3)
        moved = next(iter(two.consumer.assignment()))
        with pytest.raises(CommitFailedError, match="not assigned"):
            await one.commit({moved: 1})


async def test_kip447_a_transaction_of_a_member_counts_once_and_one_with_an_old_epoch_fails(wide: str) -> None:
    consumer = member_of(wide, enable_auto_commit=False, isolation_level="read_committed")
    async with (
        consumer,
        Producer(bootstrap_servers=wide, transactional_id="app") as producer,
    ):
        await until(lambda: len(consumer.assignment()) == 6)
        old = consumer.group_metadata()
        assert (old.generation_id, old.member_id) == (
            group_of(consumer).member.epoch,
            group_of(consumer).member.member_id,
        )
        async with producer.transaction():
            await producer.send_offsets_to_transaction({tp(0): 1}, old)
        assert await consumer.committed(tp(0)) == 1
        async with Reader(member_of(wide)) as two:
            await until(lambda: len(two.consumer.assignment()) == 3)
            await until(lambda: group_of(consumer).member.epoch > old.generation_id)
            with pytest.raises(CommitFailedError):
                async with producer.transaction():
                    await producer.send_offsets_to_transaction({tp(0): 2}, old)
            async with producer.transaction():
                await producer.send_offsets_to_transaction({tp(0): 3}, consumer.group_metadata())
            assert await consumer.committed(tp(0)) == 3


async def test_the_remote_assignor_is_asked_for(bootstrap: str) -> None:
    await create(bootstrap, a=2, b=2)
    settings = {"group_remote_assignor": "range"}
    async with (
        Reader(member_of(bootstrap, "a", "b", **settings)) as one,
        Reader(member_of(bootstrap, "a", "b", **settings)) as two,
    ):
        await until(lambda: shares(one, two) == [2, 2])
        assert {place.partition for place in one.consumer.assignment()} in ({0}, {1}), "range aligns the topics"


async def test_an_unknown_assignor_fails_by_name(wide: str) -> None:
    with pytest.raises(UnsupportedAssignorError, match="group_remote_assignor"):
        await member_of(wide, group_remote_assignor="mine").start()


@pytest.mark.semel_only("Kafka from 4.0 on always serves it")
async def test_a_broker_without_the_protocol_is_named_with_what_to_do(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "classic", group_coordinator_rebalance_protocols="classic")
    await harness.start()
    try:
        with pytest.raises(UnsupportedVersionError, match="group_protocol='classic'"):
            await member_of(f"127.0.0.1:{harness.port}").start()
    finally:
        await harness.stop()


async def test_cancelling_start_leaves_nothing_behind_and_does_not_disturb_the_owner(wide: str) -> None:
    async with Reader(member_of(wide, group_instance_id="s")) as first:
        await until(lambda: shares(first) == [6])
        waiting = member_of(wide, group_instance_id="s", client_id="waiting")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiting.start(), 0.5)
        assert [task.get_name() for task in asyncio.all_tasks() if "waiting" in task.get_name()] == []
        await asyncio.sleep(1)
        assert shares(first) == [6]


async def test_partitions_that_the_application_assigns_are_committed_without_a_membership(wide: str) -> None:
    consumer = member_of(wide)
    consumer.unsubscribe()
    consumer.assign([tp(0)])
    async with consumer:
        assert (await consumer.getone()).value == b"0"
        await consumer.commit()
        assert await consumer.committed(tp(0)) == 1
        async with Reader(member_of(wide)) as member:
            await until(lambda: shares(member) == [6])
            with pytest.raises(CommitFailedError, match="is none"):
                await consumer.commit({tp(0): 0})


async def test_a_group_is_shared_with_a_classic_member_until_it_leaves(wide: str) -> None:
    """Both ways of group.consumer.migration.policy=bidirectional, which is the default of semel and Apache Kafka."""
    async with Reader(Consumer("t", bootstrap_servers=wide, group_id="g", heartbeat_interval_ms=100)) as classic:
        await until(lambda: shares(classic) == [6])
        async with Reader(member_of(wide)) as member:
            await until(lambda: shares(classic, member) == [3, 3])
        await until(lambda: shares(classic) == [6])


@pytest.mark.semel_only("Kafka's policy is not this test's to change")
async def test_a_group_that_may_not_change_its_protocol_is_named_with_what_to_do(broker: Harness) -> None:
    broker.settings |= {"group.consumer.migration.policy": "disabled", "port": str(broker.port)}
    await broker.restart()
    bootstrap = f"127.0.0.1:{broker.port}"
    await create(bootstrap, t=6)
    async with Reader(Consumer("t", bootstrap_servers=bootstrap, group_id="g")) as classic:
        await until(lambda: shares(classic) == [6])
        with pytest.raises(GroupIdNotFound, match=r"migration\.policy is disabled"):
            await member_of(bootstrap).start()
