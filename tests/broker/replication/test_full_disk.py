"""Replicas on a full disk: a follower stores no records and leaves the ISR, and rejoins with free space."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from broker.cluster.brokers import until
from broker.replication.brokers import Replicant, ReplicationCluster
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.disk import Space
from storage.batches import read_all

GIB = 1 << 30
MARK = 1_000_000


@pytest.fixture
async def cluster() -> AsyncIterator[ReplicationCluster]:
    cluster = ReplicationCluster(**{"log.min.free.bytes": str(MARK)})
    yield cluster
    await cluster.close()


def leave(it: Replicant, free_bytes: int) -> None:
    """Set the number of free bytes on the disk of this broker."""
    it.disk.space = lambda path: Space(free_bytes, GIB)  # type: ignore[method-assign]
    it.topics.local.space.look()


def values(it: Replicant) -> list[bytes | None]:
    return [value for _, value in read_all(it.partition().log)]


async def test_a_follower_below_the_mark_follows_and_below_half_of_it_leaves_the_isr(
    cluster: ReplicationCluster,
) -> None:
    one, two = await cluster.start_with_topic(1, 2)
    leave(two, MARK // 2)
    await one.put(b"below the mark")
    await cluster.same(1, 2)
    leave(two, MARK // 2 - 1)
    await one.put(b"below half of it")
    await cluster.isr(1)
    await one.put(b"without the follower")
    await asyncio.sleep(60)
    assert values(two) == [b"below the mark"]
    assert cluster.state().isr == [1]
    leave(two, GIB)
    await cluster.isr(1, 2)
    await cluster.same(1, 2)
    assert values(two) == [b"below the mark", b"below half of it", b"without the follower"]
    events = two.log.events()
    assert (events.count("disk_nearly_full"), events.count("replica_not_followed")) == (1, 0)


async def test_acks_all_is_refused_where_a_full_follower_leaves_too_few_in_sync(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start(1, 2)
    await cluster.topic([1, 2], configs={"min.insync.replicas": "2"})
    await one.put(b"both")
    leave(two, 0)
    one.append(b"not acknowledged")
    await cluster.isr(1)
    with pytest.raises(KafkaError) as refusal:
        one.append(b"refused")
    assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    leave(two, GIB)
    await cluster.isr(1, 2)
    await one.put(b"both again")
    await cluster.same(1, 2)
    assert values(two) == [b"both", b"not acknowledged", b"both again"]


async def test_a_full_follower_deletes_what_its_leader_has_deleted(cluster: ReplicationCluster) -> None:
    """The follower gets free space this way: it follows retention and DeleteRecords of the leader without new
    records.
    """
    one, two = await cluster.start_with_topic(1, 2)
    for n in range(4):
        await one.put(b"%d" % n)
        one.partition().log.roll()
    await cluster.same(1, 2)
    leave(two, 0)
    one.append(b"not stored there")
    one.partition().delete_records(3)
    await until(lambda: two.partition().log_start_offset == 3)
    assert two.partition().end_offset == 4
    await cluster.isr(1)
    one.partition().delete_records(5)
    await until(lambda: two.partition().log_start_offset == two.partition().end_offset == 5)
    assert values(two) == []
    leave(two, GIB)
    await cluster.isr(1, 2)
    await one.put(b"again")
    await cluster.same(1, 2)


async def test_a_full_follower_truncates_to_its_new_leader(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start_with_topic(1, 2, **{"replica.lag.time.max.ms": "60000"})
    await one.put(b"both")
    two.unplug()
    one.append(b"only 1")
    leave(one, 0)
    await cluster.elect(2)
    two.append(b"only 2")
    await cluster.role(1, 2)
    two.plug_in()
    await until(lambda: values(one) == [b"both"])
    leave(one, GIB)
    await cluster.same(1, 2)
    assert values(one) == [b"both", b"only 2"]
