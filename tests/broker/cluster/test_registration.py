"""A broker's session: it counts once admitted, it ends at its deadline, and a new one follows."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from random import Random
from time import monotonic

import msgspec
import pytest
from broker.cluster.brokers import (
    SOON_S,
    ControllerCluster,
    MortalSession,
    SettableClock,
    SharedEtcd,
    SharedLocalStore,
    until,
)
from semel_broker.cluster import records, registration
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.local_store import LocalStore
from semel_broker.cluster.records import BROKERS, BrokerRecord
from semel_broker.cluster.registration import NodeIdTakenError, Registration
from semel_broker.cluster.store import Delete, OutcomeUnknownError, StoreError, StoreUnavailableError
from semel_broker.config.loading import ConfigError
from semel_broker.world import SilentLogger, World
from semel_storage.disk.memory_disk import MemoryDisk
from support.etcd import EtcdProcess


@pytest.fixture
async def local(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ControllerCluster]:
    monkeypatch.setattr(registration, "RETRY_S", 0.001)
    monkeypatch.setattr(registration, "WAIT_FOR_OTHER_S", 0.001)
    cluster = ControllerCluster(SharedLocalStore())
    yield cluster
    await cluster.close()


async def there(cluster: ControllerCluster, node_id: int) -> BrokerRecord | None:
    entry = await cluster.shared_store.hand.get(records.broker_key(node_id))
    return None if entry is None else msgspec.json.decode(entry.value, type=BrokerRecord)


def clock_of(cluster: ControllerCluster) -> SettableClock:
    assert isinstance(cluster.shared_store.clock, SettableClock)
    return cluster.shared_store.clock


# --- coming ---


async def test_a_broker_may_lead_once_it_is_admitted_and_its_image_shows_that(cluster: ControllerCluster) -> None:
    one = cluster.member(1)
    await one.begin()
    assert not one.registration.is_valid()
    assert one.registration.deadline == -math.inf
    await one.registration.register(one.record)
    assert one.registration.is_valid()
    assert one.registration.deadline > cluster.shared_store.clock()
    assert one.heard == ["admitted"]
    assert one.image.is_admitted(1)
    kept = one.image.registration(1)
    assert kept is not None
    assert one.registration.epoch == kept.revision
    admission = await cluster.shared_store.hand.get("admissions/1")
    assert admission is not None
    assert one.image.revision >= admission.revision


async def test_each_start_has_its_own_incarnation_and_broker_epoch(cluster: ControllerCluster) -> None:
    (one,) = await cluster.start(1)
    first, epoch = await there(cluster, 1), one.registration.epoch
    await one.stop()
    assert await there(cluster, 1) is None
    (again,) = await cluster.start(1)
    second = await there(cluster, 1)
    assert first is not None
    assert second is not None
    assert first.incarnation != second.incarnation
    assert msgspec.structs.replace(first, incarnation="") == msgspec.structs.replace(second, incarnation="")
    assert again.registration.epoch > epoch


async def test_a_broker_waits_for_a_controller_and_logs_that_it_waits(
    local: ControllerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "LOG_INTERVAL_S", 0.001)
    one, two = local.member(1), local.member(2)
    await one.begin()
    await one.controller.close()
    joining = asyncio.ensure_future(one.registration.register(one.record))
    await until(lambda: "waiting_for_admission" in one.log.events())
    assert not one.registration.is_valid()
    assert one.registration.lease is not None
    await two.start()  # and is elected
    await joining
    assert one.registration.is_valid()


async def test_a_broker_waits_for_a_store_that_cannot_be_reached(local: ControllerCluster) -> None:
    one = local.member(1)
    await one.begin()
    one.store.failing = [StoreUnavailableError("no store")]
    await one.registration.register(one.record)
    assert "store_unavailable" in one.log.events()
    assert one.registration.is_valid()


async def test_a_registration_that_was_not_answered_is_found_and_not_repeated(local: ControllerCluster) -> None:
    one = local.member(1)
    await one.begin()
    one.store.failing = [OutcomeUnknownError("who knows")]
    await one.registration.register(one.record)
    entry = await local.shared_store.hand.get(records.broker_key(1))
    assert entry is not None
    assert entry.revision == one.registration.epoch
    assert sum(changes[0].key == "brokers/1" for _, changes, _ in one.store.transactions) == 1


async def test_a_store_that_refuses_keeps_a_broker_from_starting_but_not_from_coming_back(
    local: ControllerCluster,
) -> None:
    one = local.member(1)
    await one.begin()
    one.store.failing = [StoreError("the store is full")]
    with pytest.raises(StoreError, match="is full"):
        await one.registration.register(one.record)
    assert (await local.shared_store.hand.list("")).entries == ()
    two, three = await local.start(2, 3)
    three.store.failing = [StoreError("the store is full"), StoreError("the store is full")]
    await local.shared_store.expire(three.session)
    await until(lambda: three.heard == ["admitted", "lost", "admitted"])
    assert three.log.events().count("registration_failed") == 2
    assert two.registration.is_valid()


# --- ids that are taken ---


async def test_another_live_broker_with_the_same_id_is_named_and_this_one_does_not_start(
    local: ControllerCluster,
) -> None:
    await local.start(1)
    other = local.member(1, "another directory")
    joining = asyncio.ensure_future(other.start())
    await until(lambda: "node_id_taken" in other.log.events())
    clock_of(local).now += 100
    with pytest.raises(NodeIdTakenError, match=r"127\.0\.0\.1:9001 \(directory directory 1\)"):
        await joining
    assert issubclass(NodeIdTakenError, ConfigError)
    assert len((await local.shared_store.hand.list(BROKERS)).entries) == 1
    assert not other.registration.is_valid()


async def test_a_dead_broker_with_the_same_id_and_another_directory_is_waited_for(local: ControllerCluster) -> None:
    (one,) = await local.start(1)
    await one.kill(expire=False)
    other = local.member(1, "another directory")
    joining = asyncio.ensure_future(other.start())
    await until(lambda: "node_id_taken" in other.log.events())
    assert isinstance(one.last_session, MortalSession)
    await one.last_session.expire()
    await joining
    assert other.registration.is_valid()


async def test_a_broker_whose_id_was_taken_stays_fenced_and_waits(local: ControllerCluster) -> None:
    one, _ = await local.start(1, 2)
    one.pause()
    await local.shared_store.expire(one.session)
    thief = await local.member(1, "another directory").start()
    one.resume()
    await until(lambda: "node_id_taken" in one.log.events())
    clock_of(local).now += 100
    await until(lambda: one.log.events().count("node_id_taken") > 1)
    assert not one.registration.is_valid()
    await thief.stop()
    await until(one.registration.is_valid)


# --- losing the session ---


@pytest.mark.proves("paused-leader")
async def test_a_registration_is_invalid_after_its_deadline_before_any_timer_has_run(local: ControllerCluster) -> None:
    one, _ = await local.start(1, 2)
    session = one.session
    assert isinstance(session, MortalSession)
    session.deadline = clock_of(local).now + 6
    clock_of(local).now += 5.999
    assert one.registration.is_valid()
    clock_of(local).now += 0.001  # it was paused: its first act is not to run timers
    assert not one.registration.is_valid()
    assert one.registration.lease is None
    assert one.heard == ["admitted"]


async def test_the_deadline_calls_all_listeners_and_the_broker_registers_under_a_new_epoch(
    cluster: ControllerCluster,
) -> None:
    one, two = await cluster.start(1, 2)
    before, epoch = await there(cluster, 1), one.registration.epoch
    heard_of: list[tuple[bool, int]] = []
    one.registration.on_lost.append(lambda: heard_of.append((one.registration.is_valid(), one.registration.epoch)))
    await cluster.shared_store.expire(one.session)
    await until(lambda: one.heard == ["admitted", "lost", "admitted"])
    after = await there(cluster, 1)
    assert heard_of == [(False, 0)]
    assert one.registration.epoch > epoch
    assert one.registration.is_valid()
    assert before is not None
    assert after is not None
    assert before.incarnation != after.incarnation
    await until(lambda: two.image.is_admitted(1))


async def test_a_timer_ends_the_session_at_its_deadline_without_the_store() -> None:
    """In real time: a local store grants a short session and never reports its end."""
    loop = asyncio.get_running_loop()
    disk = MemoryDisk()
    disk.mkdir("data")
    store = LocalStore.open(disk, "data/store")
    feed = await Feed.open(store, SilentLogger())
    world = World(now_ms=lambda: 0, monotonic=loop.time, rng=Random(1), disk=disk)
    cluster = ControllerCluster(SharedLocalStore())
    mute = Registration(world, cluster.settings, store, feed)
    lost = asyncio.Event()
    mute.on_lost.append(lost.set)
    session = MortalSession(await store.open_session(0), loop.time)
    session.deadline = loop.time() + 0.05
    mute.epoch, mute._session, mute._admitted = 1, session, session
    assert mute.is_valid()
    began = loop.time()
    async with asyncio.timeout(SOON_S):
        await mute._until_ended(session)
    assert loop.time() - began > 0.04
    assert not mute.is_valid()
    await feed.close()
    await store.close()


async def test_a_registration_that_the_image_no_longer_shows_ends_although_its_session_lives(
    local: ControllerCluster,
) -> None:
    one, _ = await local.start(1, 2)
    epoch = one.registration.epoch
    await local.shared_store.hand.transact([], [Delete(records.broker_key(1))])
    await until(lambda: one.heard == ["admitted", "lost", "admitted"])
    assert one.registration.epoch > epoch


@pytest.mark.proves("paused-leader")
async def test_an_old_image_does_not_make_a_new_session_valid(local: ControllerCluster) -> None:
    """A leader was paused past its deadline and opens a new session.

    Its image is old and still shows it as admitted and as leader. It must not lead on the strength of that image.
    """
    one, two = await local.start(1, 2)
    topic_id, epoch = await local.topic([1, 2]), one.registration.epoch
    one.store.watch_gate.clear()
    session = one.session
    assert isinstance(session, MortalSession)
    session.deadline = clock_of(local).now
    session.hears()
    await until(lambda: one.registration.epoch > epoch)
    await until(lambda: two.image.leader(topic_id, 0) == 2 and two.image.is_admitted(1))
    assert one.image.is_admitted(1)
    assert one.image.leader(topic_id, 0) == 1
    assert one.registration.lease is not None
    assert not one.registration.is_valid()
    one.store.watch_gate.set()
    await until(one.registration.is_valid)
    assert one.image.leader(topic_id, 0) == 2


async def test_a_listener_that_raises_does_not_keep_the_others_from_being_called(local: ControllerCluster) -> None:
    (one,) = await local.start(1)
    one.registration.on_lost.insert(0, lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    await local.shared_store.expire(one.session)
    await until(lambda: one.heard == ["admitted", "lost", "admitted"])
    assert "registration_listener_failed" in one.log.events()


# --- going ---


async def test_a_clean_stop_leaves_only_the_admission_in_the_store(cluster: ControllerCluster) -> None:
    (one,) = await cluster.start(1)
    await one.stop()
    assert [entry.key for entry in (await cluster.shared_store.hand.list("")).entries] == ["admissions/1"]
    assert not one.registration.is_valid()
    assert one.heard == ["admitted"], "no broker has lost its session"


async def test_a_broker_that_stops_while_it_registers_leaves_nothing(local: ControllerCluster) -> None:
    one = local.member(1)
    await one.begin()
    await one.controller.close()
    joining = asyncio.ensure_future(one.registration.register(one.record))
    await until(lambda: one.registration.lease is not None and one.registration.epoch > 0)
    joining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await joining
    assert (await local.shared_store.hand.list("")).entries == ()


async def test_the_first_broker_starts_with_three_writes_and_stops_with_one(local: ControllerCluster) -> None:
    (one,) = await local.start(1)
    assert [[change.key for change in changes] for _, changes, _ in one.store.transactions] == [
        ["brokers/1"],
        ["controller"],
        ["admissions/1"],
    ]
    revision = (await local.shared_store.hand.list("")).revision
    await one.stop()
    assert (await local.shared_store.hand.list("")).revision == revision + 1


# --- over real time ---


@pytest.mark.proves("paused-leader")
async def test_a_session_ends_at_its_deadline_if_etcd_does_not_answer(etcd_process: EtcdProcess) -> None:
    cluster = ControllerCluster(SharedEtcd(etcd_process), broker_session_timeout_ms=2_000)
    one, two = await cluster.start(1, 2)
    epoch = one.registration.epoch
    lost_at: list[float] = []
    one.registration.on_lost.append(lambda: lost_at.append(monotonic()))
    etcd_process.pause()
    try:
        deadline = one.registration.deadline
        await until(lambda: bool(lost_at))
        assert deadline <= lost_at[0]
        assert not one.registration.is_valid()
        assert one.registration.deadline == -math.inf
    finally:
        etcd_process.resume()
    await until(lambda: one.registration.is_valid() and two.registration.is_valid())
    assert one.registration.epoch > epoch
    await cluster.close()


@pytest.mark.proves("leader-before-the-lease-ends")
async def test_a_crashed_broker_is_replaced_when_its_session_has_expired(
    etcd_process: EtcdProcess,
) -> None:
    cluster = ControllerCluster(SharedEtcd(etcd_process), broker_session_timeout_ms=2_000)
    one, two, _ = await cluster.start(1, 2, 3)
    topic_id = await cluster.topic([1, 2, 3])
    deadline = one.registration.deadline
    await one.kill(expire=False)
    await until(lambda: two.image.leader(topic_id, 0) == 2)
    assert monotonic() > deadline, "no election before the deadline of the dead one"
    await cluster.close()
