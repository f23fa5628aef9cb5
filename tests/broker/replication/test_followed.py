"""The effect of an answer on a followed partition: a table of error codes, and answers that are dropped."""

from __future__ import annotations

from math import inf
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.cluster.brokers import RecordedLog
from msgspec.structs import replace
from semel_broker.partitions.partition import Partition, Role
from semel_broker.replication.followed import VERDICTS, ErrorReaction, Followed, FollowedState, ResponseEffect
from semel_broker.replication.throttle import UNBOUNDED, ListedThrottle, Throttle
from semel_broker.world import World
from semel_protocol.batch import stamp
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import FetchResponseDivergingEpoch, FetchResponsePartition
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import Log
from semel_storage.log.snapshot import encode
from semel_storage.producers.producers import ProducerState
from semel_storage.segments.log_config import LogConfig
from storage.batches import NOW_MS, make_batch


@pytest.fixture
def world() -> World:
    clock = SimpleNamespace(now=0.0)
    return World(
        now_ms=lambda: NOW_MS,
        monotonic=lambda: clock.now,
        rng=Random(1),
        disk=MemoryDisk(),
        log=cast("Any", RecordedLog()),
    )


@pytest.fixture
def partition(world: World) -> Partition:
    def open_log() -> Log:
        return Log.open(world.disk, "data/t-0", LogConfig(), now_ms=NOW_MS)

    partition = Partition("t", 0, open_log=open_log, world=world, fsync=False, topic_id="id", role=Role.NONE)
    partition.become_follower(1, 3)
    return partition


def records(offset: int, epoch: int = 3) -> bytes:
    batch = bytearray(make_batch())
    stamp(batch, offset, epoch)
    return bytes(batch)


def row(**fields: Any) -> FetchResponsePartition:
    return FetchResponsePartition(**{"records": b"", "high_watermark": 0, "log_start_offset": 0, **fields})


async def test_records_are_appended_and_their_end_is_asked_for_next(partition: Partition, world: World) -> None:
    followed = Followed(partition, world)
    wanted = followed.wanted(1000)
    assert (wanted.fetch_offset, wanted.current_leader_epoch, wanted.last_fetched_epoch) == (0, 3, -1)
    assert followed.take(row(records=records(0, 2) + records(1, 3), high_watermark=1)) is ResponseEffect.MOVED
    assert (partition.end_offset, partition.high_watermark, followed.state) == (2, 1, FollowedState.DUE)
    wanted = followed.wanted(1000)
    assert (wanted.fetch_offset, wanted.current_leader_epoch, wanted.last_fetched_epoch) == (2, 3, 3)


async def test_answer_is_expected_only_as_long_as_nothing_has_changed(partition: Partition, world: World) -> None:
    followed = Followed(partition, world)
    assert not followed.is_expecting, "nothing was asked"
    followed.wanted(1000)
    assert followed.is_expecting
    partition.leader_epoch = 4
    assert not followed.is_expecting, "it is of another epoch"
    partition.leader_epoch = 3
    partition.append_replicated(records(0), leader_epoch=3, high_watermark=0)
    assert not followed.is_expecting, "it is about another offset"
    followed.wanted(1000)
    partition.resign()
    assert not followed.is_expecting
    partition.become_follower(1, 3)
    assert followed.is_expecting
    partition.retire()
    assert not followed.is_expecting


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
async def test_every_error_leaves_the_log_alone_and_is_asked_about_again(
    partition: Partition, world: World, code: ErrorCode
) -> None:
    followed = Followed(partition, world)
    followed.wanted(1000)
    followed.take(row(records=records(0)))
    followed.wanted(1000)
    assert followed.take(row(error_code=int(code), log_start_offset=0)) is ResponseEffect.FAILED
    assert (partition.end_offset, followed.state) == (1, FollowedState.RESTING)
    assert 0 < followed.rests_until < 1
    complained = "replica_not_followed" in cast("RecordedLog", world.log).events()
    assert complained is (VERDICTS.get(code, ErrorReaction.COMPLAIN) is not ErrorReaction.ASK_AGAIN)


async def test_damaged_records_are_not_taken(partition: Partition, world: World) -> None:
    followed = Followed(partition, world)
    followed.wanted(1000)
    assert followed.take(row(records=records(0)[:-1] + b"?")) is ResponseEffect.FAILED
    assert (partition.end_offset, followed.state) == (0, FollowedState.RESTING)
    assert "replica_not_followed" in cast("RecordedLog", world.log).events()


async def test_start_beyond_the_own_end_begins_anew_and_one_within_does_not(partition: Partition, world: World) -> None:
    followed = Followed(partition, world)
    followed.wanted(1000)
    followed.take(row(records=records(0)))
    followed.wanted(1000)
    out_of_range = int(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert followed.take(row(error_code=out_of_range, log_start_offset=0)) is ResponseEffect.FAILED
    assert followed.take(row(error_code=out_of_range, log_start_offset=500, high_watermark=700)) is ResponseEffect.MOVED
    await partition.changed()
    assert (partition.log_start_offset, partition.end_offset, partition.high_watermark) == (500, 500, 500)
    assert followed.wanted(1000).last_fetched_epoch == -1


async def test_damaged_producers_are_not_taken(partition: Partition, world: World) -> None:
    followed = Followed(partition, world)
    followed.wanted(1000)
    snapshot = encode([ProducerState(producer_id=7, epoch=3)], offset=500)
    for damaged in (snapshot[:-1], b"?" + snapshot[1:], snapshot[:10]):
        answer = row(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), log_start_offset=500, producer_snapshot=damaged)
        assert followed.take(answer) is ResponseEffect.FAILED
        assert (partition.end_offset, followed.state) == (0, FollowedState.RESTING)
    assert "replica_not_followed" in cast("RecordedLog", world.log).events()
    answer.producer_snapshot = snapshot
    assert followed.take(answer) is ResponseEffect.MOVED
    await partition.changed()
    assert [state.producer_id for state in partition.log.producers.all()] == [7]


