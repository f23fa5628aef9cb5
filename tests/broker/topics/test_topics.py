"""Topics over a disk in memory: concurrent requests, the state after a restart, and the removal of leftover files."""

import asyncio
import re
from collections.abc import Callable

import pytest
from broker.crashable_broker import ROOT, CrashableBroker, refused, write
from msgspec import json
from semel_broker.cluster import records
from semel_broker.cluster.records import absence_key, topic_key
from semel_broker.cluster.store import Delete, Put
from semel_broker.cluster.topic_plan import OFFSETS_TOPIC, NewTopic
from semel_broker.config.limits import Limits
from semel_broker.topics import dynamic_configs
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.checkpoints import write_topic_id


@pytest.fixture
async def machine() -> CrashableBroker:
    machine = CrashableBroker(num_partitions="2")
    await machine.start()
    return machine


# --- creating ---


async def test_a_topic_has_the_brokers_defaults_unless_told_otherwise(machine: CrashableBroker) -> None:
    topic = await machine.topics.create(NewTopic(name="t"))
    assert (topic.partition_count, topic.configs, topic.is_internal) == (2, {}, False)
    assert topic.config.retention_ms == 168 * 3_600_000
    assert len(topic.topic_id) == 16
    assert machine.topics.get("t") is topic
    assert machine.topics.get_by_id(topic.topic_id) is topic
    assert machine.topics.names() == ["t"]


async def test_a_created_topic_survives_a_crash_before_its_first_directory(machine: CrashableBroker) -> None:
    topic = await machine.topics.create(NewTopic(name="t", partitions=3, configs={"retention.ms": "5"}))
    topics = await machine.crash()
    again = topics.get("t")
    assert again is not None
    assert (again.topic_id, again.partition_count, again.config.retention_ms) == (topic.topic_id, 3, 5)
    await write(topics, "t", 2, b"first")


async def test_creating_costs_no_directory_until_the_first_write(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="t", partitions=500))
    assert machine.logs.partitions() == []
    await write(machine.topics, "t", 7, b"x")
    assert machine.logs.partitions() == [("t", 7)]
    assert [partition.index for partition in machine.topics.partitions()] == [7]


async def test_of_many_concurrent_creates_of_one_name_exactly_one_wins(machine: CrashableBroker) -> None:
    creates = [machine.topics.create(NewTopic(name="t", partitions=i + 1)) for i in range(10)]
    outcomes = await asyncio.gather(*creates, return_exceptions=True)
    won = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    lost = [outcome for outcome in outcomes if isinstance(outcome, KafkaError)]
    assert (len(won), len(lost)) == (1, 9)
    assert {error.code for error in lost} == {ErrorCode.TOPIC_ALREADY_EXISTS}
    assert machine.topics.get("t") is won[0]


async def test_concurrent_ensures_get_the_same_topic(machine: CrashableBroker) -> None:
    outcomes = await asyncio.gather(*(machine.topics.ensure("t") for _ in range(10)))
    assert all(topic is outcomes[0] for topic in outcomes)


async def test_names_that_collide_in_metrics_cannot_coexist_even_when_concurrent(machine: CrashableBroker) -> None:
    outcomes = await asyncio.gather(
        machine.topics.create(NewTopic(name="a.b")),
        machine.topics.create(NewTopic(name="a_b")),
        return_exceptions=True,
    )
    assert isinstance(outcomes[1], KafkaError)
    assert outcomes[1].code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "collides with 'a.b'" in outcomes[1].message


@pytest.mark.proves("topic-names")
@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\x00", "t\n"])
async def test_illegal_names_are_refused(machine: CrashableBroker, name: str) -> None:
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        await machine.topics.create(NewTopic(name=name))


