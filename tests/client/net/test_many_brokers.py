"""A client with three brokers: leaders, coordinators and the controller move; some brokers are dead or do not
answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from client.consuming import take, tp, until
from client.fake_broker import ANSWER_LOST, LATE, LOST, QUICK
from client.fake_cluster import NOBODY
from client.moving_cluster import COMMIT, CREATE, DEPOSED, EPOCH_END, FETCH, LIST, REPLACED, MovingCluster
from semel import Admin, Consumer, NewTopic, Producer
from semel.errors import KafkaTimeoutError, OffsetOutOfRangeError
from semel_protocol.errors import ErrorCode


@pytest.fixture(params=["Fetch finds out", "the leader is asked"])
async def checked(request: pytest.FixtureRequest) -> AsyncIterator[MovingCluster]:
    """Both ways in which a consumer learns that the log has diverged."""
    async with MovingCluster(3) as cluster:
        if request.param != "Fetch finds out":
            for broker in cluster.brokers:
                broker.versions[FETCH] = (0, 11)
        yield cluster


@pytest.fixture
async def cluster() -> AsyncIterator[MovingCluster]:
    async with MovingCluster(3) as cluster:
        yield cluster


def producer(cluster: MovingCluster, **settings: Any) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap, **{**QUICK, **settings})


def consumer(cluster: MovingCluster, **settings: Any) -> Consumer:
    merged = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **QUICK, **settings}
    return Consumer("t", bootstrap_servers=cluster.bootstrap, **merged)


def values(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


# Finding the cluster


async def test_first_bootstrap_server_may_be_dead(cluster: MovingCluster) -> None:
    await cluster.brokers[0].close()
    async with producer(cluster) as sender:
        cluster.move(1)
        await sender.send_and_wait("t", b"a")
    assert cluster.truth().values == [b"a"]
    await cluster.brokers[0].listen()


async def test_the_first_bootstrap_server_may_accept_connections_and_never_answer(cluster: MovingCluster) -> None:
    cluster.brokers[0].is_mute = True
    cluster.move(1)
    began = time.monotonic()
    async with producer(cluster) as sender:
        await sender.send_and_wait("t", b"a")
        took_s = time.monotonic() - began
    assert took_s < 5, "the others were there all the time"


async def test_metadata_is_requested_from_another_broker_when_one_is_cut_off(cluster: MovingCluster) -> None:
    async with Producer(bootstrap_servers=cluster.brokers[0].address, **QUICK) as sender:
        await sender.send_and_wait("t", b"a")
        cluster.brokers[0].freeze()
        cluster.move(1)
        await asyncio.wait_for(sender.send_and_wait("t", b"b"), 5)
    assert cluster.truth().values == [b"a", b"b"]


async def test_metadata_is_requested_from_another_broker_when_one_does_not_answer(cluster: MovingCluster) -> None:
    async with Producer(bootstrap_servers=cluster.brokers[0].address, **QUICK, request_timeout_ms=30_000) as sender:
        await sender.send_and_wait("t", b"a")
        cluster.move(1)
        cluster.brokers[0].is_mute = True
        began = time.monotonic()
        await sender._cluster.refresh(20_000)
        assert time.monotonic() - began < 12


# Producing


async def test_moving_leaders_keep_the_order_without_duplicates() -> None:
    rng = Random(11)
    async with MovingCluster(3, {"t": 4}) as cluster:
        for partition in range(4):
            cluster.truth("t", partition)
        async with producer(cluster, max_batch_size=200, request_timeout_ms=2_000) as sender:
            futures = []
            for number in range(1200):
                futures.append(await sender.send("t", b"%d" % number, partition=number % 4))
                if number % 40 == 0:
                    cluster.move(rng.randrange(3), "t", rng.randrange(4))
                    cluster.brokers[rng.randrange(3)].faults.append(rng.choice([ANSWER_LOST, LOST, LATE, DEPOSED]))
                    await asyncio.sleep(0.003)
            await asyncio.gather(*futures)
        for partition in range(4):
            assert cluster.truth("t", partition).values == [b"%d" % n for n in range(partition, 1200, 4)]


async def test_batch_stored_by_a_leader_that_was_replaced_at_once_is_not_stored_again(cluster: MovingCluster) -> None:
    async with producer(cluster) as sender:
        await sender.send_and_wait("t", b"a")
        cluster.brokers[0].faults.append(DEPOSED)
        await sender.send_and_wait("t", b"b")
    assert cluster.truth().values == [b"a", b"b"]
    assert cluster.truth().leader == 1


async def test_a_batch_that_failed_after_a_leader_change_does_not_duplicate_the_next(cluster: MovingCluster) -> None:
    """Both were stored, and their leader lost its place while it waited for the followers."""
    backoff = {"retry_backoff_ms": 300, "retry_backoff_max_ms": 300}
    async with producer(
        cluster, max_batch_size=100, delivery_timeout_ms=1000, request_timeout_ms=1000, **backoff
    ) as sender:
        await sender.send_and_wait("t", b"0")
        cluster.brokers[0].is_mute = True
        cluster.brokers[0].faults += [REPLACED, REPLACED]
        first = await sender.send("t", b"1" * 90)
        await asyncio.sleep(0.7)
        second = await sender.send("t", b"2" * 90)
        third = await sender.send("t", b"3" * 90)
        await asyncio.sleep(0.1)
        cluster.brokers[0].is_mute = False
        with pytest.raises(KafkaTimeoutError, match="may or may not be stored"):
            await first
        await asyncio.gather(second, third)
    assert cluster.truth().values == [b"0", b"1" * 90, b"2" * 90, b"3" * 90]


@pytest.mark.parametrize("hints", [True, False])
async def test_a_pause_ends_when_the_partition_gets_a_new_leader(cluster: MovingCluster, hints: bool) -> None:
    cluster.hints = hints
    patient = {"retry_backoff_ms": 20_000, "retry_backoff_max_ms": 20_000}
    async with Producer(bootstrap_servers=cluster.bootstrap, **patient) as sender:
        await sender.send_and_wait("t", b"a")
        cluster.move(1)
        await asyncio.wait_for(sender.send_and_wait("t", b"b"), 10)
    assert cluster.truth().values == [b"a", b"b"]


async def test_the_new_leader_is_found_before_the_failed_one_is_retried(cluster: MovingCluster) -> None:
    seldom = {"reconnect_backoff_ms": 20_000, "reconnect_backoff_max_ms": 20_000}
    servers = ",".join(broker.address for broker in cluster.brokers[1:])
    async with Producer(bootstrap_servers=servers, **{**QUICK, **seldom}) as sender:
        await sender.send_and_wait("t", b"a")
        await cluster.brokers[0].close()
        later = asyncio.ensure_future(sender.send_and_wait("t", b"b"))
        await asyncio.sleep(0.5)
        cluster.move(1)
        await asyncio.wait_for(later, 10)
    assert cluster.truth().values == [b"a", b"b"]
    await cluster.brokers[0].listen()


async def test_a_leader_that_does_not_answer_is_left_when_its_successor_is_known(
    cluster: MovingCluster,
) -> None:
    async with producer(cluster, request_timeout_ms=60_000) as sender:
        await sender.send_and_wait("t", b"a")
        cluster.brokers[0].is_mute = True
        sent = await sender.send("t", b"b")
        await asyncio.sleep(0.05)
        cluster.move(1)
        sender._cluster.request_refresh()
        await asyncio.wait_for(sent, 15)
        cluster.brokers[0].is_mute = False
        await sender.send_and_wait("t", b"c")
    assert cluster.truth().values == [b"a", b"b", b"c"]


async def test_a_leader_hint_in_a_refusal_saves_a_metadata_request(cluster: MovingCluster) -> None:
    cluster.hints = True
    async with producer(cluster, retry_backoff_ms=20, retry_backoff_max_ms=20) as sender:
        await sender.send_and_wait("t", b"a")
        for broker in cluster.brokers:
            broker.freeze()  # metadata would say nothing new
        cluster.move(2)
        await asyncio.wait_for(sender.send_and_wait("t", b"b"), 5)
    assert cluster.truth().values == [b"a", b"b"]


# Consuming


async def test_a_consumer_follows_the_leader_and_sends_its_leader_epoch(checked: MovingCluster) -> None:
    checked.truth().put(*values(3))
    async with consumer(checked) as reader:
        assert [record.value for record in await take(reader, 3)] == values(3)
        for epoch in range(1, 4):
            checked.move(epoch % 3)
            checked.truth().put(*values(3, first=3 * epoch))
            assert [record.value for record in await take(reader, 3)] == values(3, first=3 * epoch)
        believed = [
            row.current_leader_epoch
            for request in checked.seen(FETCH)
            for topic in request.topics
            for row in topic.partitions
        ]
        assert {0, 1, 2, 3} <= set(believed)
        assert -1 not in believed


async def test_an_old_leader_epoch_refreshes_metadata_and_a_newer_one_waits(checked: MovingCluster) -> None:
    checked.truth().put(*values(2))
    async with consumer(checked) as reader:
        await take(reader, 2)
        checked.move(0)  # the same leader, in a new epoch
        checked.truth().put(*values(2, first=2))
        assert [record.value for record in await take(reader, 2)] == values(2, first=2)
        checked.truth().epoch -= 1  # the broker has not heard yet of the epoch that the client knows
        checked.truth().put(*values(1, first=4))
        await asyncio.sleep(0.05)
        assert await reader.getmany(timeout_ms=20) == {}
        checked.truth().epoch += 1
        assert [record.value for record in await take(reader, 1)] == values(1, first=4)


async def test_a_consumer_finds_the_new_leader_before_it_retries_the_failed_one(cluster: MovingCluster) -> None:
    cluster.truth().put(*values(2))
    seldom = {"reconnect_backoff_ms": 20_000, "reconnect_backoff_max_ms": 20_000}
    servers = ",".join(broker.address for broker in cluster.brokers[1:])
    async with Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest", **{**QUICK, **seldom}) as reader:
        await take(reader, 2)
        await cluster.brokers[0].close()
        await asyncio.sleep(0.5)
        cluster.move(1)
        cluster.truth().put(*values(1, first=2))
        assert [record.value for record in await asyncio.wait_for(take(reader, 1), 10)] == values(1, first=2)
    await cluster.brokers[0].listen()


@pytest.mark.proves("one-pause-for-two-partitions")
async def test_partitions_that_are_refused_a_moment_apart_are_all_fetched_again() -> None:
    """Each of the two leaders has no other partition, so no other event triggers the second look."""
    backoff = {"retry_backoff_ms": 100, "retry_backoff_max_ms": 100}
    async with MovingCluster(2, {"t": 2}) as cluster:
        cluster.move(1, partition=1)
        async with consumer(cluster, fetch_max_wait_ms=20, **backoff) as reader:
            await until(lambda: {broker.node_id for broker in cluster.brokers if broker.seen(FETCH)} == {0, 1})
            for partition in (0, 1):
                state = reader._subscription.states[tp(partition)]
                reader._fetcher._refused(state, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                await asyncio.sleep(0.05)
            for partition in (0, 1):
                cluster.truth(partition=partition).put(*values(1))
            assert len(await asyncio.wait_for(take(reader, 2), 5)) == 2


@pytest.mark.proves("full-buffer-without-a-leader")
async def test_a_partition_with_room_and_no_leader_is_fetched_from_the_next_leader(cluster: MovingCluster) -> None:
    cluster.truth().put(*values(5))
    async with consumer(cluster, max_partition_fetch_bytes=20) as reader:
        state = reader._subscription.states[tp(0)]
        await until(lambda: state.buffer.size_bytes >= 20)
        cluster.move(NOBODY)
        reader._cluster.request_refresh()
        await until(lambda: reader._cluster.metadata.leader(*tp(0)) == NOBODY)
        await take(reader, 5)
        await asyncio.sleep(0.05)
        cluster.move(1)
        cluster.truth().put(*values(1, first=5))
        assert [record.value for record in await asyncio.wait_for(take(reader, 1), 5)] == values(1, first=5)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
async def test_a_position_in_a_truncated_range_goes_back_to_the_divergence_of_the_logs(
    checked: MovingCluster, reset: str, caplog: pytest.LogCaptureFixture
) -> None:
    truth = checked.truth()
    truth.put(*values(3))
    truth.put(*values(3, first=3))
    async with consumer(checked, auto_offset_reset="earliest") as starter:
        await take(starter, 6)
    async with consumer(checked, auto_offset_reset=reset) as reader:
        await until(lambda: bool(reader.assignment()))
        await reader.seek_to_beginning()
        await take(reader, 6)
        truth.truncate(3)
        checked.move(1)
        truth.put(*[b"new-%d" % number for number in range(5)])  # grown past the old position again
        assert [record.value for record in await take(reader, 5)] == [b"new-%d" % number for number in range(5)]
    assert "truncated" in caplog.text


async def test_logs_that_diverged_more_than_once_are_followed_back_to_the_common_part(checked: MovingCluster) -> None:
    """The consumer has read epochs 0 and 2. The log now has epochs 0, which ends earlier, 1 and 3."""
    truth = checked.truth()
    truth.put(*values(3))
    truth.put(*values(2, first=3))
    truth.epoch = 2
    truth.put(*values(3, first=5))
    async with consumer(checked) as reader:
        assert [record.value for record in await take(reader, 8)] == values(8)
        truth.truncate(3)
        truth.epoch = 1
        truth.put(*[b"one-%d" % number for number in range(8)])
        truth.epoch = 3
        truth.put(b"three")
        found = [record.value for record in await take(reader, 9)]
        assert found == [*(b"one-%d" % number for number in range(8)), b"three"]


async def test_records_fetched_and_not_yet_handed_out_are_fetched_again_when_the_log_parts_below_them(
    checked: MovingCluster, caplog: pytest.LogCaptureFixture
) -> None:
    truth = checked.truth()
    truth.put(*values(3))
    truth.put(*values(3, first=3))
    async with consumer(checked) as reader:
        assert [record.value for record in await take(reader, 2)] == values(2)
        truth.truncate(3)
        checked.move(1)
        truth.put(b"new", b"newer")
        await until(lambda: len(checked.brokers[1].seen(FETCH)) > 2)
        assert [record.value for record in await take(reader, 3)] == [b"2", b"new", b"newer"]
    assert "truncated" not in caplog.text


async def test_truncation_is_an_error_without_a_reset_policy(checked: MovingCluster) -> None:
    truth = checked.truth()
    truth.put(*values(3))
    truth.put(*values(3, first=3))
    async with consumer(checked, auto_offset_reset="none") as reader:
        reader.seek(tp(0), 0)
        await take(reader, 6)
        truth.truncate(3)
        checked.move(1)
        truth.put(b"new")
        with pytest.raises(OffsetOutOfRangeError, match=r"t-0.*seek"):
            await asyncio.wait_for(reader.getone(), 5)
        reader.seek(tp(0), 3)
        assert (await reader.getone()).value == b"new"


async def test_leader_is_asked_once_in_each_epoch(cluster: MovingCluster) -> None:
    for broker in cluster.brokers:
        broker.versions[FETCH] = (0, 11)
    cluster.truth().put(*values(2))
    async with consumer(cluster) as reader:
        await take(reader, 2)
        for epoch in (1, 2):
            cluster.move(epoch)
            for first in (0, 2):
                cluster.truth().put(*values(2, first=first))
                await take(reader, 2)
        asked = [row for request in cluster.seen(EPOCH_END) for topic in request.topics for row in topic.partitions]
        assert [(row.current_leader_epoch, row.leader_epoch) for row in asked] == [(1, 0), (2, 1)]


@pytest.mark.parametrize(("reset", "goes_on_from"), [("earliest", 0), ("latest", 3)])
async def test_position_above_the_end_follows_the_reset_policy(
    cluster: MovingCluster, reset: str, goes_on_from: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker without epochs in Fetch cannot report the point of divergence."""
    for broker in cluster.brokers:
        broker.versions[FETCH] = (0, 11)
        del broker.versions[EPOCH_END]
    truth = cluster.truth()
    truth.put(*values(3))
    truth.put(*values(3, first=3))
    async with consumer(cluster, auto_offset_reset=reset) as reader:
        await reader.seek_to_beginning()
        await take(reader, 6)
        truth.truncate(3)
        cluster.move(1)
        await until(lambda: "not 6" in caplog.text)
        assert await reader.position(tp(0)) == goes_on_from
        truth.put(b"new")
        assert (await take(reader, 4 - goes_on_from))[-1].value == b"new"