async def test_an_empty_log_with_the_same_producers_stays_as_it_is(partition: Partition, world: World) -> None:
    """Retention has emptied many idle partitions, and after each election their followers ask for this."""
    followed = Followed(partition, world)
    followed.wanted(1000)
    batch = bytearray(make_batch(producer_id=7))
    stamp(batch, 0, 3)
    followed.take(row(records=bytes(batch), high_watermark=1))
    followed.wanted(1000)
    followed.take(row(high_watermark=1, log_start_offset=1))
    here = [replace(state, last_append_ms=5) for state in partition.log.producers.all()]
    syncs = cast("MemoryDisk", world.disk).syncs
    for producers, begins_anew in ((here, False), ([], True)):
        assert followed.wanted(1000).last_fetched_epoch == (-1 if begins_anew else 3)
        answer = row(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), log_start_offset=1, high_watermark=1)
        answer.producer_snapshot = encode(producers, offset=1)
        assert followed.take(answer) is ResponseEffect.MOVED
        await partition.changed()
        assert followed.wanted(1000).last_fetched_epoch == -1, "it would be asked for ever"
        assert (cast("MemoryDisk", world.disk).syncs > syncs) is begins_anew
        assert ("log_begun_anew" in cast("RecordedLog", world.log).events()) is begins_anew
        assert (partition.log_start_offset, partition.end_offset, partition.high_watermark) == (1, 1, 1)
        assert partition.log.has_producers(producers)


async def test_diverging_epoch_truncates_and_the_follower_always_advances(partition: Partition, world: World) -> None:
    """Also if there is only an epoch without a record to cut. Otherwise the follower would ask for it for ever."""
    followed = Followed(partition, world)
    followed.wanted(1000)
    followed.take(row(records=b"".join(records(n, 1) for n in range(5))))
    partition.log.epochs.assign(2, 5)
    followed.wanted(1000)
    assert (
        followed.take(row(diverging_epoch=FetchResponseDivergingEpoch(epoch=1, end_offset=9))) is ResponseEffect.MOVED
    )
    assert (partition.end_offset, partition.log.epochs.latest) == (5, 1)
    followed.wanted(1000)
    assert (
        followed.take(row(diverging_epoch=FetchResponseDivergingEpoch(epoch=1, end_offset=3))) is ResponseEffect.MOVED
    )
    await partition.changed()
    assert (partition.end_offset, followed.state) == (3, FollowedState.DUE)


def test_throttle_lets_a_second_worth_through_and_then_so_much_a_second() -> None:
    throttle = Throttle(lambda: 1000, now=0.0)
    assert throttle.wait_s(0.0) == 0
    throttle.note(1500, 0.0)
    assert throttle.wait_s(0.0) == 0.5
    assert throttle.wait_s(0.25) == 0.25
    assert throttle.wait_s(0.5) == 0
    throttle.note(4000, 100.0)
    assert throttle.wait_s(100.0) == 3, "no more than a second is saved up"
    unbounded = Throttle(lambda: UNBOUNDED, now=0.0)
    unbounded.note(10**9, 0.0)
    assert unbounded.wait_s(0.0) == 0


def test_throttle_follows_its_rate_and_lets_nothing_through_at_0() -> None:
    rates = [1000]
    throttle = Throttle(lambda: rates[0], now=0.0)
    throttle.note(11_000, 0.0)
    assert throttle.wait_s(0.0) == 10
    rates[0] = 10_000
    assert throttle.wait_s(0.0) == 1
    rates[0] = 0
    assert throttle.wait_s(100.0) == inf
    rates[0] = UNBOUNDED
    assert (throttle.wait_s(100.0), throttle.is_bounded) == (0, False)
    throttle.note(10**9, 100.0)
    rates[0] = 1000
    assert throttle.wait_s(100.0) == 0, "what came while there was no bound does not count"


def test_listed_throttle_is_about_the_replicas_of_its_broker() -> None:
    listed: dict[str, tuple[str, ...]] = {"all": ("*",), "some": ("0:1", "1:2", "2:1"), "none": ()}
    throttle = ListedThrottle(lambda: 1000, 0.0, node_id=1, listed=lambda topic: listed.get(topic, ()))
    assert [throttle.applies_to(topic, 7) for topic in ("all", "some", "none", "unknown")] == [
        True,
        False,
        False,
        False,
    ]
    assert [throttle.applies_to("some", index) for index in range(3)] == [True, False, True]
    listed["some"] = ("1:1",)
    assert [throttle.applies_to("some", index) for index in range(3)] == [False, True, False]
