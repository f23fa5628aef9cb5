"""Changes of the ISR by compare-and-swap: their conditions, and their outcome while the store does not answer."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from broker.cluster.brokers import until
from broker.replication.brokers import Replicant, ReplicationCluster
from semel_broker.cluster.records import PartitionState
from semel_broker.cluster.store import Expect, OutcomeUnknownError, Put, StoreError, StoreUnavailableError
from semel_broker.replication.isr import BATCH


def isr_changes(it: Replicant) -> list[tuple[list[str], bool]]:
    """For each change of ISRs, in order: the expected keys, and whether the expectation held."""
    found = []
    for expects, changes, revision in it.store.transactions:
        if changes and changes[0].key.startswith("partitions/") and not any(e.key == "controller" for e in expects):
            found.append(([expect.key for expect in expects], revision is not None))
    return found


async def out_and_about(cluster: ReplicationCluster, partitions: int = 1) -> tuple[Replicant, Replicant]:
    """Two brokers. Broker 2 has been away and is back, but may not fetch yet. Only broker 1 is in sync."""
    one, two = await cluster.start(1, 2)
    await cluster.topic(*[[1, 2]] * partitions)
    await asyncio.gather(*(one.put(b"x", index=index) for index in range(partitions)))
    await two.die()
    for index in range(partitions):
        await cluster.isr(1, by=1, index=index)
    starting = two.start()
    await starting
    return one, two


@pytest.mark.proves("restarted-broker-in-sync")
async def test_an_isr_change_checks_the_partition_and_both_registrations(cluster: ReplicationCluster) -> None:
    one, two = await out_and_about(cluster)
    await cluster.isr(1, 2, by=1)
    view = one.topics.view("t", 0)
    assert isr_changes(one)[-1] == (["brokers/1", "brokers/2", view.key], True)
    expects = one.store.transactions[-1][0]
    assert Expect("brokers/2", two.registration.epoch) in expects
    assert Expect("brokers/1", one.registration.epoch) in expects


async def test_many_partitions_change_together(cluster: ReplicationCluster) -> None:
    many = BATCH + 20
    one, _ = await out_and_about(cluster, many)
    before = len(isr_changes(one))
    for index in range(many):
        await cluster.isr(1, 2, by=1, index=index)
    assert len(isr_changes(one)) - before < many / 4


@pytest.mark.proves("unanswered-isr-change")
async def test_an_unknown_outcome_is_resolved_by_sending_again(cluster: ReplicationCluster) -> None:
    """The change may have been applied, or may be applied later.

    Until this is known the joiner counts for the high watermark.
    """
    one, two = await out_and_about(cluster)
    await cluster.isr(1, 2, by=1)
    two.disk.hold_syncs()
    _, end = one.append(b"for the lag")
    one.store.failing = [OutcomeUnknownError("no answer"), OutcomeUnknownError("none again")]
    await cluster.isr(1, by=1)
    await until(lambda: one.partition().high_watermark == end)
    await until(lambda: one.replicator.isr._under_way == {})
    assert [was for _, was in isr_changes(one)[-3:]] == [True, False, False], "the first one had been applied"
    one.store.failing = [OutcomeUnknownError("no answer")]
    two.disk.release_syncs()
    await cluster.isr(1, 2, by=1)
    await one.put(b"both")
    await cluster.same(1, 2)
    assert one.partition().replicas is not None
    assert not one.partition().replicas.is_proposing


async def test_an_unavailable_store_only_delays_isr_changes(cluster: ReplicationCluster) -> None:
    one, two = await out_and_about(cluster)
    await cluster.isr(1, 2, by=1)
    transact, failures = one.store.transact, []

    async def unavailable(*_: object) -> int | None:
        failures.append(1)
        raise StoreUnavailableError("no etcd")

    one.store.transact = unavailable  # type: ignore[method-assign]
    two.disk.hold_syncs()
    one.append(b"for the lag")
    await until(lambda: len(failures) >= 3)
    assert cluster.state(by=1).isr == [1, 2]
    assert one.partition().high_watermark < one.partition().end_offset, "no replica was removed"
    one.store.transact = transact  # type: ignore[method-assign]
    await cluster.isr(1, by=1)
    two.disk.release_syncs()
    await cluster.isr(1, 2, by=1)


async def test_keeper_outlives_a_store_that_refuses(cluster: ReplicationCluster) -> None:
    one, two = await out_and_about(cluster)
    await cluster.isr(1, 2, by=1)
    one.store.failing = [StoreError("too many operations"), AssertionError("a bug")]
    two.disk.hold_syncs()
    one.append(b"for the lag")
    await until(lambda: one.log.events().count("isr_keeper_failed") == 1)
    await cluster.isr(1, by=1)
    two.disk.release_syncs()
    await cluster.isr(1, 2, by=1)
    await until(lambda: not one.partition().replicas.is_proposing)  # type: ignore[union-attr]


@pytest.mark.proves("in-sync-too-early")
async def test_a_joining_replica_counts_for_the_high_watermark_before_the_store_accepts(
    cluster: ReplicationCluster,
) -> None:
    """The store may accept at any time after the request, and then the joiner can be elected (KIP-497)."""
    one, two = await out_and_about(cluster)
    await cluster.isr(1, 2, by=1)
    two.disk.hold_syncs()
    one.append(b"for the lag")
    await cluster.isr(1, by=1)
    one.store.gate.clear()  # the answer of the store, and all that comes after, keeps waiting
    two.disk.release_syncs()
    replicas = one.partition().replicas
    assert replicas is not None
    await until(lambda: replicas.is_proposing)
    two.disk.hold_syncs()
    _, end = one.append(b"the leader has it, the joiner does not")
    await until(lambda: one.partition().durable_end == end)
    await asyncio.sleep(0.05)
    assert one.partition().high_watermark < end
    assert cluster.state(by=1).isr == [1]
    one.store.gate.set()
    two.disk.release_syncs()
    await cluster.isr(1, 2, by=1)
    await until(lambda: one.partition().high_watermark == end)


async def test_one_change_of_a_partition_at_a_time(cluster: ReplicationCluster) -> None:
    one, two = await out_and_about(cluster)
    await cluster.isr(1, 2, by=1)
    two.disk.hold_syncs()
    one.append(b"for the lag")
    await cluster.isr(1, by=1)
    before = len(isr_changes(one))
    one.store.gate.clear()
    two.disk.release_syncs()
    await until(lambda: one.partition() in one.replicator.isr._under_way)
    for _ in range(10):
        one.replicator.isr.follower_fetched(one.partition(), 2)
        one.replicator.isr.check([one.partition()])
    assert one.replicator.isr._due == {}
    one.store.gate.set()
    await cluster.isr(1, 2, by=1)
    assert len(isr_changes(one)) == before + 1


async def test_a_change_that_lost_a_race_is_decided_again(cluster: ReplicationCluster) -> None:
    """Only the partitions that another broker has changed are left out, also in a batch."""
    one, two = await out_and_about(cluster, 3)
    for index in range(3):
        await cluster.isr(1, 2, by=1, index=index)
    one.store.watch_gate.clear()
    view = one.topics.view("t", 1)
    state = PartitionState(1, view.state.leader_epoch, [2, 1])
    await cluster.shared_store.hand.transact([], [Put(view.key, msgspec.json.encode(state))])
    two.disk.hold_syncs()
    for index in range(3):
        one.append(b"for the lag", index=index)
    await until(lambda: False in [was for _, was in isr_changes(one)])
    one.store.watch_gate.set()
    for index in range(3):
        await cluster.isr(1, by=1, index=index)
    two.disk.release_syncs()
    for index in range(3):
        await cluster.isr(1, 2, by=1, index=index)


@pytest.mark.proves("isr-change-without-a-session")
async def test_leader_whose_session_is_over_changes_nothing(cluster: ReplicationCluster) -> None:
    """Reliability, "a paused leader waking after its lease": the store refuses its change."""
    one, two = await out_and_about(cluster)
    await cluster.isr(1, 2, by=1)
    one.store.watch_gate.clear()
    await one.session.expire()
    two.disk.hold_syncs()
    await until(lambda: two.registration.is_valid() and 1 not in [r.node_id for r in two.feed.image.live()])
    one.partition().replicas._followers[2].caught_up_ms = -1_000_000  # type: ignore[union-attr]
    before = len(isr_changes(one))
    one.replicator.isr.check([one.partition()])
    await until(lambda: len(isr_changes(one)) > before)
    assert not any(was for _, was in isr_changes(one)[before:])
    two.disk.release_syncs()
    one.store.watch_gate.set()


async def test_a_replica_that_stopped_fetching_does_not_rejoin_the_isr(cluster: ReplicationCluster) -> None:
    """With no other replica in sync, the high watermark stays where the replica stopped.

    It had all records up to there, but this is no longer current.
    """
    one, two = await cluster.start_with_topic(1, 2)
    await one.put(b"both")
    two.unplug()
    await cluster.isr(1, by=1)
    before = len(isr_changes(one))
    await asyncio.sleep(10 * one.replicator.isr.interval_s)  # as many looks
    assert len(isr_changes(one)) == before
    assert cluster.state(by=1).isr == [1]
    two.plug_in()
    await cluster.isr(1, 2, by=1)
