"""Offsets as part of transactions: seen when the marker is durable, all at once or never, and after any restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from broker.groups.desk import Desk, breathe
from semel_broker.groups.offsets import CommittedOffset, OffsetRecord
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition
from semel_storage.internal_topics import CONSUMER_OFFSETS

INDEX = coordinator_partition("g", 50)
MINUTE_MS = 60_000


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = await Desk().open()
    await desk.commit({9: 9}, group="first")  # creates the topic
    yield desk
    await desk.close()


def unstable(desk: Desk, *partitions: int, group: str = "g") -> list[bool]:
    return [desk.ask.is_unstable(group, "t", partition) for partition in partitions]


async def state_of(desk: Desk, group: str = "g") -> str | None:
    """The state of the group as ListGroups shows it; None: it is not listed."""
    found = await desk.ask.group(group)
    return None if found is None else found.shown_state


# --- visible at the marker ---


async def test_pending_offsets_are_seen_at_the_commit_marker_and_not_before(desk: Desk) -> None:
    await desk.commit({0: 1})
    await desk.hold({0: 5, 1: 6})
    assert [await desk.offset(p) for p in (0, 1)] == [1, -1]
    assert unstable(desk, 0, 1, 2) == [True, True, False]
    await desk.end()
    assert [await desk.offset(p) for p in (0, 1)] == [5, 6]
    assert unstable(desk, 0, 1) == [False, False]


async def test_pending_offsets_are_dropped_at_the_abort_marker(desk: Desk) -> None:
    await desk.commit({0: 1})
    await desk.hold({0: 5, 1: 6})
    await desk.end(commit=False)
    assert [await desk.offset(p) for p in (0, 1)] == [1, -1]
    assert unstable(desk, 0, 1) == [False, False]


async def test_group_exists_from_its_first_pending_offset_on(desk: Desk) -> None:
    await desk.hold({0: 5})
    assert await state_of(desk) == "Empty"
    await desk.restart()
    assert await state_of(desk) == "Empty"
    await desk.end(commit=False)
    assert await state_of(desk) == "Empty"  # as in Kafka, until the next sweep of expired offsets


async def test_group_without_offsets_remains_while_a_transaction_is_open(desk: Desk) -> None:
    """Neither the sweep nor the end of a member's attempt to join removes it."""
    await desk.hold({0: 5})
    for shard in desk.groups.shards.here():
        shard.expire_offsets()
    assert await desk.ask.leave("g", [((await desk.join()).member_id, None)]) == [ErrorCode.NONE]
    assert await state_of(desk) == "Empty"
    await desk.end()
    assert (await desk.offset(), await state_of(desk)) == (5, "Empty")


async def test_pending_offset_counts_as_unstable_before_it_is_durable(desk: Desk) -> None:
    """A new owner of the partition may ask for it while the disk is still busy with it."""
    desk.disk.hold_syncs()
    holding = asyncio.create_task(desk.hold({0: 5}))
    await breathe()
    assert not holding.done()
    assert unstable(desk, 0) == [True]
    desk.disk.release_syncs()
    await holding


async def test_one_marker_ends_the_offsets_of_all_groups_of_its_partition_and_of_its_producer_alone(desk: Desk) -> None:
    twin = next(name for name in map(str, range(1000)) if coordinator_partition(name, 50) == INDEX)
    other = next(name for name in map(str, range(1000)) if coordinator_partition(name, 50) == INDEX + 1)
    for group in ("g", twin, other):
        await desk.hold({0: 5}, group=group)
    await desk.hold({1: 8}, producer_id=8)
    await desk.end()
    assert [await desk.offset(0, group) for group in ("g", twin, other)] == [5, 5, -1]
    assert (await desk.offset(1), unstable(desk, 1)) == (-1, [True])


async def test_last_offset_that_a_transaction_writes_for_a_partition_is_its_offset(desk: Desk) -> None:
    for offset in (5, 9, 7):
        await desk.hold({0: offset})
    await desk.end()
    assert await desk.offset() == 7
    await desk.restart()
    assert await desk.offset() == 7