@pytest.mark.parametrize("name", ["x" * 249, "...", "a.b-c_D9"])
async def test_legal_names_are_taken(machine: CrashableBroker, name: str) -> None:
    await machine.topics.create(NewTopic(name=name))
    await write(machine.topics, name, 0, b"x")
    assert (await machine.crash()).names() == [name]


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic(name="t", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partitions=2**31 - 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", partitions=1, assignments={0: [0]}), ErrorCode.INVALID_REQUEST),
        (NewTopic(name="t", assignments={1: [0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: [5]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: [0, 0]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs={"retention": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs={"cleanup.policy": ","}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs={"preallocate": "maybe"}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs={"cleanup.policy": "x" * 40_000}), ErrorCode.INVALID_CONFIG),
        (
            NewTopic(name="t", configs={"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}),
            ErrorCode.INVALID_CONFIG,
        ),
    ],
)
async def test_impossible_topics_are_refused_and_leave_nothing(
    machine: CrashableBroker, new: NewTopic, code: ErrorCode
) -> None:
    with refused(code):
        await machine.topics.create(new)
    assert machine.topics.names() == []
    assert (await machine.store.list("topics/")).entries == ()


async def test_a_manual_assignment_gives_the_partitions(machine: CrashableBroker) -> None:
    topic = await machine.topics.create(NewTopic(name="t", assignments={1: [0], 0: [0], 2: [0]}))
    assert topic.partition_count == 3


async def test_validate_only_writes_nothing(machine: CrashableBroker) -> None:
    topic = await machine.topics.create(NewTopic(name="t"), validate_only=True)
    assert topic.partition_count == 2
    assert machine.topics.names() == []
    await machine.topics.create(NewTopic(name="t"))
    with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
        await machine.topics.create(NewTopic(name="t"), validate_only=True)


async def test_the_broker_holds_a_bounded_number_of_partitions() -> None:
    topics = await CrashableBroker().start(Limits(partitions_max=10))
    await topics.create(NewTopic(name="t", partitions=8))
    with refused(ErrorCode.POLICY_VIOLATION, "may have 10"):
        await topics.create(NewTopic(name="u", partitions=3))
    with refused(ErrorCode.POLICY_VIOLATION):
        await topics.add_partitions("t", 11)
    await topics.delete("t")
    await topics.create(NewTopic(name="u", partitions=10))


async def test_the_offsets_topic_is_made_with_settings_of_its_own(machine: CrashableBroker) -> None:
    topic = await machine.topics.ensure(OFFSETS_TOPIC)
    assert (topic.partition_count, topic.config.cleanup_policy, topic.is_internal) == (50, ("compact",), True)


# --- deleting ---


async def test_a_deleted_topic_is_gone_with_its_records(machine: CrashableBroker) -> None:
    topic = await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"x")
    await machine.topics.delete("t")
    assert (machine.topics.names(), machine.topics.get_by_id(topic.topic_id)) == ([], None)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        machine.topics.partition("t", 0)
    assert machine.logs.partitions() == []
    assert [entry.key for entry in (await machine.store.list("")).entries] == [absence_key(topic_key("t"))]
    assert (await machine.crash()).names() == []


async def test_a_topic_of_the_same_name_begins_empty(machine: CrashableBroker) -> None:
    old = await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"old", b"old")
    deleting = asyncio.ensure_future(machine.topics.delete("t"))
    while machine.topics.get("t") is not None:  # its name is free before its files are gone
        await asyncio.sleep(0)
    new = await machine.topics.create(NewTopic(name="t"))
    await deleting
    assert new.topic_id != old.topic_id
    await write(machine.topics, "t", 0, b"new")
    assert machine.topics.partition("t", 0).end_offset == 1
    assert (await machine.crash()).partition("t", 0).end_offset == 1


async def test_deleting_what_is_not_there_is_refused(machine: CrashableBroker) -> None:
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        await machine.topics.delete("t")
    await machine.topics.create(NewTopic(name="t"))
    outcomes = await asyncio.gather(machine.topics.delete("t"), machine.topics.delete("t"), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), KafkaError]


async def test_a_deletion_cut_short_by_a_crash_is_finished_at_start(machine: CrashableBroker) -> None:
    topic = await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"x")
    entry = await machine.store.get("topics/t")
    assert entry is not None
    changes = [Delete("topics/t"), Put(f"deletions/{topic.record.topic_id}/0", entry.value)]
    await machine.store.transact([], changes)
    topics = await machine.crash()
    assert (topics.names(), machine.logs.partitions()) == ([], [])
    assert (await machine.store.list("")).entries == ()


async def test_a_finished_deletion_does_not_touch_a_successor(machine: CrashableBroker) -> None:
    old = await machine.topics.create(NewTopic(name="t"))
    await machine.topics.delete("t")
    await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"new")
    await machine.store.transact([], [Put(f"deletions/{old.record.topic_id}/0", json.encode(old.record))])
    assert (await machine.crash()).partition("t", 0).end_offset == 1


async def test_a_log_without_topic_is_set_aside_not_deleted(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"precious")
    await machine.store.transact([], [Delete("topics/t")])  # as if the store had been replaced by an older copy
    topics = await machine.crash()
    assert (topics.names(), machine.logs.partitions()) == ([], [])
    assert [name for name in machine.disk.listdir(ROOT) if name.endswith("-stray")] != []
    assert machine.log.of("stray_partition_set_aside")[0]["topic"] == "t"


