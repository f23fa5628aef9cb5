"""Compaction deletes only what every replica has seen: a replica that was away must not keep deleted records."""

from __future__ import annotations

import asyncio

import pytest
from broker.cluster.brokers import until
from broker.replication.brokers import Replicant, ReplicationCluster
from semel_broker.partitions.cleaner import Cleaner
from semel_broker.partitions.partition import NOWHERE
from semel_protocol.batch import read_header
from support.logs import batch_of, pairs_of

pytestmark = pytest.mark.proves("replica-away-for-long", "compacted-before-all-replicas")

COMPACTED = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "0",
    "segment.bytes": "1024",
}


async def put(it: Replicant, key: bytes, value: bytes | None) -> None:
    partition, batch = it.partition(), batch_of([(key, value)])
    result = partition.append(batch, header=read_header(batch))
    async with asyncio.timeout(20):
        await partition.committed(result.last_offset + 1)


async def compact(*brokers: Replicant) -> None:
    """Compact until nothing is left to do.

    A tombstone gets its deletion time in one round and is deleted in a later one.
    """
    for it in brokers:
        it.partition().log.roll()
        cleaner = Cleaner(it.world, it.config, partitions=it.topics.here, checkpoint=it.logs.checkpoint)
        await it.logs.checkpoint()
        while await cleaner.compact_dirtiest():
            pass


def keys(it: Replicant) -> list[bytes | None]:
    return [key for _, key, _ in pairs_of(it.partition().log)]


async def level(*brokers: Replicant) -> None:
    """Wait until all replicas have the same end and know that it is committed."""
    await until(lambda: len({(it.partition().high_watermark, it.partition().end_offset) for it in brokers}) == 1)


async def knows(it: Replicant, *, is_whole: bool) -> None:
    await until(lambda: it.partition().is_whole is is_whole)


async def test_a_replica_that_was_away_keeps_no_deleted_records(cluster: ReplicationCluster) -> None:
    one, two, three = brokers = await cluster.start(1, 2, 3)
    await cluster.topic([1, 2, 3], configs=COMPACTED)
    await put(one, b"gone", b"1")
    await put(one, b"kept", b"1")
    await level(*brokers)
    await three.die()
    await cluster.isr(1, 2, by=1)
    await put(one, b"gone", None)
    for it in (one, two):
        await knows(it, is_whole=False)
    for number in range(3):
        await put(one, b"%d" % number, b"x")
        await level(one, two)
        await compact(one, two)
    assert b"gone" in keys(one)
    assert b"gone" in keys(two)
    await three.start()
    await cluster.isr(1, 2, 3, by=1)
    for number in range(3):
        await put(one, b"%d" % number, b"y")
        for it in brokers:
            await knows(it, is_whole=True)
        await level(*brokers)
        await compact(*brokers)
    for it in brokers:
        assert b"gone" not in keys(it), it.node_id
        assert b"kept" in keys(it)


async def test_no_offset_is_held_by_all_while_a_replica_is_not_in_sync(cluster: ReplicationCluster) -> None:
    one, two = brokers = await cluster.start(1, 2)
    await cluster.topic([1, 2], configs=COMPACTED)
    await cluster.topic([1], name="alone")
    for it in brokers:
        await until(lambda it=it: it.partition().held_by_all >= 0)
    for number in range(3):
        await put(one, b"%d" % number, b"x")
    await until(lambda: one.partition().held_by_all == two.partition().held_by_all == 3)
    two.unplug()
    one.append(b"nobody else's")
    assert one.partition().held_by_all == 3
    await cluster.isr(1, by=1)
    await until(lambda: one.partition().high_watermark == 4)
    await until(lambda: one.partition().held_by_all == two.partition().held_by_all == NOWHERE)
    one.append(b"of its own", topic="alone")
    alone = one.partition(topic="alone")
    await until(lambda: alone.held_by_all == 1)
    one.topics.local.resign()
    assert alone.held_by_all == NOWHERE, "its session is over: others may have got a replica"
    one.topics.local.take_roles()
    assert alone.held_by_all == 1