async def test_marker_takes_effect_after_all_that_lies_before_it_in_the_log(desk: Desk) -> None:
    """Also when whoever waits for the marker is woken before the one who applies the commits."""
    await desk.commit({0: 0})
    acts = desk.commit({0: 3}), desk.hold({0: 5}), desk.end(), desk.commit({1: 1})  # it waits for the last of them
    await asyncio.gather(*acts)
    assert [await desk.offset(p) for p in (0, 1)] == [5, 1]


async def test_plain_commit_behind_the_pending_one_in_the_log_wins(desk: Desk) -> None:
    """Compaction keeps the last record of a key, so that is the one that has to count."""
    await desk.hold({0: 5, 1: 5})
    await desk.commit({0: 3})
    assert unstable(desk, 0, 1) == [False, True]
    await desk.end()
    assert [await desk.offset(p) for p in (0, 1)] == [3, 5]
    await desk.restart()
    assert [await desk.offset(p) for p in (0, 1)] == [3, 5]


@pytest.mark.parametrize("first_to_end", [7, 8])
async def test_of_two_transactions_on_one_partition_the_later_record_counts_whichever_ends_first(
    desk: Desk, first_to_end: int
) -> None:
    await desk.hold({0: 5}, producer_id=7)
    await desk.hold({0: 6}, producer_id=8)
    await desk.end(first_to_end)
    await desk.end(15 - first_to_end)
    assert await desk.offset() == 6
    await desk.restart()
    assert await desk.offset() == 6


async def test_with_the_later_transaction_aborted_the_earlier_one_counts(desk: Desk) -> None:
    await desk.hold({0: 5}, producer_id=7)
    await desk.hold({0: 6}, producer_id=8)
    await desk.end(8, commit=False)
    assert unstable(desk, 0) == [True]
    await desk.end(7)
    assert await desk.offset() == 5
    await desk.restart()
    assert await desk.offset() == 5


async def test_transactions_of_one_producer_follow_each_other_with_one_epoch_or_with_one_each(desk: Desk) -> None:
    for epoch, offset in ((0, 1), (0, 2), (1, 3), (2, 4)):  # the journal numbers the batches as the log expects
        await desk.hold({0: offset}, epoch=epoch)
        await desk.hold({1: offset}, epoch=epoch)
        await desk.end(epoch=epoch)
    assert [await desk.offset(p) for p in (0, 1)] == [4, 4]
    with pytest.raises(KafkaError) as fenced:
        await desk.hold({0: 9}, epoch=1)
    assert fenced.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert unstable(desk, 0) == [False]


async def test_transaction_that_wrote_nothing_here_may_end_here(desk: Desk) -> None:
    await desk.commit({0: 1})
    await desk.end(99)
    await desk.end(99)
    assert await desk.offset() == 1


# --- restarts ---


@pytest.mark.proves("marker-before-offsets-are-loaded")
async def test_offsets_pending_over_a_restart_are_decided_by_the_marker_after_it(desk: Desk) -> None:
    await desk.commit({0: 1})
    await desk.hold({0: 5}, producer_id=7)
    await desk.hold({1: 6}, producer_id=8)
    await desk.restart()
    assert (await desk.offset(), unstable(desk, 0, 1)) == (1, [True, True])
    await desk.end(7)
    await desk.end(8, commit=False)
    assert [await desk.offset(p) for p in (0, 1)] == [5, -1]
    await desk.restart()
    assert [await desk.offset(p) for p in (0, 1)] == [5, -1]