async def test_a_leader_that_lags_behind_resets_no_position(cluster: MovingCluster) -> None:
    """A new leader may answer before it has all committed records."""
    for broker in cluster.brokers:
        broker.versions[FETCH] = (0, 11)
        del broker.versions[EPOCH_END]
    truth = cluster.truth()
    truth.put(*values(3))
    truth.put(*values(3, first=3))
    async with consumer(cluster, auto_offset_reset="latest") as reader:
        await reader.seek_to_beginning()
        await take(reader, 6)
        lagging = truth.batches.pop()
        cluster.move(1)
        lists = cluster.brokers[1].answers[LIST]

        async def caught_up(request: Any) -> Any:
            if lagging not in truth.batches:
                truth.batches.append(lagging)
            truth.put(*values(2, first=6))
            cluster.brokers[1].answers[LIST] = lists
            return await lists(request)

        cluster.brokers[1].answers[LIST] = caught_up
        assert [record.value for record in await take(reader, 2)] == values(2, first=6)


# Coordinators and the controller


async def test_commit_finds_the_coordinator_again(cluster: MovingCluster) -> None:
    cluster.truth().put(*values(3))
    async with Consumer(bootstrap_servers=cluster.bootstrap, group_id="g", enable_auto_commit=False, **QUICK) as reader:
        reader.assign([tp(0)])
        await reader.commit({tp(0): 1})
        cluster.coordinator = 2
        await reader.commit({tp(0): 2})
    assert cluster.committed == {("t", 0): 2}
    assert cluster.brokers[2].seen(COMMIT)


