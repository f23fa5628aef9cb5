"""A request that waits for an append is answered when the broker loses the leadership, also if its wait began later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from broker.cluster.brokers import RecordedLog
from semel_broker.partitions.partition import Partition, Role
from semel_broker.partitions.replicas import Replicas
from semel_broker.scheduling.turns import Turns
from semel_broker.topics.topics import Topics
from semel_broker.txn.markers.channel import Marker
from semel_broker.txn.markers.local_destination import LocalDestination
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.world import World
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log.log import Log
from semel_storage.segments.log_config import LogConfig
from storage.batches import NOW_MS, make_batch

pytestmark = pytest.mark.proves("wait-after-lost-leadership")

HERE, OTHER = 1, 2
Make = Callable[[int], Partition]


@pytest.fixture
def led() -> Make:
    """Make a partition that this broker leads in epoch 1, with a follower that has not fetched so far."""
    world = World(
        now_ms=lambda: NOW_MS, monotonic=lambda: 0.0, rng=Random(1), disk=MemoryDisk(), log=cast("Any", RecordedLog())
    )

    def make(index: int) -> Partition:
        def open_log() -> Log:
            return Log.open(world.disk, f"data/t-{index}", LogConfig(), now_ms=NOW_MS)

        partition = Partition("t", index, open_log=open_log, world=world, fsync=False, topic_id="id", role=Role.NONE)
        partition.become_leader(1, replicas())
        return partition

    return make


def replicas() -> Replicas:
    return Replicas(HERE, [HERE, OTHER], [HERE, OTHER], epoch_start_offset=0, now_ms=0)


async def test_a_wait_that_begins_after_the_leadership_ended_is_refused(led: Make) -> None:
    partition = led(0)
    batch = make_batch()
    end = partition.append(batch, header=read_header(batch)).last_offset + 1
    partition.become_follower(OTHER, 2)
    async with asyncio.timeout(5):
        with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
            await partition.committed(end)


async def test_markers_of_a_former_leader_are_not_reported_as_committed(led: Make) -> None:
    """Leadership ends and returns between two markers and their waiter.

    Then another record has their offset, and that record is committed.
    """
    partitions = [led(0), led(1)]
    topics = cast("Topics", SimpleNamespace(partition=lambda topic, index: partitions[index]))
    destination = LocalDestination(topics, lambda *ended: None, Turns(asyncio.get_running_loop(), lambda: 0.0))
    marker = Marker(ProducerIdentity(7, 0), commit=True, coordinator_epoch=0)
    answer = destination.write([(marker, ("t", index)) for index in range(2)])
    assert not isinstance(answer, list)
    for partition in partitions:
        partition.become_follower(OTHER, 2)
        partition.truncate_to(0)
        await partition.changed()
        partition.become_leader(3, replicas())
        batch = make_batch()
        end = partition.append(batch, header=read_header(batch)).last_offset + 1
        partition.note_replica(OTHER, -1, end, NOW_MS)
        assert partition.high_watermark == end
    async with asyncio.timeout(5):
        assert await answer == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
