"""Two and three brokers over real sockets: the records of the leader reach all replicas, and then are committed."""

from __future__ import annotations

import asyncio

import pytest
from broker.cluster.brokers import until
from broker.replication.brokers import ReplicationCluster
from semel_broker.cluster.topic_plan import NewTopic
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.memory_disk import MemoryDisk


async def test_acknowledged_records_are_on_all_replicas_in_sync(cluster: ReplicationCluster) -> None:
    one, two, three = await cluster.start_with_topic(1, 2, 3)
    for n in range(20):
        await one.put(b"record %d" % n)
        assert min(it.partition().durable_end for it in (one, two, three)) == n + 1
    await cluster.same(1, 2, 3)


async def test_record_is_not_committed_before_the_slowest_replica_in_sync_has_synced_it(
    cluster: ReplicationCluster,
) -> None:
    one, two = await cluster.start_with_topic(1, 2, **{"replica.lag.time.max.ms": "60000"})
    await one.put(b"both")
    two.disk.hold_syncs()
    _, end = one.append(b"one")
    await until(lambda: two.partition().end_offset == end)
    assert (one.partition().durable_end, one.partition().high_watermark) == (end, end - 1)
    two.disk.release_syncs()
    await until(lambda: one.partition().high_watermark == end)


async def test_many_partitions_with_leaders_all_over(cluster: ReplicationCluster) -> None:
    brokers = await cluster.start(1, 2, 3)
    rows = [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 20
    await cluster.topic(*rows)
    await asyncio.gather(
        *(
            brokers[row[0] - 1].put(b"%d of %d" % (n, index), index=index)
            for index, row in enumerate(rows)
            for n in range(5)
        )
    )
    for index in range(len(rows)):
        await cluster.same(1, 2, 3, index=index)


async def test_transactions_are_replicated_with_all_that_is_known_of_them(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start(1, 2)
    await cluster.topic([1, 2], configs={"segment.bytes": "2000"})
    for n in range(30):
        await one.put(b"x" * 300, producer_id=5, sequence=n, is_transactional=True)
        one.append(b"y" * 100, producer_id=6, sequence=n)
        if n % 3 == 2:
            result = one.partition().append_marker(5, 0, n % 2 == 0, 1)
            await one.partition().committed(result.last_offset + 1)
    await cluster.same(1, 2)
    log = two.partition().log
    assert len(log.segments) > 3
    assert len(log.aborted_transactions(0, log.end_offset)) == 5


async def test_high_watermark_and_log_start_reach_followers(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start_with_topic(1, 2)
    for n in range(10):
        await one.put(b"%d" % n)
    one.partition().delete_records(4)
    await until(lambda: two.partition().high_watermark == 10)
    await until(lambda: two.partition().log_start_offset == 4)
    await cluster.same(1, 2)


async def test_replica_that_was_away_catches_up_and_comes_back_into_the_isr(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start_with_topic(1, 2)
    await one.put(b"both")
    await two.die()
    await cluster.isr(1, by=1)
    for n in range(50):
        await one.put(b"alone %d" % n)
    await two.start()
    await cluster.role(2, 1)
    await cluster.isr(1, 2, by=1)
    await cluster.same(1, 2)


async def test_replica_whose_next_records_are_deleted_begins_anew(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start(1, 2)
    await cluster.topic([1, 2], configs={"segment.bytes": "1024"})
    await one.put(b"both")
    await two.die()
    await cluster.isr(1, by=1)
    for n in range(30):
        await one.put(b"%d" % n * 200)
    one.partition().delete_records(25)
    await until(lambda: one.partition().log.segments[0].base_offset > 1)
    await two.start()
    await cluster.isr(1, 2, by=1)
    await cluster.same(1, 2)
    assert two.partition().log_start_offset == 25
    assert "log_begun_anew" in two.log.events()
    assert await one.put(b"goes on") == 31
    await cluster.same(1, 2)


@pytest.mark.proves("producers-of-deleted-records")
async def test_replica_that_begins_anew_knows_the_producers_of_deleted_records(cluster: ReplicationCluster) -> None:
    """Otherwise it would store a retried record a second time once it leads."""
    one, two = await cluster.start(1, 2)
    await cluster.topic([1, 2], configs={"segment.bytes": "1024"})
    await one.put(b"both")
    await two.die()
    await cluster.isr(1, by=1)
    retried = {"producer_id": 7, "epoch": 3, "sequence": 5}
    assert await one.put(b"without an answer" * 50, **retried) == 1
    for n in range(8):
        await one.put(b"%d" % n * 200)
    one.partition().delete_records(10)
    await two.start()
    await cluster.isr(1, 2, by=1)
    await cluster.same(1, 2)
    assert ("log_begun_anew", 1) in [(event, fields.get("producers")) for event, fields in two.log.lines]
    await one.die()
    await cluster.role(2, 2)
    assert await two.put(b"without an answer" * 50, **retried) == 1
    assert two.partition().end_offset == 10


async def test_replica_that_lost_its_disk_gets_everything_again(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start_with_topic(1, 2)
    for n in range(20):
        await one.put(b"%d" % n)
    await two.die()
    two.disk = MemoryDisk()
    await two.start()
    await cluster.isr(1, 2, by=1)
    await cluster.same(1, 2)


@pytest.mark.proves("quiet-partition")
async def test_quiet_partitions_stay_in_sync(cluster: ReplicationCluster) -> None:
    """A follower names a partition once. Every later fetch of the session confirms that it is still at the end."""
    one, _ = await cluster.start(1, 2)
    await cluster.topic([1, 2], [1, 2])
    await one.put(b"once", index=0)
    for _ in range(8):
        await asyncio.sleep(0.15)
        await one.put(b"busy", index=1)
    assert sorted(cluster.state(0).isr) == [1, 2]
    assert "isr_changed" not in one.log.events()


async def test_replica_that_lags_is_taken_out_and_does_not_hold_up_the_others(cluster: ReplicationCluster) -> None:
    one, two, three = await cluster.start_with_topic(1, 2, 3)
    await one.put(b"all")
    three.disk.hold_syncs()
    await one.put(b"two of three")
    assert cluster.state(by=1).isr == [1, 2]
    assert two.partition().durable_end == 2
    three.disk.release_syncs()
    await cluster.isr(1, 2, 3, by=1)
    await cluster.same(1, 2, 3)


async def test_topic_that_is_deleted_and_made_anew_is_another_one(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start_with_topic(1, 2)
    for n in range(10):
        await one.put(b"old %d" % n)
    await one.topics.delete("t")
    await until(lambda: two.topics.get("t") is None)
    await cluster.topic([2, 1])
    assert await two.put(b"new") == 0
    await cluster.same(1, 2)
    assert two.partition().end_offset == 1


async def test_partition_without_a_record_costs_a_follower_no_directory(cluster: ReplicationCluster) -> None:
    _, two = await cluster.start(1, 2)
    await cluster.topic([1, 2], [1, 2])
    await asyncio.sleep(0.3)
    assert two.logs.partitions() == []


async def test_new_partitions_are_followed_at_once_although_a_fetch_waits(cluster: ReplicationCluster) -> None:
    """The waiting fetch does not include them. It is answered early, so that the next one includes them."""
    cluster.settings |= {"replica.fetch.wait.max.ms": "30000", "replica.lag.time.max.ms": "60000"}
    one, _ = await cluster.start(1, 2)
    await cluster.topic([1, 2], name="first")
    await one.put(b"x", topic="first")
    for name in ("second", "third"):
        await cluster.topic([1, 2], name=name)
        async with asyncio.timeout(10):
            await one.put(b"x", topic=name)


async def test_catching_up_is_throttled_and_being_in_sync_is_not(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start_with_topic(1, 2, **{"replication.quota.bytes.per.second": "100000"})
    await two.die()
    await cluster.isr(1, by=1)
    for _ in range(100):
        await one.put(b"x" * 4000)
    loop = asyncio.get_running_loop()
    began = loop.time()
    two.config.replica_fetch_max_bytes = 20_000
    await two.start()
    await cluster.isr(1, 2, by=1)
    assert loop.time() - began > 2.0, "400 kB at 100 kB/s, of which a second's worth may come at once"
    began = loop.time()
    for _ in range(100):
        await one.put(b"x" * 4000)
    assert loop.time() - began < 2.0


@pytest.mark.proves("not-enough-replicas")
async def test_not_enough_replicas_is_answered_before_the_append(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start(1, 2)
    await cluster.topic([1, 2], configs={"min.insync.replicas": "2"})
    await one.put(b"both")
    await two.die()
    await cluster.isr(1, by=1)
    with pytest.raises(KafkaError) as refused:
        one.append(b"alone")
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert one.partition().end_offset == 1


async def test_single_replicas_need_no_other_broker(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start(1, 2)
    await one.topics.create(NewTopic(name="mine", assignments={0: [1]}))
    await one.put(b"alone", topic="mine")
    await until(lambda: two.topics.get("mine") is not None)
    with pytest.raises(KafkaError) as refused:
        two.partition(topic="mine")
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert two.replicator._fetchers == {}