async def test_commit_continues_when_the_coordinator_is_dead(cluster: MovingCluster) -> None:
    async with Consumer(bootstrap_servers=cluster.bootstrap, group_id="g", enable_auto_commit=False, **QUICK) as reader:
        reader.assign([tp(0)])
        await reader.commit({tp(0): 1})
        await cluster.brokers[0].close()
        cluster.coordinator = 1
        await reader.commit({tp(0): 2})
    assert cluster.committed == {("t", 0): 2}
    await cluster.brokers[0].listen()


async def test_find_coordinator_goes_to_another_broker_when_one_is_cut_off(cluster: MovingCluster) -> None:
    async with Consumer(
        bootstrap_servers=cluster.brokers[0].address, group_id="g", enable_auto_commit=False, **QUICK
    ) as reader:
        reader.assign([tp(0)])
        await reader.commit({tp(0): 1})
        cluster.brokers[0].freeze()
        cluster.coordinator = 2
        await asyncio.wait_for(reader.commit({tp(0): 2}), 5)
    assert cluster.committed == {("t", 0): 2}


async def test_admin_follows_the_controller(cluster: MovingCluster) -> None:
    async with Admin(bootstrap_servers=cluster.bootstrap, **QUICK) as admin:
        await admin.create_topics([NewTopic("one", 1)])
        cluster.controller = 2
        await admin.create_topics([NewTopic("two", 1)])
        await cluster.brokers[2].close()
        cluster.controller = 1
        await admin.create_topics([NewTopic("three", 1)])
    assert {"one", "two", "three"} <= set(cluster.topics)
    assert len(cluster.brokers[1].seen(CREATE)) == 1
    await cluster.brokers[2].listen()
