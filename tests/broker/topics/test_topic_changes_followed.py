"""A broker follows topics that other brokers create and delete, also many changes at once."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
from broker.crashable_broker import CrashableBroker, refused, write
from msgspec import json
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta
from semel_broker.cluster.local_store import LocalStore
from semel_broker.cluster.records import TopicRecord, topic_key
from semel_broker.cluster.store import Change, Delete, Expect, Put, RemovedKey, StoreEntry
from semel_broker.cluster.topic_plan import NewTopic, text_of_id
from semel_broker.partitions.partition import Partition
from semel_broker.topics.topics import Topics
from semel_protocol.errors import ErrorCode

pytestmark = pytest.mark.proves("short-lived-topic")


@pytest.fixture
async def machine() -> CrashableBroker:
    machine = CrashableBroker(num_partitions="2")
    await machine.start()
    return machine


def learn(topics: Topics, *steps: tuple[str, TopicRecord | None]) -> None:
    """Apply all changes at once, as after an outage of etcd. Each topic passes through its states in order."""
    image = topics.feed.image
    first = image.revision + 1
    changes = [
        RemovedKey(topic_key(name), revision)
        if record is None
        else StoreEntry(topic_key(name), json.encode(record), revision)
        for revision, (name, record) in enumerate(steps, first)
    ]
    topics.feed._notify(image.apply(changes, first + len(changes) - 1))


async def removals(topics: Topics, name: str) -> None:
    """Return once no directory of that name is being removed any more."""
    async with asyncio.timeout(10):
        while topic_key(name) in topics._removals:
            await asyncio.sleep(0)


def drawn(name: str, seed: int, *replicas: int) -> TopicRecord:
    """A topic on brokers 0 and 1, or on others."""
    return TopicRecord(name, text_of_id(Random(seed).randbytes(16)), [list(replicas or (0, 1))], {})


class SlowPartitions:
    """Partitions that close slowly."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.let_go = asyncio.Event()
        close = Partition.close

        async def slowly(partition: Partition) -> None:
            await self.let_go.wait()
            await close(partition)

        monkeypatch.setattr(Partition, "close", slowly)


async def test_a_topic_created_and_deleted_between_two_updates_hides_no_other_change(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="known"))
    (known,) = machine.topics.feed.image.topics.values()
    brief, briefer, last, other = drawn("t", 1), drawn("t", 2), drawn("t", 3), drawn("other", 4)
    steps = [("t", brief), ("t", None), ("t", briefer), ("t", None), ("t", last), ("other", other), ("known", None)]
    learn(machine.topics, *steps)
    assert machine.topics.names() == ["other", "t"]
    assert machine.topics.required("t").record == last
    assert all(machine.topics.get_by_id(gone.id_bytes) is None for gone in (brief, briefer, known.value))
    await removals(machine.topics, "t")
    assert [partition.topic for partition in machine.topics.here()] == ["other", "t"], "a follower has to fetch"
    assert machine.log.of("cluster_listener_failed") == []
    await machine.stop()


@pytest.mark.proves("deletion-not-noted")
async def test_the_removal_of_a_topic_that_was_never_seen_is_noted_in_the_store(machine: CrashableBroker) -> None:
    """The store keeps only the fact that the files of the topic must be removed."""
    unseen = drawn("unseen", 1)
    note = f"deletions/{unseen.topic_id}/0"
    await machine.store.transact([], [Put(note, json.encode(unseen))])
    async with asyncio.timeout(10):
        while await machine.store.get(note) is not None:
            await asyncio.sleep(0)
    await machine.stop()


async def test_a_topic_moved_and_deleted_between_two_updates_leaves_no_files(machine: CrashableBroker) -> None:
    learn(machine.topics, ("t", drawn("t", 1, 0, 1)))
    machine.topics.partition("t", 0).open()
    learn(machine.topics, ("t", drawn("t", 1, 1, 2)), ("t", None))
    await removals(machine.topics, "t")
    assert (machine.topics.here(), machine.logs.partitions(), machine.logs.logs) == ([], [], {})
    await machine.stop()


async def test_a_name_deleted_again_while_its_first_files_are_being_removed_is_free_afterwards(
    machine: CrashableBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"old")
    held = SlowPartitions(monkeypatch)
    brief, last = drawn("t", 1), drawn("t", 2)
    learn(machine.topics, ("t", None))
    learn(machine.topics, ("t", brief))
    learn(machine.topics, ("t", None))
    learn(machine.topics, ("t", last))
    async with asyncio.timeout(10):
        while len(machine.topics._removals[topic_key("t")]) > 1:  # the second one has nothing to wait for
            await asyncio.sleep(0)
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "being made anew"):
        machine.topics.partition("t", 0)
    held.let_go.set()
    await removals(machine.topics, "t")
    assert [partition.topic_id for partition in machine.topics.here()] == [last.topic_id]
    assert machine.logs.partitions() == []
    await machine.stop()


