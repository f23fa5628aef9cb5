"""The controller: there is one at a time, and leaders move when brokers start, die, leave or are paused."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from broker.cluster.brokers import SOON_S, ControllerBroker, ControllerCluster, settled, until
from broker.cluster.images import broker
from semel_broker.cluster import controller, elections, reassignments, records
from semel_broker.cluster.records import CONTROLLER, NO_LEADER, PartitionState
from semel_broker.cluster.store import (
    CHANGES_MAX,
    Change,
    Expect,
    OutcomeUnknownError,
    Put,
    RemovedKey,
    StoreError,
    StoreUnavailableError,
)


def in_office(*members: ControllerBroker) -> list[int]:
    return [member.node_id for member in members if member.controller.is_active]


async def test_another_broker_becomes_controller_when_the_controller_dies(cluster: ControllerCluster) -> None:
    one, two, three = await cluster.start(1, 2, 3)
    assert in_office(one, two, three) == [1]
    await one.kill()
    await until(lambda: len(in_office(two, three)) == 1)
    await until(lambda: two.image.controller == three.image.controller is not None)
    office = two.image.controller
    assert office is not None
    registration = two.image.registration(office.value.node_id)
    assert registration is not None
    assert office.value.broker_epoch == registration.revision


async def test_the_partitions_of_a_dead_broker_are_led_by_the_next_replica_in_sync(cluster: ControllerCluster) -> None:
    _, two, _ = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([2, 3, 1], [1, 2, 3], [3, 2])
    await two.kill()
    await settled(cluster, topic_id, PartitionState(3, 1, [3, 1]), 0)
    await settled(cluster, topic_id, PartitionState(1, 0, [1, 3]), 1)
    await settled(cluster, topic_id, PartitionState(3, 0, [3]), 2)


async def test_the_partitions_of_a_dead_controller_get_other_leaders(cluster: ControllerCluster) -> None:
    one, _, _ = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([1, 2, 3])
    await one.kill()
    await settled(cluster, topic_id, PartitionState(2, 1, [2, 3]))


async def test_a_partition_without_live_replicas_is_led_again_when_a_member_of_its_isr_is_back(
    cluster: ControllerCluster,
) -> None:
    _, two, three = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([2, 3])
    await two.kill()
    await settled(cluster, topic_id, PartitionState(3, 1, [3]))
    await three.kill()
    await settled(cluster, topic_id, PartitionState(NO_LEADER, 2, [3]))
    await cluster.start(2)
    assert await cluster.state(topic_id) == PartitionState(NO_LEADER, 2, [3])
    await cluster.start(3)
    await settled(cluster, topic_id, PartitionState(3, 3, [3]))


@pytest.mark.proves("rebooted-broker")
async def test_a_broker_that_restarts_before_its_session_ends_leads_nothing_and_is_not_in_sync(
    cluster: ControllerCluster,
) -> None:
    _, two, _ = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([2, 3, 1], [3, 2, 1])
    await two.kill(expire=False)
    again = await cluster.member(2).start()  # admitted, so what it was before is dealt with
    assert again.registration.is_valid()
    assert await cluster.state(topic_id, 0) == PartitionState(3, 1, [3, 1])
    assert await cluster.state(topic_id, 1) == PartitionState(3, 0, [3, 1])
    view = again.image.partition(topic_id, 0)
    assert view is not None
    assert view.state == PartitionState(3, 1, [3, 1]), "it knows so itself"


async def test_a_controller_that_restarts_does_not_wait_for_its_old_session_to_expire(
    cluster: ControllerCluster,
) -> None:
    one, *_ = await cluster.start(1, 2)
    before = one.registration.epoch
    await one.kill(expire=False)
    again = await cluster.member(1).start()
    assert again.registration.epoch > before
    assert again.registration.is_valid()


@pytest.mark.proves("last-replica-in-sync")
async def test_all_brokers_may_die_at_once_and_come_back_in_another_order(cluster: ControllerCluster) -> None:
    members = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([1, 2, 3])
    await asyncio.gather(*(member.kill() for member in members))
    (three,) = await cluster.start(3)
    await settled(cluster, topic_id, PartitionState(3, 2, [3]))
    assert three.registration.is_valid()
    await cluster.start(1, 2)
    assert await cluster.state(topic_id) == PartitionState(3, 2, [3])


async def test_a_clean_stop_moves_leaders_first(cluster: ControllerCluster) -> None:
    one, two, _ = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([1, 2, 3], [1])
    states: list[PartitionState] = []
    two.feed.listeners.append(lambda delta: states.extend(view.state for view in two.image.electable()))
    await one.stop()
    assert PartitionState(2, 1, [1, 2, 3]) in states, "while it was there still"
    await settled(cluster, topic_id, PartitionState(2, 1, [2, 3]))
    assert await cluster.state(topic_id, 1) is None
    assert [entry.key for entry in (await cluster.shared_store.hand.list(records.LEAVING)).entries] == []


async def test_a_clean_stop_without_a_controller_ends_at_its_timeout(local: ControllerCluster) -> None:
    one, two = await local.start(1, 2)
    await local.topic([2, 1])
    one.pause()
    async with asyncio.timeout(SOON_S):
        await two.registration.leave(timeout_ms=50)
    assert ("left_while_leading", {"partitions": 1, "timeout_ms": 50}) in two.log.lines


async def test_all_brokers_stop_at_once(cluster: ControllerCluster) -> None:
    members = await cluster.start(1, 2, 3)
    await cluster.topic([1, 2, 3], [2, 3, 1], [3, 1, 2])
    async with asyncio.timeout(SOON_S):
        await asyncio.gather(*(member.stop() for member in members))


# --- two controllers ---


@pytest.mark.proves("two-controllers")
async def test_of_several_candidates_at_once_one_is_elected(local: ControllerCluster) -> None:
    members = [local.member(node_id) for node_id in (1, 2, 3)]
    transact = local.shared_store.hand.transact
    outcomes: list[int | None] = []
    candidates = asyncio.Semaphore(0)
    all_there = asyncio.Event()

    async def meet(expects: list[Expect], changes: list[Change]) -> int | None:
        if changes[0].key != CONTROLLER:
            return await transact(expects, changes)
        candidates.release()
        await all_there.wait()
        outcomes.append(await transact(expects, changes))
        return outcomes[-1]

    local.shared_store.hand.transact = meet  # type: ignore[method-assign, assignment]
    starting = asyncio.gather(*(member.start() for member in members))
    for _ in members:
        await candidates.acquire()
    all_there.set()
    await starting
    assert [outcome is None for outcome in sorted(outcomes, key=str)] == [False, True, True]
    await until(lambda: len(in_office(*members)) == 1)


async def test_a_registration_that_was_replaced_meanwhile_is_not_admitted(local: ControllerCluster) -> None:
    one, _ = await local.start(1, 2)
    transact = one.store.store.transact
    outcomes: list[int | None] = []

    async def replace_first(expects: list[Expect], changes: list[Change]) -> int | None:
        is_admission = any(change.key == "admissions/3" for change in changes)
        if is_admission and not outcomes:
            await transact([], [Put(records.broker_key(3), msgspec.json.encode(broker(3)))])
        outcome = await transact(expects, changes)
        if is_admission:
            outcomes.append(outcome)
        return outcome

    one.store.store.transact = replace_first  # type: ignore[method-assign, assignment]
    (three,) = await local.start(3)
    one.store.store.transact = transact  # type: ignore[method-assign]
    assert outcomes[0] is None
    assert three.registration.is_valid()


@pytest.mark.proves("two-controllers")
async def test_the_store_refuses_the_writes_of_a_controller_that_was_paused_and_replaced(
    cluster: ControllerCluster,
) -> None:
    one, two, three = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([2, 3])  # so that the death of the paused one itself changes nothing here
    assert in_office(one) == [1]
    one.pause()
    # Three dies. The paused one has still seen that, and its decision is on the way into the store.
    await one.feed.close()  # what it knows from here on is what we say
    for listener in one.feed.listeners:
        listener(one.image.apply([RemovedKey(records.broker_key(3), 0)], one.image.revision))
    await asyncio.sleep(0)
    before = len(one.store.transactions)
    await cluster.shared_store.expire(one.session)
    await until(lambda: in_office(two, three) != [])
    office = await cluster.shared_store.hand.get(CONTROLLER)
    one.resume()
    await until(lambda: len(one.store.transactions) > before)
    _, changes, revision = one.store.transactions[before]
    assert isinstance(changes[0], Put)
    assert msgspec.json.decode(changes[0].value, type=PartitionState) == PartitionState(2, 0, [2])
    assert revision is None, "the store refused what the successor does not know of"
    assert await cluster.shared_store.hand.get(CONTROLLER) == office
    assert await cluster.state(topic_id) is None


async def test_a_controller_whose_session_is_lost_is_replaced_by_another_broker(
    cluster: ControllerCluster,
) -> None:
    one, two = await cluster.start(1, 2)
    epoch = one.registration.epoch
    await cluster.shared_store.expire(one.session)
    await until(lambda: "lost" in one.heard)
    await until(lambda: one.registration.is_valid() and one.registration.epoch > epoch)
    await until(lambda: len(in_office(one, two)) == 1)
    assert one.heard == ["admitted", "lost", "admitted"]


# --- stores that fail ---


@pytest.mark.parametrize("error", [OutcomeUnknownError, StoreUnavailableError, StoreError])
async def test_a_decision_that_the_store_did_not_answer_is_made_again(
    local: ControllerCluster, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    monkeypatch.setattr(controller, "RETRY_S", 0.001)
    monkeypatch.setattr(controller, "REFUSED_S", 0.001)
    one, two, _ = await local.start(1, 2, 3)
    topic_id = await local.topic([2, 3, 1])
    one.store.failing = [error("no answer"), error("none again")]
    await two.kill()
    await settled(local, topic_id, PartitionState(3, 1, [3, 1]))
    assert in_office(one) == [1]


async def test_a_controller_whose_election_was_not_answered_is_elected_once(
    local: ControllerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "RETRY_S", 0.001)
    one = local.member(1)
    await one.begin()
    one.store.failing = [OutcomeUnknownError("registered, but not told"), OutcomeUnknownError("elected, but not told")]
    await one.registration.register(one.record)
    assert in_office(one) == [1]
    written = [changes[0].key for _, changes, revision in one.store.transactions if revision is not None]
    assert written == ["brokers/1", "controller", "admissions/1"]


async def test_an_exception_in_a_decision_is_logged_and_the_controller_stays(
    local: ControllerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "FAILED_S", 0.001)
    one, two, _ = await local.start(1, 2, 3)
    topic_id = await local.topic([2, 3, 1])
    with monkeypatch.context() as patch:
        patch.setattr(elections, "settled", lambda view, standing: 1 // 0)
        await two.kill()
        await until(lambda: one.log.events().count("controller_failed") > 2)
    await settled(local, topic_id, PartitionState(3, 1, [3, 1]))


async def test_a_partition_that_changes_all_the_time_does_not_delay_the_others(local: ControllerCluster) -> None:
    one, two, _ = await local.start(1, 2, 3)
    topic_id = await local.topic(*[[2, 3, 1]] * 100)
    interfering = records.partition_key(topic_id, 7)
    transact, refused = one.store.store.transact, 0

    async def interfere(expects: list[Expect], changes: list[Change]) -> int | None:
        nonlocal refused
        if any(change.key == interfering for change in changes):
            refused += 1
            isr = [2, 3, 1] if refused % 2 else [2, 1, 3]
            await transact([], [Put(interfering, msgspec.json.encode(PartitionState(2, 0, isr)))])
        return await transact(expects, changes)

    one.store.store.transact = interfere  # type: ignore[method-assign, assignment]
    try:
        await two.kill()
        for index in (0, 50, 99):
            await settled(local, topic_id, PartitionState(3, 1, [3, 1]), index)
        assert refused > 1
    finally:
        one.store.store.transact = transact  # type: ignore[method-assign]
    await until(lambda: one.image.leader(topic_id, 7) == 3)


async def test_a_reassignment_that_the_store_refuses_to_end_delays_no_admission(
    local: ControllerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "REFUSED_S", 0.001)
    one, _ = await local.start(1, 2)
    topic_id = await local.topic([1, 2])
    transact = one.store.store.transact
    refused = 0

    async def refuse(expects: list[Expect], changes: list[Change]) -> int | None:
        nonlocal refused
        if any(change.key.startswith(records.REASSIGNMENTS) for change in changes):
            refused += 1
            raise StoreError("the request is too large")
        return await transact(expects, changes)

    topic = one.image.topic("t")
    assert topic is not None
    step, _ = reassignments.alter(one.image, topic, {0: [2]})
    assert step is not None
    one.store.store.transact = refuse  # type: ignore[method-assign, assignment]
    assert await transact(step.expects, step.changes) is not None
    await until(lambda: refused > 2)
    (three,) = await local.start(3)
    assert three.registration.is_valid()
    one.store.store.transact = transact  # type: ignore[method-assign]
    await settled(local, topic_id, PartitionState(2, 1, [2]))


# --- how much ---


async def test_a_thousand_leaders_fail_over_in_few_transactions(cluster: ControllerCluster) -> None:
    one, two, _ = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic(*[[2, 3, 1]] * 1000)
    before = len(one.store.transactions)
    await two.kill()
    await until(lambda: all(view.state.leader == 3 for view in one.image.electable()))
    assert await cluster.state(topic_id, 999) == PartitionState(3, 1, [3, 1])
    written = one.store.transactions[before:]
    assert len(written) == 1000 // (CHANGES_MAX - 2) + 1
    assert all(revision is not None for *_, revision in written)


async def test_partitions_without_changes_are_not_written(cluster: ControllerCluster) -> None:
    one, two, _ = await cluster.start(1, 2, 3)
    await cluster.topic([1, 3], [1], [3, 1])
    before = len(one.store.transactions)
    await two.kill()
    await cluster.start(2)

    def written() -> list[str]:
        return [change.key for _, changes, _ in one.store.transactions[before:] for change in changes]

    # Broker 2 may see that it is admitted before the controller hears that it wrote so.
    await until(lambda: bool(written()), "broker 2 was not admitted by this controller")
    assert written() == ["admissions/2"]
