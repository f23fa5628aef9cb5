"""Offsets count for the topic for which they were committed, not for a later topic with the same name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from broker.groups.group_broker import GroupBroker, breathe
from semel_broker.groups.offsets.model import CommittedOffset, OffsetRecord
from semel_broker.groups.offsets.records import offset_rows
from semel_broker.topics.topics import Topics
from semel_protocol.batch import read_header
from semel_protocol.hashes import coordinator_partition
from semel_protocol.records import Record, build_batch
from semel_protocol.schema import ZERO_UUID
from semel_storage.internal_topics import CONSUMER_OFFSETS

MINUTE_MS = 60_000


@pytest.fixture
async def group_broker() -> AsyncIterator[GroupBroker]:
    group_broker = await GroupBroker().open()
    await group_broker.commit({0: 5, 1: 6})
    yield group_broker
    await group_broker.close()


async def remembered(group_broker: GroupBroker) -> list[tuple[str, int, int]]:
    """All offsets in the coordinator's memory, also those of deleted topics."""
    offsets = await group_broker.ask.offsets("g")
    return [(topic, partition, committed.offset) for topic, partition, committed in offsets]


async def test_stop_between_deletion_and_forgetting_leaves_the_next_topic_of_that_name_no_offsets(
    group_broker: GroupBroker,
) -> None:
    await group_broker.topics.delete("t")
    await group_broker.lose_power()  # creates the topics again
    assert await group_broker.offset() == -1
    assert await remembered(group_broker) == []
    await group_broker.restart()
    assert await group_broker.offset() == -1


async def test_stop_after_the_topic_was_recreated_keeps_the_offsets_of_the_new_one(group_broker: GroupBroker) -> None:
    await group_broker.topics.delete("t")
    await group_broker.topics.ensure("t")
    await group_broker.commit({0: 1})
    await group_broker.lose_power()
    assert await remembered(group_broker) == [("t", 0, 1)]
    assert await group_broker.offset() == 1


async def test_offset_of_a_deleted_topic_is_not_the_next_ones_before_it_is_forgotten(group_broker: GroupBroker) -> None:
    await group_broker.topics.delete("t")
    assert await group_broker.offset() == -1
    await group_broker.topics.ensure("t")
    assert await group_broker.offset() == -1
    await group_broker.groups.forget_topic("t")
    assert await remembered(group_broker) == []


@pytest.mark.parametrize("durable", [True, False])
async def test_a_late_deletion_keeps_the_offsets_of_the_next_topic(group_broker: GroupBroker, durable: bool) -> None:
    await group_broker.topics.delete("t")
    await group_broker.topics.ensure("t")
    if not durable:
        await group_broker.commit({0: 7}, group="another")
        group_broker.disk.hold_syncs()
    committing = asyncio.create_task(group_broker.commit({0: 1}))
    await breathe()
    forgetting = asyncio.create_task(group_broker.groups.forget_topic("t"))
    await breathe()
    if not durable:
        group_broker.disk.release_syncs()
    await asyncio.gather(committing, forgetting)
    assert await group_broker.offset() == 1
    await group_broker.restart()
    assert await group_broker.offset() == 1
    assert await remembered(group_broker) == [("t", 0, 1)]


async def test_commit_that_comes_as_an_old_offset_expires_is_kept() -> None:
    group_broker = await GroupBroker(offsets_retention_minutes="10", offsets_retention_check_interval_ms="20").open()
    await group_broker.commit({0: 5, 1: 5})
    group_broker.wall_ms += 11 * MINUTE_MS
    group_broker.disk.hold_syncs()
    committing = asyncio.create_task(group_broker.commit({0: 6}))
    async with asyncio.timeout(5):
        while not group_broker.log.of("offsets_expired"):
            await asyncio.sleep(0.01)
    group_broker.disk.release_syncs()
    await committing
    async with asyncio.timeout(5):
        while await group_broker.offset(1) >= 0:
            await asyncio.sleep(0.01)
    assert await group_broker.offset(0) == 6
    await group_broker.restart()
    assert await group_broker.offset(0) == 6
    await group_broker.close()


async def test_late_offset_of_a_deleted_topic_is_not_seen_and_expires() -> None:
    group_broker = await GroupBroker(offsets_retention_check_interval_ms="20").open()
    late = CommittedOffset(
        9, commit_timestamp_ms=group_broker.wall_ms, topic_id=group_broker.topics.required("t").topic_id
    )
    await group_broker.delete_topic()
    await group_broker.topics.ensure("t")
    await group_broker.ask.commit("g", [OffsetRecord("t", 0, late)], member_id="", instance_id=None, generation_id=-1)
    assert await group_broker.offset() == -1
    async with asyncio.timeout(5):
        while await remembered(group_broker):
            await asyncio.sleep(0.01)
    await group_broker.close()


async def test_offset_without_a_topic_id_counts_for_the_topic_of_that_name(group_broker: GroupBroker) -> None:
    told_no_id = OffsetRecord("t", 0, CommittedOffset(8, commit_timestamp_ms=group_broker.wall_ms))
    await group_broker.ask.commit("h", [told_no_id], member_id="", instance_id=None, generation_id=-1)
    assert await group_broker.offset(group="h") == 8
    await group_broker.restart()
    assert await group_broker.offset(group="h") == 8
    await group_broker.topics.delete("t")
    await group_broker.lose_power()
    assert await group_broker.offset(group="h") == -1
    await group_broker.restart()
    assert await group_broker.offset(group="h") == -1


async def test_offset_stored_by_an_earlier_release_is_read(group_broker: GroupBroker) -> None:
    ((key, value),) = offset_rows("g", [OffsetRecord("t", 0, CommittedOffset(3, -1, "", 10, 20))])
    assert value is not None
    assert value[:2] == b"\0\1"  # a version that has no room for an id
    partition = group_broker.topics.partition(CONSUMER_OFFSETS, coordinator_partition("g", 50))
    batch = bytearray(build_batch([Record(0, 0, key, value)]))
    partition.append(batch, header=read_header(batch))
    await group_broker.restart()
    found = (await group_broker.ask.offsets("g")).get("t", 0)
    assert found is not None
    assert (found.offset, found.topic_id) == (3, ZERO_UUID)
    assert await group_broker.offset() == 3


async def test_pending_offsets_of_a_topic_deleted_before_a_stop_do_not_come_back(group_broker: GroupBroker) -> None:
    await group_broker.hold({0: 50})
    await group_broker.topics.delete("t")
    await group_broker.lose_power()
    await group_broker.end()
    assert await group_broker.offset() == -1
    assert not group_broker.ask.is_unstable("g", "t", 0)


async def test_a_broker_catches_up_with_the_store_before_it_deletes_offsets(
    group_broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_asked = False
    get = Topics.get

    async def catch_up(topics: Topics) -> None:
        nonlocal has_asked
        has_asked = True

    monkeypatch.setattr(Topics, "get", lambda topics, name: get(topics, name) if has_asked or name != "t" else None)
    monkeypatch.setattr(Topics, "catch_up", catch_up)
    await group_broker.restart()
    assert has_asked
    assert await remembered(group_broker) == [("t", 0, 5), ("t", 1, 6)]