async def test_a_topic_with_a_colliding_name_is_opened_once_the_removed_one_is_gone(
    machine: CrashableBroker,
) -> None:
    await machine.topics.create(NewTopic(name="a.b"))
    learn(machine.topics, ("a.b", None), ("a_b", drawn("a_b", 1)))
    await removals(machine.topics, "a_b")
    assert [partition.topic for partition in machine.topics.here()] == ["a_b"]
    await machine.stop()


@pytest.mark.proves("replica-retired-late")
@pytest.mark.parametrize("then", ["nothing", "here again", "gone", "moved on", "gone and made anew"])
async def test_a_replica_moved_to_other_brokers_is_retired_at_once(
    machine: CrashableBroker, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    here, away = drawn("t", 1, 0, 1), drawn("t", 1, 1, 2)
    learn(machine.topics, ("t", here))
    machine.topics.partition("t", 0).open()
    held = SlowPartitions(monkeypatch)
    learn(machine.topics, ("t", away))
    assert machine.topics.here() == []
    last: TopicRecord | None = away
    if then == "here again":
        last = here
        learn(machine.topics, ("t", here))
    elif then == "moved on":
        last = drawn("t", 1, 2, 3)
        learn(machine.topics, ("t", last))
    elif then == "gone":
        last = None
        learn(machine.topics, ("t", None))
    elif then == "gone and made anew":
        last = drawn("t", 2, 0, 1)
        learn(machine.topics, ("t", None), ("t", last))
    assert machine.topics.here() == [], "its directory is not free yet"
    held.let_go.set()
    await removals(machine.topics, "t")
    assert machine.logs.partitions() == [], "what had the directory is gone, what has it now is empty"
    comes = last is not None and 0 in last.replicas[0]
    assert [partition.topic_id for partition in machine.topics.here()] == ([last.topic_id] if last and comes else [])
    if comes:
        machine.topics.partition("t", 0).open()
        assert machine.topics.partition("t", 0).end_offset == 0
    assert machine.log.of("cluster_listener_failed") == []
    await machine.stop()


@pytest.mark.proves("changes-during-a-start")
async def test_changes_during_the_start_of_a_broker_are_applied(
    machine: CrashableBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker completes an earlier deletion and reports it to the store, which takes time."""
    await machine.topics.create(NewTopic(name="goes"))
    unfinished, comes = drawn("unfinished", 1), drawn("comes", 2)
    await machine.store.transact([], [Put(f"deletions/{unfinished.topic_id}/0", json.encode(unfinished))])
    transact, tell, told = LocalStore.transact, Feed._notify, asyncio.Event()
    seen: list[int | None] = []

    def telling(feed: Feed, delta: ImageDelta) -> None:
        tell(feed, delta)
        told.set()

    async def meanwhile(store: LocalStore, expects: Sequence[Expect], changes: Sequence[Change]) -> int | None:
        if not seen:
            change = Put(topic_key("comes"), json.encode(comes)), Delete(topic_key("goes"))
            seen.append(await transact(store, [], change))
            await told.wait()
        return await transact(store, expects, changes)

    machine.disk.crash()
    monkeypatch.setattr(LocalStore, "transact", meanwhile)
    monkeypatch.setattr(Feed, "_notify", telling)
    topics = await machine.start()
    assert seen[0] is not None
    await topics.feed.reached(seen[0])
    assert topics.names() == ["comes"]
    assert [partition.topic for partition in topics.here()] == ["comes"]
    assert (await machine.store.get(f"deletions/{unfinished.topic_id}/0")) is None
    await machine.stop()


@pytest.mark.proves("records-of-a-deleted-topic")
async def test_records_of_a_deleted_topic_do_not_come_back_in_its_successor_after_a_power_cut(
    machine: CrashableBroker,
) -> None:
    """Other brokers delete the topic and create it again while this broker is away."""
    old = await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"old")
    last = drawn("t", 1, 0)
    change = Put(f"deletions/{old.record.topic_id}/0", json.encode(old.record)), Put("topics/t", json.encode(last))
    await LocalStore.transact(machine.store, [], change)
    topics = await machine.crash()
    assert topics.required("t").record == last
    assert topics.partition("t", 0).end_offset == 0
    await machine.stop()