# --- directories that do not fit the store ---


def assert_offline(machine: CrashableBroker, name: str, index: int, reason: str) -> None:
    """The partition answers KAFKA_STORAGE_ERROR, and the log has one error with the reason."""
    partition = machine.topics.partition(name, index)
    for use in (partition.check_leading, partition.check_readable, partition.open):
        with refused(ErrorCode.KAFKA_STORAGE_ERROR, "its log has partition_offline"):
            use()
    last = machine.log.of("partition_offline")[-1]
    assert (last["topic"], last["partition"]) == (name, index)
    assert re.search(reason, str(last["reason"]), re.DOTALL), last["reason"]


def _deny(machine: CrashableBroker) -> None:
    machine.disk.denied.add(f"{ROOT}/t-0")


def _put_a_file(machine: CrashableBroker) -> None:
    machine.disk.rmtree(f"{ROOT}/t-0")
    machine.disk.open(f"{ROOT}/t-0")


def _deny_a_segment(machine: CrashableBroker) -> None:
    machine.disk.denied.add(f"{ROOT}/t-0/{0:020d}.log")


def _put_a_directory(machine: CrashableBroker) -> None:
    machine.disk.mkdir(f"{ROOT}/t-0/leader-epoch-checkpoint")


def _damage_the_epochs(machine: CrashableBroker) -> None:
    machine.disk.write_atomically(f"{ROOT}/t-0/leader-epoch-checkpoint", b"garbage")


def _damage_the_records(machine: CrashableBroker) -> None:
    path = f"{ROOT}/t-0/{0:020d}.log"
    data = bytearray(machine.disk.read_bytes(path))
    data[40] ^= 1
    machine.disk.overwrite(path, data)


@pytest.mark.proves("one-bad-directory")
@pytest.mark.parametrize(
    "harm",
    [_deny, _put_a_file, _deny_a_segment, _put_a_directory, _damage_the_epochs, _damage_the_records],
)
async def test_a_directory_that_cannot_be_used_keeps_no_other_partition_from_being_served(
    machine: CrashableBroker, harm: Callable[[CrashableBroker], None]
) -> None:
    for name in ("s", "t", "u"):
        await machine.topics.create(NewTopic(name=name, partitions=2))
        for index in (0, 1):
            await write(machine.topics, name, index, b"x", b"y")
            await write(machine.topics, name, index, b"z")
    machine.disk.kill()
    harm(machine)
    topics = await machine.start()
    assert_offline(machine, "t", 0, f"{ROOT}/t-0")
    assert len(machine.log.of("partition_offline")) == 1
    assert topics.local.offline() == {topics.required("t").record.topic_id: [0]}
    for name, index in (("s", 0), ("s", 1), ("t", 1), ("u", 0), ("u", 1)):
        assert topics.partition(name, index).end_offset == 3
        await write(topics, name, index, b"more")
    machine.disk.denied.clear()
    await topics.delete("t")
    assert "t-0" not in machine.disk.listdir(ROOT)
    await topics.create(NewTopic(name="t"))
    assert topics.partition("t", 0).end_offset == 0
    await write(topics, "t", 0, b"new")


@pytest.mark.proves("one-bad-directory")
async def test_a_topic_whose_files_could_not_be_removed_never_shows_them_in_its_successor(
    machine: CrashableBroker,
) -> None:
    await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"old")
    machine.disk.denied.add(f"{ROOT}/t-0")
    await machine.topics.delete("t")
    assert [line["directory"] for line in machine.log.of("directory_not_removed")] == [f"{ROOT}/t-0"]
    assert len(machine.log.of("topic_not_removed")) == 1
    machine.disk.denied.clear()
    await machine.topics.create(NewTopic(name="t"))
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        await write(machine.topics, "t", 0, b"new")
    assert_offline(machine, "t", 0, "another topic")
    topics = await machine.crash()  # the deletion is noted, and finished now
    assert topics.partition("t", 0).end_offset == 0
    await write(topics, "t", 0, b"new")
    assert [name for name in machine.disk.listdir(ROOT) if name.endswith("-delete")] == []