@pytest.mark.proves("marker-before-offsets-are-loaded")
@pytest.mark.parametrize("turns", [0, 6])
async def test_marker_before_the_pending_offsets_are_loaded(turns: int) -> None:
    """The coordinator of transactions may be ready before that of groups, and go on with its markers: before the replay
    comes to its offsets, or when it is past them."""
    desk = await Desk(durability="os").open()
    await desk.hold({0: 5}, producer_id=7)
    await desk.hold({1: 6}, producer_id=8)
    here = coordinator_partition("g", 50)
    late = next(name for name in map(str, range(1000)) if coordinator_partition(name, 50) == here)
    committed = CommittedOffset(1, metadata="x" * 4000)
    many = [OffsetRecord("t", partition, committed) for partition in range(1500)]
    await desk.ask.commit(late, many, member_id="", instance_id=None, generation_id=-1)
    await desk.close()
    desk.log.lines.clear()
    await desk.open(wait=False)
    await breathe(turns)
    await desk.end(7)
    await desk.end(8, commit=False)
    assert not desk.log.of("groups_loaded"), "the markers were to come before"
    await desk.groups.loaded()
    assert [await desk.offset(p) for p in (0, 1)] == [5, -1]
    assert unstable(desk, 0, 1) == [False, False]
    await desk.close()


@pytest.mark.proves("marker-written-twice")
async def test_a_marker_applied_twice_ends_nothing_else(desk: Desk) -> None:
    """Its reply was lost, or it was written before a crash and again after."""
    await desk.hold({0: 5})
    await desk.end()
    await desk.commit({0: 6})
    await desk.end()
    assert await desk.offset() == 6


@pytest.mark.parametrize("seed", range(8))
async def test_marker_cut_off_by_a_power_cut_is_written_again(desk: Desk, seed: int) -> None:
    await desk.hold({0: 5})
    desk.disk.hold_syncs()
    ending = asyncio.create_task(desk.end())
    await breathe()
    assert (await desk.offset(), unstable(desk, 0)) == (-1, [True])  # not durable: it may never have been
    await desk.lose_power(Random(seed))
    assert ending.cancelled()
    await desk.end()
    assert (await desk.offset(), unstable(desk, 0)) == (5, [False])


# --- members ---


async def test_an_old_generations_commit_is_refused(desk: Desk) -> None:
    member = (await desk.enter()).member_id
    await desk.hold({0: 5}, member_id=member, generation=1)
    with pytest.raises(KafkaError) as stale:
        await desk.hold({0: 4}, member_id=member, generation=0)
    with pytest.raises(KafkaError) as stranger:
        await desk.hold({0: 4}, member_id="somebody", generation=1)
    with pytest.raises(KafkaError) as unknown:
        await desk.hold({0: 4}, group="other", generation=1, member_id=member)
    codes = [error.value.code for error in (stale, stranger, unknown)]
    assert codes == [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
    await desk.end()
    assert await desk.offset() == 5


async def test_producer_without_a_member_id_may_commit_while_the_group_has_members(desk: Desk) -> None:
    await desk.enter()
    await desk.hold({0: 5})
    await desk.end()
    assert await desk.offset() == 5


async def test_member_may_commit_while_the_next_generation_is_being_formed(desk: Desk) -> None:
    member = (await desk.enter()).member_id
    joining = asyncio.create_task(desk.join())
    await breathe()
    await desk.hold({0: 5}, member_id=member, generation=1)
    joining.cancel()


async def test_a_commit_that_is_not_verified_leaves_no_trace(desk: Desk) -> None:
    def verify(index: int) -> None:
        assert index == INDEX
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "not added")

    partition = desk.topics.partition(CONSUMER_OFFSETS, INDEX)
    end_offset = partition.end_offset
    with pytest.raises(KafkaError) as refused:
        await desk.hold({0: 5}, verify=verify)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    assert (partition.end_offset, unstable(desk, 0)) == (end_offset, [False])


# --- what is forgotten ---


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restarts", [0, 1, 2])
async def test_offsets_of_a_deleted_group_do_not_come_back_with_an_open_transaction(
    desk: Desk, commit: bool, restarts: int
) -> None:
    await desk.commit({0: 1, 1: 1})
    await desk.hold({0: 5, 2: 7})
    await desk.ask.delete_group("g")
    if restarts > 0:
        await desk.restart()
    assert await state_of(desk) is None
    assert unstable(desk, 0, 1, 2) == [False, False, False]
    await desk.end(commit=commit)
    if restarts > 1:
        await desk.restart()
    assert [await desk.offset(p) for p in (0, 1, 2)] == [-1, -1, -1]
    assert await state_of(desk) is None


