"""Offsets in transactions: visible once the marker is durable, all or none of them, also after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from broker.groups.group_broker import GroupBroker, breathe
from semel_broker.groups.offsets.model import CommittedOffset, OffsetRecord
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition
from semel_storage.internal_topics import CONSUMER_OFFSETS

INDEX = coordinator_partition("g", 50)
MINUTE_MS = 60_000


@pytest.fixture
async def group_broker() -> AsyncIterator[GroupBroker]:
    group_broker = await GroupBroker().open()
    await group_broker.commit({9: 9}, group="first")  # creates the topic
    yield group_broker
    await group_broker.close()


def unstable(group_broker: GroupBroker, *partitions: int, group: str = "g") -> list[bool]:
    return [group_broker.ask.is_unstable(group, "t", partition) for partition in partitions]


async def state_of(group_broker: GroupBroker, group: str = "g") -> str | None:
    """The state of the group as ListGroups shows it; None: it is not listed."""
    found = await group_broker.ask.group(group)
    return None if found is None else found.membership.state_name


# --- visible at the marker ---


async def test_pending_offsets_are_seen_at_the_commit_marker_and_not_before(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 1})
    await group_broker.hold({0: 5, 1: 6})
    assert [await group_broker.offset(p) for p in (0, 1)] == [1, -1]
    assert unstable(group_broker, 0, 1, 2) == [True, True, False]
    await group_broker.end()
    assert [await group_broker.offset(p) for p in (0, 1)] == [5, 6]
    assert unstable(group_broker, 0, 1) == [False, False]


async def test_pending_offsets_are_dropped_at_the_abort_marker(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 1})
    await group_broker.hold({0: 5, 1: 6})
    await group_broker.end(commit=False)
    assert [await group_broker.offset(p) for p in (0, 1)] == [1, -1]
    assert unstable(group_broker, 0, 1) == [False, False]


async def test_group_exists_from_its_first_pending_offset_on(group_broker: GroupBroker) -> None:
    await group_broker.hold({0: 5})
    assert await state_of(group_broker) == "Empty"
    await group_broker.restart()
    assert await state_of(group_broker) == "Empty"
    await group_broker.end(commit=False)
    assert await state_of(group_broker) == "Empty"  # as in Kafka, until the next sweep of expired offsets


async def test_group_without_offsets_remains_while_a_transaction_is_open(group_broker: GroupBroker) -> None:
    """Neither the expiry sweep nor a failed join of a member removes it."""
    await group_broker.hold({0: 5})
    for shard in group_broker.groups.shards.here():
        shard.expire_offsets()
    assert await group_broker.ask.leave("g", [((await group_broker.join()).member_id, None)]) == [ErrorCode.NONE]
    assert await state_of(group_broker) == "Empty"
    await group_broker.end()
    assert (await group_broker.offset(), await state_of(group_broker)) == (5, "Empty")


async def test_pending_offset_counts_as_unstable_before_it_is_durable(group_broker: GroupBroker) -> None:
    """A new owner of the partition may fetch it while the sync is still under way."""
    group_broker.disk.hold_syncs()
    holding = asyncio.create_task(group_broker.hold({0: 5}))
    await breathe()
    assert not holding.done()
    assert unstable(group_broker, 0) == [True]
    group_broker.disk.release_syncs()
    await holding


async def test_one_marker_ends_the_offsets_of_all_groups_of_its_partition_and_of_its_producer_alone(
    group_broker: GroupBroker,
) -> None:
    twin = next(name for name in map(str, range(1000)) if coordinator_partition(name, 50) == INDEX)
    other = next(name for name in map(str, range(1000)) if coordinator_partition(name, 50) == INDEX + 1)
    for group in ("g", twin, other):
        await group_broker.hold({0: 5}, group=group)
    await group_broker.hold({1: 8}, producer_id=8)
    await group_broker.end()
    assert [await group_broker.offset(0, group) for group in ("g", twin, other)] == [5, 5, -1]
    assert (await group_broker.offset(1), unstable(group_broker, 1)) == (-1, [True])


async def test_last_offset_that_a_transaction_writes_for_a_partition_is_its_offset(group_broker: GroupBroker) -> None:
    for offset in (5, 9, 7):
        await group_broker.hold({0: offset})
    await group_broker.end()
    assert await group_broker.offset() == 7
    await group_broker.restart()
    assert await group_broker.offset() == 7


async def test_marker_takes_effect_after_all_that_lies_before_it_in_the_log(group_broker: GroupBroker) -> None:
    """Also if the waiter for the marker wakes before the task that applies the commits."""
    await group_broker.commit({0: 0})
    acts = (
        group_broker.commit({0: 3}),
        group_broker.hold({0: 5}),
        group_broker.end(),
        group_broker.commit({1: 1}),
    )  # it waits for the last of them
    await asyncio.gather(*acts)
    assert [await group_broker.offset(p) for p in (0, 1)] == [5, 1]


async def test_plain_commit_behind_the_pending_one_in_the_log_wins(group_broker: GroupBroker) -> None:
    """Compaction keeps the last record of a key, so the last record has to be the valid one."""
    await group_broker.hold({0: 5, 1: 5})
    await group_broker.commit({0: 3})
    assert unstable(group_broker, 0, 1) == [False, True]
    await group_broker.end()
    assert [await group_broker.offset(p) for p in (0, 1)] == [3, 5]
    await group_broker.restart()
    assert [await group_broker.offset(p) for p in (0, 1)] == [3, 5]


@pytest.mark.parametrize("first_to_end", [7, 8])
async def test_of_two_transactions_on_one_partition_the_later_record_counts_whichever_ends_first(
    group_broker: GroupBroker, first_to_end: int
) -> None:
    await group_broker.hold({0: 5}, producer_id=7)
    await group_broker.hold({0: 6}, producer_id=8)
    await group_broker.end(first_to_end)
    await group_broker.end(15 - first_to_end)
    assert await group_broker.offset() == 6
    await group_broker.restart()
    assert await group_broker.offset() == 6


async def test_with_the_later_transaction_aborted_the_earlier_one_counts(group_broker: GroupBroker) -> None:
    await group_broker.hold({0: 5}, producer_id=7)
    await group_broker.hold({0: 6}, producer_id=8)
    await group_broker.end(8, commit=False)
    assert unstable(group_broker, 0) == [True]
    await group_broker.end(7)
    assert await group_broker.offset() == 5
    await group_broker.restart()
    assert await group_broker.offset() == 5


async def test_transactions_of_one_producer_follow_each_other_with_one_epoch_or_with_one_each(
    group_broker: GroupBroker,
) -> None:
    for epoch, offset in ((0, 1), (0, 2), (1, 3), (2, 4)):  # the journal numbers the batches as the log expects
        await group_broker.hold({0: offset}, epoch=epoch)
        await group_broker.hold({1: offset}, epoch=epoch)
        await group_broker.end(epoch=epoch)
    assert [await group_broker.offset(p) for p in (0, 1)] == [4, 4]
    with pytest.raises(KafkaError) as fenced:
        await group_broker.hold({0: 9}, epoch=1)
    assert fenced.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert unstable(group_broker, 0) == [False]


async def test_transaction_that_wrote_nothing_here_may_end_here(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 1})
    await group_broker.end(99)
    await group_broker.end(99)
    assert await group_broker.offset() == 1


# --- restarts ---


@pytest.mark.proves("marker-before-offsets-are-loaded")
async def test_offsets_pending_over_a_restart_are_decided_by_the_marker_after_it(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 1})
    await group_broker.hold({0: 5}, producer_id=7)
    await group_broker.hold({1: 6}, producer_id=8)
    await group_broker.restart()
    assert (await group_broker.offset(), unstable(group_broker, 0, 1)) == (1, [True, True])
    await group_broker.end(7)
    await group_broker.end(8, commit=False)
    assert [await group_broker.offset(p) for p in (0, 1)] == [5, -1]
    await group_broker.restart()
    assert [await group_broker.offset(p) for p in (0, 1)] == [5, -1]


@pytest.mark.proves("marker-before-offsets-are-loaded")
@pytest.mark.parametrize("turns", [0, 6])
async def test_marker_before_the_pending_offsets_are_loaded(turns: int) -> None:
    """The transaction coordinator may be ready before the group coordinator.

    Then markers arrive before the replay reaches the offsets, or after it has passed them.
    """
    group_broker = await GroupBroker(durability="os").open()
    await group_broker.hold({0: 5}, producer_id=7)
    await group_broker.hold({1: 6}, producer_id=8)
    here = coordinator_partition("g", 50)
    late = next(name for name in map(str, range(1000)) if coordinator_partition(name, 50) == here)
    committed = CommittedOffset(1, metadata="x" * 4000)
    many = [OffsetRecord("t", partition, committed) for partition in range(1500)]
    await group_broker.ask.commit(late, many, member_id="", instance_id=None, generation_id=-1)
    await group_broker.close()
    group_broker.log.lines.clear()
    await group_broker.open(wait=False)
    await breathe(turns)
    await group_broker.end(7)
    await group_broker.end(8, commit=False)
    assert not group_broker.log.of("groups_loaded"), "the markers were to come before"
    await group_broker.groups.loaded()
    assert [await group_broker.offset(p) for p in (0, 1)] == [5, -1]
    assert unstable(group_broker, 0, 1) == [False, False]
    await group_broker.close()


@pytest.mark.proves("marker-written-twice")
async def test_a_marker_applied_twice_ends_nothing_else(group_broker: GroupBroker) -> None:
    """Its reply was lost, or it was written before a crash and again afterwards."""
    await group_broker.hold({0: 5})
    await group_broker.end()
    await group_broker.commit({0: 6})
    await group_broker.end()
    assert await group_broker.offset() == 6


@pytest.mark.parametrize("seed", range(8))
async def test_marker_cut_off_by_a_power_cut_is_written_again(group_broker: GroupBroker, seed: int) -> None:
    await group_broker.hold({0: 5})
    group_broker.disk.hold_syncs()
    ending = asyncio.create_task(group_broker.end())
    await breathe()
    assert (await group_broker.offset(), unstable(group_broker, 0)) == (
        -1,
        [True],
    )  # not durable: it may never have been
    await group_broker.lose_power(Random(seed))
    assert ending.cancelled()
    await group_broker.end()
    assert (await group_broker.offset(), unstable(group_broker, 0)) == (5, [False])


# --- members ---


async def test_an_old_generations_commit_is_refused(group_broker: GroupBroker) -> None:
    member = (await group_broker.enter()).member_id
    await group_broker.hold({0: 5}, member_id=member, generation=1)
    with pytest.raises(KafkaError) as stale:
        await group_broker.hold({0: 4}, member_id=member, generation=0)
    with pytest.raises(KafkaError) as stranger:
        await group_broker.hold({0: 4}, member_id="somebody", generation=1)
    with pytest.raises(KafkaError) as unknown:
        await group_broker.hold({0: 4}, group="other", generation=1, member_id=member)
    codes = [error.value.code for error in (stale, stranger, unknown)]
    assert codes == [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
    await group_broker.end()
    assert await group_broker.offset() == 5


async def test_producer_without_a_member_id_may_commit_while_the_group_has_members(group_broker: GroupBroker) -> None:
    await group_broker.enter()
    await group_broker.hold({0: 5})
    await group_broker.end()
    assert await group_broker.offset() == 5


async def test_member_may_commit_while_the_next_generation_is_being_formed(group_broker: GroupBroker) -> None:
    member = (await group_broker.enter()).member_id
    joining = asyncio.create_task(group_broker.join())
    await breathe()
    await group_broker.hold({0: 5}, member_id=member, generation=1)
    joining.cancel()


async def test_a_commit_that_is_not_verified_leaves_no_trace(group_broker: GroupBroker) -> None:
    def verify(index: int) -> None:
        assert index == INDEX
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "not added")

    partition = group_broker.topics.partition(CONSUMER_OFFSETS, INDEX)
    end_offset = partition.end_offset
    with pytest.raises(KafkaError) as refused:
        await group_broker.hold({0: 5}, verify=verify)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    assert (partition.end_offset, unstable(group_broker, 0)) == (end_offset, [False])


# --- what is forgotten ---


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("restarts", [0, 1, 2])
async def test_offsets_of_a_deleted_group_do_not_come_back_with_an_open_transaction(
    group_broker: GroupBroker, commit: bool, restarts: int
) -> None:
    await group_broker.commit({0: 1, 1: 1})
    await group_broker.hold({0: 5, 2: 7})
    await group_broker.ask.delete_group("g")
    if restarts > 0:
        await group_broker.restart()
    assert await state_of(group_broker) is None
    assert unstable(group_broker, 0, 1, 2) == [False, False, False]
    await group_broker.end(commit=commit)
    if restarts > 1:
        await group_broker.restart()
    assert [await group_broker.offset(p) for p in (0, 1, 2)] == [-1, -1, -1]
    assert await state_of(group_broker) is None


@pytest.mark.parametrize("commit", [True, False])
async def test_group_of_pending_offsets_alone_can_be_deleted(group_broker: GroupBroker, commit: bool) -> None:
    await group_broker.hold(dict.fromkeys(range(1200), 5))  # more than are deleted at once
    await group_broker.ask.delete_group("g")
    assert await state_of(group_broker) is None
    await group_broker.end(commit=commit)
    assert (await group_broker.offset(0), await group_broker.offset(1199), await state_of(group_broker)) == (
        -1,
        -1,
        None,
    )


async def test_offset_committed_after_the_deletion_takes_effect(group_broker: GroupBroker) -> None:
    """The transaction continues and may commit for the group again. Then the group exists again."""
    await group_broker.hold({0: 5, 1: 5})
    await group_broker.ask.delete_group("g")
    await group_broker.hold({1: 6})
    assert await state_of(group_broker) == "Empty"
    await group_broker.restart()
    await group_broker.end()
    assert [await group_broker.offset(p) for p in (0, 1)] == [-1, 6]


async def test_deleted_offset_does_not_come_back_with_any_open_transaction(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 1})
    await group_broker.hold({0: 5, 1: 5}, producer_id=7)
    await group_broker.hold({0: 6, 2: 6}, producer_id=8)
    assert await group_broker.ask.delete_offsets("g", [("t", 0), ("t", 2), ("t", 3)]) == [ErrorCode.NONE] * 3
    assert (await group_broker.offset(), unstable(group_broker, 0, 1, 2)) == (-1, [False, True, False])
    await group_broker.restart()
    assert unstable(group_broker, 0, 1, 2) == [False, True, False]
    await group_broker.end(8)
    await group_broker.end(7)
    assert [await group_broker.offset(p) for p in (0, 1, 2)] == [-1, 5, -1]


async def test_deletion_behind_a_marker_that_is_not_durable_yet_writes_nothing_into_the_ended_transaction(
    group_broker: GroupBroker,
) -> None:
    await group_broker.commit({0: 1})
    await group_broker.hold({0: 5})
    group_broker.disk.hold_syncs()
    ending = asyncio.create_task(group_broker.end())
    await breathe()
    deleting = asyncio.create_task(group_broker.ask.delete_group("g"))
    await breathe()
    group_broker.disk.release_syncs()
    await asyncio.gather(ending, deleting)
    partition = group_broker.topics.partition(CONSUMER_OFFSETS, INDEX)
    assert partition.open_transaction(7) is None, "it would hang for ever"
    assert await group_broker.offset() == -1  # committed, then deleted
    await group_broker.restart()
    assert await group_broker.offset() == -1


async def test_deleting_a_topic_forgets_its_pending_offsets_too(group_broker: GroupBroker) -> None:
    await group_broker.commit({0: 1})
    await group_broker.hold({0: 5, 1: 5})
    await group_broker.hold({0: 5}, group="another")
    await group_broker.hold({0: 5}, topic="stays")
    await group_broker.delete_topic()
    await group_broker.end()
    await group_broker.end(group="another")
    assert [await group_broker.offset(0), await group_broker.offset(1), await group_broker.offset(0, "another")] == [
        -1,
        -1,
        -1,
    ]
    assert await group_broker.offset(0, topic="stays") == 5
    await group_broker.restart()
    assert [await group_broker.offset(0), await group_broker.offset(0, topic="stays")] == [-1, 5]


async def test_offset_that_a_transaction_is_about_to_replace_does_not_expire() -> None:
    group_broker = await GroupBroker(offsets_retention_minutes="10", offsets_retention_check_interval_ms="20").open()
    await group_broker.commit({0: 1, 1: 1})
    await group_broker.hold({0: 5})
    group_broker.wall_ms += 11 * MINUTE_MS
    async with asyncio.timeout(5):
        while await group_broker.offset(1) >= 0:
            await asyncio.sleep(0.01)
    assert await group_broker.offset(0) == 1
    await group_broker.end(commit=False)
    async with asyncio.timeout(5):
        while await group_broker.ask.group("g") is not None:
            await asyncio.sleep(0.01)
    await group_broker.close()