@pytest.mark.proves("one-bad-directory")
@pytest.mark.parametrize("length", [1, 215, 224, 248, 249])
async def test_a_topic_of_any_length_is_deleted_moved_and_set_aside(machine: CrashableBroker, length: int) -> None:
    name = "x" * length
    await machine.topics.create(NewTopic(name=name, partitions=2))
    await write(machine.topics, name, 1, b"old")
    await machine.topics.delete(name)
    await machine.topics.create(NewTopic(name=name, partitions=2))
    assert machine.topics.partition(name, 1).end_offset == 0
    await write(machine.topics, name, 1, b"new")
    assert (await machine.crash()).partition(name, 1).end_offset == 1
    await machine.topics.local.delete(machine.topics.partition(name, 1))
    assert machine.logs.partitions() == []
    await machine.crash()
    await write(machine.topics, name, 1, b"precious")
    await machine.store.transact([], [Delete(f"topics/{name}")])  # as if the store had been replaced by an older copy
    await machine.crash()
    (line,) = machine.log.of("stray_partition_set_aside")
    assert machine.disk.exists(str(line["directory"]))


async def test_a_directory_that_cannot_be_set_aside_stops_nothing(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="t"))
    await machine.topics.create(NewTopic(name="u"))
    for name in ("t", "u"):
        await write(machine.topics, name, 0, b"x")
    await machine.store.transact([], [Delete("topics/t")])
    machine.disk.denied.add(f"{ROOT}/t-0")
    topics = await machine.crash()
    assert machine.log.of("stray_partition_not_set_aside")[0]["directory"] == f"{ROOT}/t-0"
    assert topics.partition("u", 0).end_offset == 1


@pytest.mark.proves("partition-begins-empty")
async def test_a_flipped_bit_in_a_topic_id_takes_its_partition_offline(machine: CrashableBroker) -> None:
    """The partition would begin empty."""
    await machine.topics.create(NewTopic(name="t"))
    await machine.topics.create(NewTopic(name="other"))
    await write(machine.topics, "t", 0, b"precious")
    await write(machine.topics, "other", 0, b"served")
    path = f"{ROOT}/t-0/partition.metadata"
    await machine.stop()
    data = bytearray(machine.disk.read_bytes(path))
    data[25] ^= 1
    machine.disk.write_atomically(path, bytes(data))
    await machine.start()
    assert_offline(machine, "t", 0, f"{path} is damaged.*delete the file")
    assert machine.topics.partition("other", 0).end_offset == 1
    assert machine.disk.read_bytes(path) == data
    machine.disk.kill()
    machine.disk.remove(path)
    assert (await machine.start()).partition("t", 0).end_offset == 1
    assert machine.logs.topic_id("t", 0) == machine.topics.required("t").topic_id


@pytest.mark.proves("partition-begins-empty")
@pytest.mark.parametrize("is_checked", [True, False], ids=["with checksum", "as Kafka writes it"])
async def test_an_unknown_topic_id_under_the_name_of_a_topic_takes_its_partition_offline(
    machine: CrashableBroker, is_checked: bool
) -> None:
    await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"precious")
    path = f"{ROOT}/t-0/partition.metadata"
    write_topic_id(machine.disk, path, b"another topic's.")
    machine.disk.settle_now(f"{ROOT}/t-0")
    if not is_checked:
        machine.disk.write_atomically(path, b"".join(machine.disk.read_bytes(path).splitlines(True)[:2]))
    await machine.crash()
    assert_offline(machine, "t", 0, f"{path} names a topic id that is neither known nor noted as deleted")
    assert machine.disk.exists(f"{ROOT}/t-0")


@pytest.mark.proves("partition-begins-empty")
async def test_a_missing_directory_takes_its_partition_offline(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="t", partitions=3))
    await write(machine.topics, "t", 1, b"precious")
    await machine.stop()
    assert (await machine.start()).partition("t", 0).end_offset == 0  # was never written, and is not missed
    machine.disk.kill()
    machine.disk.rmtree(f"{ROOT}/t-1")
    for _ in range(2):  # the next start misses it, too
        await machine.start()
        assert_offline(machine, "t", 1, f"{ROOT}/t-1 is missing.*up to offset 1.*delete {ROOT}/recovery-point")
        await machine.stop()
        assert not machine.disk.exists(f"{ROOT}/.kafka_cleanshutdown")
    machine.disk.remove(f"{ROOT}/recovery-point-offset-checkpoint")
    assert (await machine.start()).partition("t", 1).end_offset == 0


async def test_deleted_directories_are_not_required_for_a_new_topic_of_that_name(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"old")
    await machine.stop()
    await (await machine.start()).delete("t")
    await machine.topics.create(NewTopic(name="t"))
    assert (await machine.crash()).partition("t", 0).end_offset == 0
    await write(machine.topics, "t", 0, b"old")
    await machine.logs.checkpoint()
    await machine.store.transact([], [Delete("topics/t")])
    await (await machine.crash()).create(NewTopic(name="t"))
    assert (await machine.crash()).partition("t", 0).end_offset == 0