@pytest.mark.parametrize("commit", [True, False])
async def test_group_of_pending_offsets_alone_can_be_deleted(desk: Desk, commit: bool) -> None:
    await desk.hold(dict.fromkeys(range(1200), 5))  # more than are deleted at once
    await desk.ask.delete_group("g")
    assert await state_of(desk) is None
    await desk.end(commit=commit)
    assert (await desk.offset(0), await desk.offset(1199), await state_of(desk)) == (-1, -1, None)


async def test_offset_committed_after_the_deletion_takes_effect(desk: Desk) -> None:
    """The transaction goes on: it may commit for the group again, and then the group exists again."""
    await desk.hold({0: 5, 1: 5})
    await desk.ask.delete_group("g")
    await desk.hold({1: 6})
    assert await state_of(desk) == "Empty"
    await desk.restart()
    await desk.end()
    assert [await desk.offset(p) for p in (0, 1)] == [-1, 6]


async def test_deleted_offset_does_not_come_back_with_any_open_transaction(desk: Desk) -> None:
    await desk.commit({0: 1})
    await desk.hold({0: 5, 1: 5}, producer_id=7)
    await desk.hold({0: 6, 2: 6}, producer_id=8)
    assert await desk.ask.delete_offsets("g", [("t", 0), ("t", 2), ("t", 3)]) == [ErrorCode.NONE] * 3
    assert (await desk.offset(), unstable(desk, 0, 1, 2)) == (-1, [False, True, False])
    await desk.restart()
    assert unstable(desk, 0, 1, 2) == [False, True, False]
    await desk.end(8)
    await desk.end(7)
    assert [await desk.offset(p) for p in (0, 1, 2)] == [-1, 5, -1]


async def test_deletion_behind_a_marker_that_is_not_durable_yet_writes_nothing_into_the_ended_transaction(
    desk: Desk,
) -> None:
    await desk.commit({0: 1})
    await desk.hold({0: 5})
    desk.disk.hold_syncs()
    ending = asyncio.create_task(desk.end())
    await breathe()
    deleting = asyncio.create_task(desk.ask.delete_group("g"))
    await breathe()
    desk.disk.release_syncs()
    await asyncio.gather(ending, deleting)
    partition = desk.topics.partition(CONSUMER_OFFSETS, INDEX)
    assert partition.open_transaction(7) is None, "it would hang for ever"
    assert await desk.offset() == -1  # committed, then deleted
    await desk.restart()
    assert await desk.offset() == -1


async def test_deleting_a_topic_forgets_its_pending_offsets_too(desk: Desk) -> None:
    await desk.commit({0: 1})
    await desk.hold({0: 5, 1: 5})
    await desk.hold({0: 5}, group="another")
    await desk.hold({0: 5}, topic="stays")
    await desk.delete_topic()
    await desk.end()
    await desk.end(group="another")
    assert [await desk.offset(0), await desk.offset(1), await desk.offset(0, "another")] == [-1, -1, -1]
    assert await desk.offset(0, topic="stays") == 5
    await desk.restart()
    assert [await desk.offset(0), await desk.offset(0, topic="stays")] == [-1, 5]


async def test_offset_that_a_transaction_is_about_to_replace_does_not_expire() -> None:
    desk = await Desk(offsets_retention_minutes="10", offsets_retention_check_interval_ms="20").open()
    await desk.commit({0: 1, 1: 1})
    await desk.hold({0: 5})
    desk.wall_ms += 11 * MINUTE_MS
    async with asyncio.timeout(5):
        while await desk.offset(1) >= 0:
            await asyncio.sleep(0.01)
    assert await desk.offset(0) == 1
    await desk.end(commit=False)
    async with asyncio.timeout(5):
        while await desk.ask.group("g") is not None:
            await asyncio.sleep(0.01)
    await desk.close()
