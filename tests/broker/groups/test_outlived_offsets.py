"""Offsets count for the topic that they were committed for, not for the next one of its name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from broker.groups.desk import Desk, breathe
from semel_broker.groups.offsets import CommittedOffset, OffsetRecord
from semel_broker.groups.records import offset_rows
from semel_broker.topics.topics import Topics
from semel_protocol.batch import read_header
from semel_protocol.hashes import coordinator_partition
from semel_protocol.records import Record, build_batch
from semel_protocol.schema import ZERO_UUID
from semel_storage.internal_topics import CONSUMER_OFFSETS

MINUTE_MS = 60_000


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = await Desk().open()
    await desk.commit({0: 5, 1: 6})
    yield desk
    await desk.close()


async def remembered(desk: Desk) -> list[tuple[str, int, int]]:
    """What lies in the coordinator's memory, whether it counts or not."""
    offsets = await desk.ask.offsets("g")
    return [(topic, partition, committed.offset) for topic, partition, committed in offsets]


async def test_stop_between_deletion_and_forgetting_leaves_the_next_topic_of_that_name_no_offsets(desk: Desk) -> None:
    await desk.topics.delete("t")
    await desk.lose_power()  # creates the topics again
    assert await desk.offset() == -1
    assert await remembered(desk) == []
    await desk.restart()
    assert await desk.offset() == -1


async def test_stop_after_the_topic_was_recreated_keeps_the_offsets_of_the_new_one(desk: Desk) -> None:
    await desk.topics.delete("t")
    await desk.topics.ensure("t")
    await desk.commit({0: 1})
    await desk.lose_power()
    assert await remembered(desk) == [("t", 0, 1)]
    assert await desk.offset() == 1


async def test_offset_of_a_deleted_topic_is_not_the_next_ones_before_it_is_forgotten(desk: Desk) -> None:
    await desk.topics.delete("t")
    assert await desk.offset() == -1
    await desk.topics.ensure("t")
    assert await desk.offset() == -1
    await desk.groups.forget_topic("t")
    assert await remembered(desk) == []


@pytest.mark.parametrize("durable", [True, False])
async def test_a_late_deletion_keeps_the_offsets_of_the_next_topic(desk: Desk, durable: bool) -> None:
    await desk.topics.delete("t")
    await desk.topics.ensure("t")
    if not durable:
        await desk.commit({0: 7}, group="another")
        desk.disk.hold_syncs()
    committing = asyncio.create_task(desk.commit({0: 1}))
    await breathe()
    forgetting = asyncio.create_task(desk.groups.forget_topic("t"))
    await breathe()
    if not durable:
        desk.disk.release_syncs()
    await asyncio.gather(committing, forgetting)
    assert await desk.offset() == 1
    await desk.restart()
    assert await desk.offset() == 1
    assert await remembered(desk) == [("t", 0, 1)]


async def test_commit_that_comes_as_an_old_offset_expires_is_kept() -> None:
    desk = await Desk(offsets_retention_minutes="10", offsets_retention_check_interval_ms="20").open()
    await desk.commit({0: 5, 1: 5})
    desk.wall_ms += 11 * MINUTE_MS
    desk.disk.hold_syncs()
    committing = asyncio.create_task(desk.commit({0: 6}))
    async with asyncio.timeout(5):
        while not desk.log.of("offsets_expired"):
            await asyncio.sleep(0.01)
    desk.disk.release_syncs()
    await committing
    async with asyncio.timeout(5):
        while await desk.offset(1) >= 0:
            await asyncio.sleep(0.01)
    assert await desk.offset(0) == 6
    await desk.restart()
    assert await desk.offset(0) == 6
    await desk.close()


async def test_late_offset_of_a_deleted_topic_is_not_seen_and_expires() -> None:
    desk = await Desk(offsets_retention_check_interval_ms="20").open()
    late = CommittedOffset(9, commit_timestamp_ms=desk.wall_ms, topic_id=desk.topics.required("t").topic_id)
    await desk.delete_topic()
    await desk.topics.ensure("t")
    await desk.ask.commit("g", [OffsetRecord("t", 0, late)], member_id="", instance_id=None, generation_id=-1)
    assert await desk.offset() == -1
    async with asyncio.timeout(5):
        while await remembered(desk):
            await asyncio.sleep(0.01)
    await desk.close()


async def test_offset_without_a_topic_id_counts_for_the_topic_of_that_name(desk: Desk) -> None:
    told_no_id = OffsetRecord("t", 0, CommittedOffset(8, commit_timestamp_ms=desk.wall_ms))
    await desk.ask.commit("h", [told_no_id], member_id="", instance_id=None, generation_id=-1)
    assert await desk.offset(group="h") == 8
    await desk.restart()
    assert await desk.offset(group="h") == 8
    await desk.topics.delete("t")
    await desk.lose_power()
    assert await desk.offset(group="h") == -1
    await desk.restart()
    assert await desk.offset(group="h") == -1


async def test_offset_stored_by_an_earlier_release_is_read(desk: Desk) -> None:
    ((key, value),) = offset_rows("g", [OffsetRecord("t", 0, CommittedOffset(3, -1, "", 10, 20))])
    assert value is not None
    assert value[:2] == b"\0\1"  # a version that has no room for an id
    partition = desk.topics.partition(CONSUMER_OFFSETS, coordinator_partition("g", 50))
    batch = bytearray(build_batch([Record(0, 0, key, value)]))
    partition.append(batch, header=read_header(batch))
    await desk.restart()
    found = (await desk.ask.offsets("g")).get("t", 0)
    assert found is not None
    assert (found.offset, found.topic_id) == (3, ZERO_UUID)
    assert await desk.offset() == 3


async def test_pending_offsets_of_a_topic_deleted_before_a_stop_do_not_come_back(desk: Desk) -> None:
    await desk.hold({0: 50})
    await desk.topics.delete("t")
    await desk.lose_power()
    await desk.end()
    assert await desk.offset() == -1
    assert not desk.ask.is_unstable("g", "t", 0)


async def test_a_broker_catches_up_with_the_store_before_it_deletes_offsets(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_asked = False
    get = Topics.get

    async def catch_up(topics: Topics) -> None:
        nonlocal has_asked
        has_asked = True

    monkeypatch.setattr(Topics, "get", lambda topics, name: get(topics, name) if has_asked or name != "t" else None)
    monkeypatch.setattr(Topics, "catch_up", catch_up)
    await desk.restart()
    assert has_asked
    assert await remembered(desk) == [("t", 0, 5), ("t", 1, 6)]
