"""Leaders fail and return. Acknowledged records stay, and all replicas become equal.

Tests choose most leaders themselves: the worst choices that are allowed.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from broker.cluster.brokers import until
from broker.replication.brokers import Replicant, ReplicationCluster
from semel_broker.cluster.store import OutcomeUnknownError
from semel_protocol.errors import ErrorCode, KafkaError
from storage.batches import read_all
from support.virtual_time import loop_time


def values(it: Replicant) -> list[bytes | None]:
    return [value for _, value in read_all(it.partition().log)]


@pytest.mark.proves("truncation-at-the-high-watermark")
async def test_two_fast_failovers_with_unequal_tails(cluster: ReplicationCluster) -> None:
    """Reliability, "truncating to HW instead of by leader epoch". The brokers are cut off between the elections."""
    brokers = one, two, three = await cluster.start_with_topic(1, 2, 3, **{"replica.lag.time.max.ms": "60000"})
    for n in range(10):
        await one.put(b"all %d" % n)
    for it in brokers:
        it.unplug()
    for n in range(5):
        one.append(b"only 1, %d" % n)
    await cluster.elect(2)
    for n in range(3):
        two.append(b"only 2, %d" % n)
    await cluster.elect(3)
    for n in range(4):
        three.append(b"only 3, %d" % n)
    await cluster.elect(1)
    one.append(b"1 again")
    for it in brokers:
        await cluster.role(it.node_id, 1)
        it.partition().view.high_watermark = 4  # they need not know better
        it.plug_in()
    await cluster.same(1, 2, 3)
    expected = [b"all %d" % n for n in range(10)] + [b"only 1, %d" % n for n in range(5)] + [b"1 again"]
    assert values(two) == values(three) == expected
    assert await one.put(b"goes on") == 16
    cuts = [fields["offset"] for it in brokers for event, fields in it.log.lines if event == "log_truncated"]
    assert cuts == [10, 10], "where the epochs part, neither before nor behind"
    assert "committed_records_truncated" not in [event for it in brokers for event in it.log.events()]


@pytest.mark.proves("truncation-at-the-high-watermark")
async def test_high_watermark_of_a_new_leader_may_be_behind_and_loses_nothing(cluster: ReplicationCluster) -> None:
    """A follower learns the high watermark one fetch late. A replica that truncated its log there when it follows
    another leader would lose acknowledged records (KIP-101, first scenario)."""
    one, two = await cluster.start_with_topic(1, 2)
    await one.put(b"first")
    base_offset = await one.put(b"acknowledged")
    two.unplug()
    assert two.partition().high_watermark <= base_offset
    await cluster.elect(2)
    await cluster.role(1, 2)
    await cluster.elect(1)
    await cluster.role(2, 1)
    two.plug_in()
    await cluster.same(1, 2)
    assert values(one) == [b"first", b"acknowledged"]


@pytest.mark.proves("record-of-a-lost-leader")
async def test_a_record_that_a_new_leader_never_had_is_no_retry_though_the_leader_deleted_its_offset(
    cluster: ReplicationCluster,
) -> None:
    """Both logs end at the same offset, and the leader's log starts there, so its epochs do not show the divergence.

    A replica that kept the producer state would answer the retry as stored, and the record would be lost.
    """
    one, two = await cluster.start_with_topic(1, 2, **{"replica.lag.time.max.ms": "60000"})
    await one.put(b"both")
    two.unplug()
    lost = {"producer_id": 7, "sequence": 0}
    assert one.append(b"only 1", **lost) == (1, 2)
    await cluster.elect(2)
    await cluster.role(1, 2)
    two.append(b"only 2")
    two.partition().view.high_watermark = 2
    two.partition().delete_records(2)
    two.plug_in()
    await cluster.same(1, 2)
    assert one.partition().log_start_offset == 2
    await cluster.elect(1)
    await cluster.role(2, 1)
    assert await one.put(b"only 1", **lost) == 2


@pytest.mark.proves("old-leader-epoch")
async def test_answer_of_an_old_epoch_is_not_taken(cluster: ReplicationCluster) -> None:
    """Reliability, "fetch replies of an old epoch counted": the answer arrives when the follower already has another
    leader.
    """
    one, two, three = await cluster.start_with_topic(1, 2, 3, **{"replica.lag.time.max.ms": "60000"})
    await one.put(b"all")
    two.unplug()
    held = await three.hold_answers(1)
    one.append(b"of 1, and nobody else's")
    await held.is_there.wait()
    await cluster.elect(2)
    await cluster.role(3, 2)
    held.gate.set()
    await asyncio.sleep(0.05)
    assert values(three) == [b"all"]
    two.plug_in()
    two.append(b"of 2")
    await cluster.same(1, 2, 3)
    assert values(three) == [b"all", b"of 2"]
    assert three.replicator._fetchers[1].partitions == []


@pytest.mark.proves("old-leader-epoch")
async def test_same_leader_in_a_new_epoch_does_not_have_old_answers_counted_either(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start_with_topic(1, 2, **{"replica.lag.time.max.ms": "60000"})
    await one.put(b"first")
    held = await two.hold_answers(1)
    one.append(b"second")
    await held.is_there.wait()
    await cluster.elect(1)
    await until(lambda: two.partition().leader_epoch == one.partition().leader_epoch == 1)
    assert two.partition().end_offset == 1
    (row,) = two.replicator._fetchers[1]._rows.values()
    assert not row.is_expecting
    held.gate.set()
    await cluster.same(1, 2)
    assert await one.put(b"third") == 2


@pytest.mark.proves("old-metadata")
async def test_a_follower_with_a_newer_epoch_retries_until_its_leader_has_it(cluster: ReplicationCluster) -> None:
    """Reliability, "metadata older than what is known"."""
    one, two = await cluster.start_with_topic(1, 2)
    await one.put(b"first")
    one.store.watch_gate.clear()
    state = asyncio.create_task(cluster.elect(1))
    await until(lambda: two.partition().leader_epoch == 1)
    assert one.partition().leader_epoch == 0
    await until(lambda: two.replicator._fetchers[1]._resting != {})
    one.store.watch_gate.set()
    await state
    await until(lambda: one.partition().leader_epoch == 1)
    assert await one.put(b"second") == 1
    await cluster.same(1, 2)


@pytest.mark.proves("restarted-broker-in-sync")
async def test_rebooted_broker_does_not_rejoin_under_its_old_registration(cluster: ReplicationCluster) -> None:
    """Reliability: the broker may have lost records that it had reported.

    The last fetch of its first incarnation arrives after the second one has registered with fewer records.
    """
    one, two = await cluster.start_with_topic(1, 2, **{"replica.lag.time.max.ms": "60000"})
    await one.put(b"both")
    old_epoch = two.registration.epoch
    await two.die("crash")
    await cluster.isr(1, by=1)
    for _ in range(3):
        await one.put(b"one")
    one.store.watch_gate.clear()  # the leader does not hear that it is another one now
    two.config.replica_fetch_wait_max_ms = 100
    begun = asyncio.create_task(two.start())
    await until(lambda: hasattr(two, "registration") and two.registration.epoch not in (0, old_epoch))
    partition = one.partition()
    partition.note_replica(2, old_epoch, partition.end_offset, int(one.world.monotonic() * 1000))
    one.replicator.isr.follower_fetched(partition, 2)
    assert one.replicator.isr._due == {}
    await asyncio.sleep(0.05)
    one.store.watch_gate.set()
    await begun
    assert cluster.state(by=1).isr == [1] or two.partition().end_offset == 4
    await cluster.isr(1, 2, by=1)
    await cluster.same(1, 2)


@pytest.mark.proves("leader-without-the-last-records")
async def test_the_last_replica_leads_again_with_all_records(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start_with_topic(1, 2)
    await one.put(b"both")
    await two.die()
    await cluster.isr(1, by=1)
    for n in range(5):
        await one.put(b"only 1, %d" % n)
    await one.die("crash")
    await two.start()
    await asyncio.sleep(0.3)
    with pytest.raises(KafkaError) as refused:
        two.append(b"2 must not lead: it has not got everything")
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await one.start()
    await cluster.role(1, 1)
    await cluster.isr(1, 2, by=1)
    await cluster.same(1, 2)
    assert values(two) == [b"both"] + [b"only 1, %d" % n for n in range(5)]


@pytest.mark.proves("in-sync-too-early")
async def test_replica_at_the_high_watermark_but_below_the_epochs_start_does_not_join(
    cluster: ReplicationCluster,
) -> None:
    """Reliability, "early ISR expansion": the high watermark of a new leader is behind.

    A replica that has only the records below it lacks acknowledged ones (KIP-207, KIP-679: kafka's `isFollowerInSync`).
    """
    one, two, three = await cluster.start_with_topic(1, 2, 3, **{"replica.lag.time.max.ms": "60000"})
    await one.put(b"all")
    await three.die()
    await cluster.isr(1, 2, by=1)
    for _ in range(5):
        await one.put(b"1 and 2")
    one.unplug()
    two.unplug()
    await cluster.elect(2)
    partition = two.partition()
    assert partition.replicas is not None
    assert partition.replicas.epoch_start_offset == 6
    partition.view.high_watermark = 3  # as if its end had no notice
    await three.start()
    now_ms = int(two.world.monotonic() * 1000)
    partition.note_replica(3, three.registration.epoch, 4, now_ms)
    two.replicator.isr.follower_fetched(partition, 3)
    assert two.replicator.isr._due == {}
    partition.note_replica(3, three.registration.epoch, 6, now_ms)
    two.replicator.isr.follower_fetched(partition, 3)
    assert list(two.replicator.isr._due) == [partition]


@pytest.mark.proves("follower-differs")
@pytest.mark.parametrize("seed", range(3))
async def test_acknowledged_records_survive_any_two_of_three_brokers(seed: int) -> None:
    """Brokers die at any moment, by process or by power, and return.

    All acknowledged records are at their offsets, and all replicas are equal.
    """
    rng = Random(seed)
    cluster = ReplicationCluster(**{"min.insync.replicas": "2", "replica.lag.time.max.ms": "200"})
    try:
        await cluster.start(1, 2, 3)
        await cluster.topic([1, 2, 3])
        acknowledged: dict[int, bytes] = {}
        written = 0
        for _ in range(6):
            for _ in range(rng.randint(1, 8)):
                written += 1
                value = b"%d" % written
                leader = next((it for it in cluster.brokers.values() if it.partition().is_leading), None)
                if leader is None:
                    await asyncio.sleep(0.01)
                    continue
                try:
                    async with asyncio.timeout(1):
                        acknowledged[await leader.put(value)] = value
                except (KafkaError, TimeoutError):
                    await asyncio.sleep(0.02)
            victim = cluster.brokers[rng.randint(1, 3)]
            for n in range(rng.randint(0, 3)):
                if victim.partition().is_leading:
                    with_one = b"unacknowledged %d.%d" % (written, n)
                    try:
                        victim.append(with_one)
                    except KafkaError:
                        break
            await victim.die(rng.choice(("kill", "crash")))
            await asyncio.sleep(rng.random() * 0.1)
            await victim.start()
            await until(lambda: any(it.partition().is_leading for it in cluster.brokers.values()), "no leader")
        await until(lambda: len(cluster.state().isr) == 3, "not all are in sync again")
        await cluster.same(1, 2, 3)
        found = dict(read_all(cluster.brokers[1].partition().log))
        assert acknowledged, "nothing was acknowledged"
        assert {offset: found.get(offset) for offset in acknowledged} == acknowledged
        events = [event for it in cluster.brokers.values() for event in it.log.events()]
        assert "committed_records_truncated" not in events
        assert "replica_failed" not in events
        assert "fetcher_failed" not in events
    finally:
        await cluster.close()


# --- disks that hang ---


@pytest.mark.proves("hanging-disk")
@pytest.mark.parametrize("hangs_s", [30, 300])
async def test_a_leader_whose_disk_hangs_is_replaced_and_follows_after_the_hang(
    cluster: ReplicationCluster, hangs_s: float
) -> None:
    one, two, _ = await cluster.start_with_topic(1, 2, 3, **{"replica.lag.time.max.ms": "60000"})
    await one.put(b"before")
    one.disk.hold_syncs()
    begun_s = loop_time()
    lost = asyncio.create_task(one.put(b"in doubt"))
    await until(lambda: two.partition().is_leading)
    assert loop_time() - begun_s <= 11, "as docs/reliability.md says"
    assert isr_of(two) == [2, 3]
    with pytest.raises(KafkaError, check=lambda error: error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER):
        await lost
    await two.put(b"after")
    await asyncio.sleep(hangs_s)
    assert isr_of(two) == [2, 3], "it does not join again while its disk hangs"
    assert one.registration.is_valid(), "it stays in the cluster"
    one.disk.release_syncs()
    await until(lambda: sorted(isr_of(two)) == [1, 2, 3])
    await cluster.same(1, 2, 3)
    assert [value for value in values(one) if value != b"in doubt"] == [b"before", b"after"]
    assert (one.log.events().count("disk_hangs"), one.log.events().count("disk_goes_on")) == (1, 1)


async def test_a_follower_whose_disk_hangs_leaves_the_isr_and_writes_continue(cluster: ReplicationCluster) -> None:
    one, two, _ = await cluster.start_with_topic(1, 2, 3, **{"replica.lag.time.max.ms": "60000"})
    await one.put(b"before")
    two.disk.hold_syncs()
    begun_s = loop_time()
    await one.put(b"waits for the follower")
    assert loop_time() - begun_s <= 11
    assert isr_of(one) == [1, 3]
    await one.put(b"does not wait")
    two.disk.release_syncs()
    await until(lambda: sorted(isr_of(one)) == [1, 2, 3])
    await cluster.same(1, 2, 3)


async def test_a_broker_whose_disk_hangs_leads_what_no_other_one_can(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start(1, 2)
    await cluster.topic([1])
    await one.put(b"before")
    one.disk.hold_syncs()
    _, end = one.append(b"waits")
    await asyncio.sleep(30)
    assert one.partition().is_leading, "reads of bytes in the kernel's memory continue"
    assert two.feed.image.hangs(1)
    one.disk.release_syncs()
    await one.partition().committed(end)


async def test_a_new_session_during_a_hang_reports_the_hang_again(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start_with_topic(1, 2)
    await one.put(b"before")
    one.disk.hold_syncs()
    in_doubt = asyncio.create_task(one.put(b"in doubt"))
    await until(lambda: two.feed.image.hangs(1))
    with pytest.raises(KafkaError):
        await in_doubt
    epoch = one.registration.epoch
    await one.session.expire()
    await until(lambda: one.registration.epoch not in (epoch, 0))
    await until(lambda: two.feed.image.hangs(1))
    one.disk.release_syncs()
    await until(lambda: not two.feed.image.hangs(1))


# --- partitions that go offline while their broker runs ---


def isr_of(it: Replicant) -> list[int]:
    view = it.feed.image.partition(it.partition().topic_id, 0)
    assert view is not None
    return list(view.state.isr)


async def test_a_leader_that_cannot_use_its_files_is_replaced_at_once_and_is_in_sync_after_a_repair(
    cluster: ReplicationCluster,
) -> None:
    one, two, three = await cluster.start(1, 2, 3, **{"replica.lag.time.max.ms": "60000"})
    await cluster.topic([1, 2, 3], [1, 2, 3])
    await one.put(b"before")
    one.partition().take_offline("its disk gives errors")
    await cluster.role(2, 2)
    await cluster.role(3, 2)
    await until(lambda: isr_of(two) == [2, 3])
    assert one.partition(1).is_leading, "the other partition stays where it is"
    await two.put(b"after")
    await asyncio.sleep(300)
    assert isr_of(two) == [2, 3], "it does not join again while it runs"
    await one.stop()
    await one.start()
    await until(lambda: sorted(isr_of(two)) == [1, 2, 3])
    await cluster.same(1, 2, 3)
    assert values(three) == [b"before", b"after"]


async def test_a_follower_that_cannot_use_its_files_leaves_the_isr_at_once_and_does_not_come_back(
    cluster: ReplicationCluster,
) -> None:
    one, two, _ = await cluster.start_with_topic(1, 2, 3, **{"replica.lag.time.max.ms": "60000"})
    await one.put(b"before")
    two.partition().take_offline("its disk gives errors")
    await until(lambda: isr_of(one) == [1, 3])
    end = one.feed.image.revision
    await one.put(b"after")
    await asyncio.sleep(300)
    assert isr_of(one) == [1, 3]
    assert one.feed.image.revision - end < 10, "the ISR does not go to and fro"


async def test_no_replica_out_of_sync_is_elected_for_one_that_cannot_use_its_files(cluster: ReplicationCluster) -> None:
    one, two = await cluster.start_with_topic(1, 2, **{"replica.lag.time.max.ms": "1000"})
    two.unplug()
    await until(lambda: isr_of(one) == [1])
    await one.put(b"only 1")
    one.partition().take_offline("its disk gives errors")
    await until(lambda: two.partition().leader == -1)
    two.plug_in()
    await asyncio.sleep(60)
    assert (two.partition().leader, isr_of(two)) == (-1, [1])
    await one.stop()
    await one.start()
    await cluster.role(2, 1)
    await cluster.same(1, 2)
    assert values(two) == [b"only 1"]


async def test_a_broker_that_registers_again_names_the_partitions_that_went_offline(
    cluster: ReplicationCluster,
) -> None:
    one, two = await cluster.start_with_topic(1, 2)
    one.partition().take_offline("its disk gives errors")
    await cluster.role(2, 2)
    epoch = one.registration.epoch
    await one.session.expire()
    await until(lambda: one.registration.is_valid() and one.registration.epoch > epoch)
    await until(lambda: two.feed.image.is_admitted(1))
    await asyncio.sleep(60)
    assert two.feed.image.is_offline(1, (two.partition().topic_id, 0))
    assert isr_of(two) == [2]


async def test_a_store_that_cannot_be_reached_delays_the_new_leader_only(cluster: ReplicationCluster) -> None:
    one, _ = await cluster.start_with_topic(1, 2, **{"broker.session.timeout.ms": "60000"})
    transact, fails = one.store.transact, 3

    async def failing(*args: object) -> int | None:
        nonlocal fails
        if fails:
            fails -= 1
            raise OutcomeUnknownError("no answer")
        return await transact(*args)  # type: ignore[arg-type]

    one.store.transact = failing  # type: ignore[method-assign,assignment]
    one.partition().take_offline("its disk gives errors")
    await cluster.role(2, 2)
    assert fails == 0
