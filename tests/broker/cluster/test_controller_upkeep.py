"""The periodic work of the controller: preferred leaders, files of deleted topics, and completed reassignments."""

from __future__ import annotations

import msgspec
from broker.cluster.brokers import ControllerCluster, SharedLocalStore, settled, until
from semel_broker.cluster import reassignments, records
from semel_broker.cluster.records import PartitionState
from semel_broker.cluster.store import Delete, Put

# --- back to the preferred leaders ---


async def test_preferred_leaders_are_elected_after_the_interval() -> None:
    cluster = ControllerCluster(SharedLocalStore(), leader_imbalance_check_interval_seconds=0.02)
    _, two, _ = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([2, 3, 1])
    await two.kill()
    await settled(cluster, topic_id, PartitionState(3, 1, [3, 1]))
    await cluster.start(2)
    assert await cluster.state(topic_id) == PartitionState(3, 1, [3, 1]), "it has to catch up first"
    key = records.partition_key(topic_id, 0)
    await cluster.shared_store.hand.transact([], [Put(key, msgspec.json.encode(PartitionState(3, 1, [3, 1, 2])))])
    await settled(cluster, topic_id, PartitionState(2, 2, [3, 1, 2]))
    await cluster.close()


async def test_leaders_stay_if_rebalancing_is_switched_off() -> None:
    cluster = ControllerCluster(
        SharedLocalStore(), leader_imbalance_check_interval_seconds=0.001, auto_leader_rebalance_enable=False
    )
    one, *_ = await cluster.start(1, 2)
    topic_id = await cluster.topic([2, 1])
    moved = PartitionState(1, 1, [1, 2])
    key = records.partition_key(topic_id, 0)
    await cluster.shared_store.hand.transact([], [Put(key, msgspec.json.encode(moved))])
    for _ in range(3):
        due = one.controller._rebalance_at
        await until(lambda: one.controller._rebalance_at > due)  # noqa: B023
    assert await cluster.state(topic_id) == moved
    await cluster.close()


# --- topics that go ---


async def test_states_of_deleted_topics_are_removed_also_those_written_late(cluster: ControllerCluster) -> None:
    _, two, _ = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([2, 3], [3, 2])
    await two.kill()
    await settled(cluster, topic_id, PartitionState(3, 1, [3]), 0)
    hand = cluster.shared_store.hand
    await hand.transact([], [Delete(records.topic_key("t"))])
    await settled(cluster, topic_id, None, 0)
    await settled(cluster, topic_id, None, 1)
    late = records.partition_key(topic_id, 1)
    await hand.transact([], [Put(late, msgspec.json.encode(PartitionState(3, 5, [3])))])
    await settled(cluster, topic_id, None, 1)


# --- reassignments ---


async def test_a_reassignment_ends_when_all_of_the_target_are_in_sync(cluster: ControllerCluster) -> None:
    one, *_ = await cluster.start(1, 2, 3, 4)
    topic_id = await cluster.topic([1, 2], [2, 1])
    topic = one.image.topic("t")
    assert topic is not None
    step, _ = reassignments.alter(one.image, topic, {0: [3, 4], 1: [2, 4]})
    assert step is not None
    hand = cluster.shared_store.hand
    assert await hand.transact(step.expects, step.changes) is not None

    def replicas(index: int) -> list[int]:
        view = one.image.partition(topic_id, index)
        assert view is not None
        return list(view.replicas)

    await until(lambda: replicas(0) == [3, 4, 1, 2] and replicas(1) == [2, 4, 1])
    state = records.partition_key(topic_id, 0)
    await hand.transact([], [Put(state, msgspec.json.encode(PartitionState(1, 0, [1, 2, 3])))])
    await hand.transact(
        [], [Put(records.partition_key(topic_id, 1), msgspec.json.encode(PartitionState(2, 0, [4, 2])))]
    )
    await until(lambda: replicas(1) == [2, 4])
    assert await cluster.state(topic_id, 1) == PartitionState(2, 0, [4, 2])
    assert replicas(0) == [3, 4, 1, 2], "one of the two is not in sync yet"
    await hand.transact([], [Put(state, msgspec.json.encode(PartitionState(1, 0, [1, 2, 3, 4])))])
    await until(lambda: replicas(0) == [3, 4])
    assert await cluster.state(topic_id, 0) == PartitionState(3, 1, [3, 4])
    assert (await hand.list(records.REASSIGNMENTS)).entries == ()


async def test_many_reassignments_of_one_topic_all_end(local: ControllerCluster) -> None:
    one, *_ = await local.start(1, 2, 3)
    topic_id = await local.topic(*[[1, 2]] * 80)
    hand = local.shared_store.hand
    for first in range(0, 80, 20):
        topic = one.image.topic("t")
        assert topic is not None
        step, _ = reassignments.alter(one.image, topic, {index: [2, 3] for index in range(first, first + 20)})
        assert step is not None
        revision = await hand.transact(step.expects, step.changes)
        assert revision is not None
        await one.feed.reached(revision)
    assert len(one.image.reassignments()) == 80
    done = msgspec.json.encode(PartitionState(1, 0, [1, 2, 3]))
    await hand.transact([], [Put(records.partition_key(topic_id, index), done) for index in range(80)])
    await until(lambda: one.image.reassignments() == [])
    assert all(view.replicas == [2, 3] and view.state == PartitionState(2, 1, [2, 3]) for view in one.image.electable())