@pytest.mark.proves("checkpoint-from-a-copy")
@pytest.mark.parametrize("by", ["broker", "store"])
async def test_a_directory_removed_with_its_topic_is_not_required_for_the_next_topic_of_that_name(
    machine: CrashableBroker, by: str
) -> None:
    """The entry in the checkpoint file is gone before the deletion counts as finished."""
    topic = await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"old")
    await machine.logs.checkpoint()
    machine.disk.rmtree(f"{ROOT}/t-0")
    if by == "broker":
        key = records.deletion_key(topic.record.topic_id, machine.config.node_id)
        await machine.store.transact([], [Put(key, json.encode(topic.record))])
    await machine.store.transact([], [Delete("topics/t")])
    for _ in range(2):
        machine.disk.kill()
        topics = await machine.start()
        await topics.ensure("t")
        assert topics.partition("t", 0).end_offset == 0


# --- growing ---


async def test_a_grown_topic_keeps_its_records_and_its_id(machine: CrashableBroker) -> None:
    topic = await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"x")
    grown = await machine.topics.add_partitions("t", 5)
    assert (grown.topic_id, grown.partition_count) == (topic.topic_id, 5)
    await write(machine.topics, "t", 4, b"y")
    topics = await machine.crash()
    assert [topics.partition("t", index).end_offset for index in range(5)] == [1, 0, 0, 0, 1]


@pytest.mark.parametrize("count", [0, 1, 2, -1, 10_001])
async def test_a_topic_only_grows(machine: CrashableBroker, count: int) -> None:
    await machine.topics.create(NewTopic(name="t", partitions=2))
    with refused(ErrorCode.INVALID_PARTITIONS):
        await machine.topics.add_partitions("t", count)


async def test_growing_by_assignment_needs_one_row_per_new_partition(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="t", partitions=2))
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        await machine.topics.add_partitions("t", 4, assignments=[[0]])
    with refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT):
        await machine.topics.add_partitions("t", 3, assignments=[[9]])
    assert (await machine.topics.add_partitions("t", 3, assignments=[[0]])).partition_count == 3


# --- settings ---


async def test_altered_settings_reach_the_open_log_at_once(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 0, b"x")
    await machine.topics.alter_configs("t", lambda given: {**given, "max.message.bytes": "99"})
    assert machine.topics.partition("t", 0).log.config.max_message_bytes == 99
    topics = await machine.crash()
    assert topics.partition("t", 0).log.config.max_message_bytes == 99


async def test_concurrent_alterations_are_all_kept(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="t"))
    names = ["retention.ms", "retention.bytes", "segment.bytes", "max.message.bytes", "segment.ms"]
    await asyncio.gather(
        *(machine.topics.alter_configs("t", lambda given, name=name: {**given, name: "2000"}) for name in names)
    )
    assert machine.topics.required("t").configs == dict.fromkeys(names, "2000")


async def test_a_refused_alteration_changes_nothing(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="t", configs={"retention.ms": "5"}))
    with refused(ErrorCode.INVALID_CONFIG, "retention.bytes = 'many'"):
        await machine.topics.alter_configs("t", lambda _: {"retention.bytes": "many"})
    assert machine.topics.required("t").configs == {"retention.ms": "5"}


async def test_topics_follow_the_broker_unless_they_have_their_own(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="own", configs={"retention.ms": "5"}))
    await machine.topics.create(NewTopic(name="following"))
    await write(machine.topics, "following", 0, b"x")
    await dynamic_configs.alter(
        machine.store, machine.topics.feed, machine.config, "", lambda _: {"log.retention.ms": "77"}
    )
    machine.topics.follow_broker()
    assert machine.topics.required("own").config.retention_ms == 5
    assert machine.topics.partition("following", 0).log.config.retention_ms == 77
    topics = await machine.crash()
    assert topics.required("following").config.retention_ms == 77


# --- starting and stopping ---


async def test_a_clean_stop_and_start_keeps_everything(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="t"))
    await write(machine.topics, "t", 1, b"x", b"y")
    await machine.stop()
    topics = await machine.start()
    assert machine.logs.was_clean
    assert topics.partition("t", 1).end_offset == 2
    assert [partition.index for partition in topics.partitions()] == [1]


async def test_partitions_that_do_not_exist_are_refused(machine: CrashableBroker) -> None:
    await machine.topics.create(NewTopic(name="t"))
    for name, index in (("t", 2), ("t", -1), ("u", 0), ("", 0)):
        with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            machine.topics.partition(name, index)
