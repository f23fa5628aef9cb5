"""A data directory: identity, lock, partitions, checkpoints, deletion, clean and unclean stops."""

import asyncio
import errno
import os
import re
import shutil
from pathlib import Path

import pytest
from semel_storage import checkpoints
from semel_storage.checkpoints import CorruptCheckpoint
from semel_storage.disk.disk import DirectoryLocked
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.disk.os_disk import OsDisk
from semel_storage.disk.os_sync import find_syncfs
from semel_storage.log_directory import LogDirectory, NotRemoved, WrongDirectory, renamed_directory
from semel_storage.segments.log_config import LogConfig
from storage.batches import NOW_MS, make_batch, put, read_all

COUNT = 20
TOPIC_ID = bytes(range(16))


def open_directory(disk: MemoryDisk, *, node_id: int = 1, cluster_id: str = "cluster") -> LogDirectory:
    return LogDirectory.open(
        disk, "data", node_id=node_id, cluster_id=cluster_id, directory_id="MDEyMzQ1Njc4OTAxMjM0NQ"
    )


def add(directory: LogDirectory, topic: str, partition: int = 0, *, batches: int = 0) -> None:
    log = directory.open_log(topic, partition, LogConfig(), now_ms=NOW_MS, topic_id=TOPIC_ID)
    for _ in range(batches):
        put(log, make_batch())


def test_identity_is_kept_and_checked(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    text = disk.read_bytes("data/meta.properties").decode()
    assert text == "version=1\ncluster.id=cluster\nnode.id=1\ndirectory.id=MDEyMzQ1Njc4OTAxMjM0NQ\n"
    directory.close()
    with pytest.raises(WrongDirectory, match=re.escape("node.id=1")):
        open_directory(disk, node_id=2)
    with pytest.raises(WrongDirectory, match=re.escape("cluster.id=cluster")):
        open_directory(disk, cluster_id="other")
    assert open_directory(disk, cluster_id="").cluster_id == "cluster"


@pytest.mark.proves("foreign-folder")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("# only a comment\n\n", "is empty"),
        ("cluster.id=cluster\nnode.id=1\n", "has no version"),
        ("version=2\ncluster.id=cluster\nnode.id=1\n", "has version=2"),
        ("version=one\nnode.id=1\n", "has version=one"),
        ("version=1\ncluster.id=cluster\n", "has no node.id"),
        ("version=1\nnode.id=1\n", "has no cluster.id"),
        ("\0" * 60, "has no version"),
    ],
)
def test_an_invalid_identity_is_refused_and_not_changed(disk: MemoryDisk, text: str, words: str) -> None:
    disk.mkdir("data")
    disk.write_atomically("data/meta.properties", text.encode())
    with pytest.raises(WrongDirectory, match=words) as caught:
        open_directory(disk)
    assert "data/meta.properties" in str(caught.value)
    assert disk.read_bytes("data/meta.properties") == text.encode()
    disk.lock("data")


def test_the_identity_that_kafka_wrote_before_kraft_is_read(disk: MemoryDisk) -> None:
    disk.mkdir("data")
    disk.write_atomically("data/meta.properties", b"#\n#Thu\nversion=0\nbroker.id=1\ncluster.id=cluster\n")
    assert open_directory(disk).node_id == 1


@pytest.mark.proves("foreign-folder")
@pytest.mark.parametrize("foreign", ["report.pdf", "src/main.py", "orders-0/00000000000000000000.log", "semel.store"])
def test_a_foreign_folder_is_refused_and_not_changed(disk: MemoryDisk, foreign: str) -> None:
    disk.mkdir("data/src")
    disk.mkdir("data/orders-0")
    disk.rmtree("data/src" if "src" not in foreign else "data/orders-0")
    if "orders" not in foreign:
        disk.rmtree("data/orders-0")
    disk.open(f"data/{foreign}").close()
    before = disk.listdir("data")
    with pytest.raises(WrongDirectory, match=re.escape(foreign.partition("/")[0])) as caught:
        open_directory(disk)
    assert "meta.properties" in str(caught.value)
    assert disk.listdir("data") == before


def test_a_folder_of_a_kafka_controller_is_refused(disk: MemoryDisk) -> None:
    open_directory(disk).close()
    disk.mkdir("data/__cluster_metadata-0")
    with pytest.raises(WrongDirectory, match="__cluster_metadata-0"):
        open_directory(disk)


def test_a_new_file_system_and_an_interrupted_start_are_accepted(disk: MemoryDisk) -> None:
    disk.mkdir("data/lost+found")
    for name in (".lock", "meta.properties.tmp"):
        disk.open(f"data/{name}").close()
    assert open_directory(disk).cluster_id == "cluster"


def test_second_owner_is_refused(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    with pytest.raises(DirectoryLocked):
        open_directory(disk)
    directory.close()
    open_directory(disk)


def test_partitions_are_those_with_a_directory(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    for topic, partition in [("b-2", 1), ("a", 10), ("a", 9)]:
        add(directory, topic, partition)
    assert directory.partitions() == [("a", 9), ("a", 10), ("b-2", 1)]
    assert directory.topic_id("a", 9) == TOPIC_ID
    assert directory.topic_id("c", 0) is None
    lines = disk.read_bytes("data/a-9/partition.metadata").splitlines()
    assert lines == [b"version: 0", b"topic_id: AAECAwQFBgcICQoLDA0ODw", b"semel_crc32c: 1e64ac81"]


@pytest.mark.skipif(find_syncfs() is None, reason="no syncfs that reports errors on this machine")
def test_a_close_of_many_logs_shares_its_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each log has unsynced records, epochs and sealed segments. A stop must not need a sync for each."""
    disk = OsDisk()
    directory = LogDirectory.open(disk, str(tmp_path / "data"), node_id=1, cluster_id="c", directory_id="d")
    for partition in range(COUNT):
        log = directory.open_log("t", partition, LogConfig(), now_ms=NOW_MS, topic_id=TOPIC_ID)
        for _ in range(2):
            put(log, make_batch(), leader_epoch=partition)
            log.roll()
            put(log, make_batch(), leader_epoch=partition + 1)
    calls: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd, name=name: calls.append(name))
    directory.close()
    assert len(calls) <= 8, "checkpoint files and the clean shutdown marker"
    again = LogDirectory.open(disk, str(tmp_path / "data"), node_id=1, cluster_id="c", directory_id="d")
    for partition in range(COUNT):
        log = again.open_log("t", partition, LogConfig(), now_ms=NOW_MS, topic_id=TOPIC_ID)
        assert (len(read_all(log)), log.epochs.latest) == (4, partition + 1)
    again.close()
    disk.close()


@pytest.mark.skipif(find_syncfs() is None, reason="no syncfs that reports errors on this machine")
@pytest.mark.parametrize(("count", "is_shared"), [(COUNT, True), (5, False)])
def test_logs_of_a_killed_process_share_one_sync_if_they_are_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, is_shared: bool
) -> None:
    disk = OsDisk()
    killed = LogDirectory.open(disk, str(tmp_path / "killed"), node_id=1, cluster_id="c", directory_id="d")
    for partition in range(count):
        log = killed.open_log("t", partition, LogConfig(), now_ms=NOW_MS, topic_id=TOPIC_ID)
        put(log, make_batch())
        log.roll()
        put(log, make_batch())
    shutil.copytree(tmp_path / "killed", tmp_path / "left")
    killed.close()
    shared = []
    syncfs = find_syncfs()
    assert syncfs is not None
    monkeypatch.setattr(disk, "_syncfs", lambda fd: shared.append(fd) or syncfs(fd))
    again = LogDirectory.open(disk, str(tmp_path / "left"), node_id=1, cluster_id="c", directory_id="d")
    assert len(shared) == is_shared
    calls: list[str] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda fd, name=name: calls.append(name))
    for partition in range(count):
        log = again.open_log("t", partition, LogConfig(), now_ms=NOW_MS, topic_id=TOPIC_ID)
        assert (len(read_all(log)), log.durability.synced_offset) == (2, log.end_offset)
    assert bool(calls) is not is_shared
    monkeypatch.undo()
    again.close()
    disk.close()


def test_a_clean_close_writes_marker_and_checkpoints_and_the_next_open_removes_the_marker(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    assert not directory.was_clean
    add(directory, "a", batches=3)
    add(directory, "b", batches=2)
    directory.logs["b", 0].delete_records_before(1)
    directory.close()
    assert disk.read_bytes("data/recovery-point-offset-checkpoint") == b"0\n2\na 0 3\nb 0 2\n"
    assert disk.read_bytes("data/log-start-offset-checkpoint") == b"0\n1\nb 0 1\n"
    assert disk.exists("data/.kafka_cleanshutdown")
    disk.crash()
    directory = open_directory(disk)
    assert directory.was_clean
    add(directory, "a")
    add(directory, "b")
    assert (directory.logs["a", 0].end_offset, directory.logs["b", 0].start_offset) == (3, 1)
    disk.crash()
    assert not open_directory(disk).was_clean, "the marker is gone while a process has the directory open"


def test_a_checkpoint_bounds_recovery_after_a_crash(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    add(directory, "a", batches=3)
    asyncio.run(directory.checkpoint())
    put(directory.logs["a", 0], make_batch())
    disk.crash()
    directory = open_directory(disk)
    add(directory, "a")
    log = directory.logs["a", 0]
    assert (log.durability.recovery_point, log.end_offset) == (3, 3)


def test_a_deleted_partition_stays_deleted_after_power_loss_and_can_be_created_again(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    add(directory, "a", batches=3)
    add(directory, "b", batches=1)
    asyncio.run(directory.checkpoint())
    directory.delete_log("a", 0, unique="1")
    assert directory.partitions() == [("b", 0)]
    disk.crash()
    directory = open_directory(disk)
    assert directory.partitions() == [("b", 0)]
    assert not [name for name in disk.listdir("data") if name.endswith("-delete")]
    add(directory, "a", batches=1)
    assert len(read_all(directory.logs["a", 0])) == 1
    directory.delete_log("a", 0, unique="2")
    directory.delete_log("never-opened", 0, unique="3")
    assert disk.read_bytes("data/recovery-point-offset-checkpoint") == b"0\n1\nb 0 1\n"


def test_partition_created_again_does_not_inherit_a_stale_checkpoint(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    add(directory, "a", batches=3)
    asyncio.run(directory.checkpoint())
    disk.kill()
    disk.rmtree("data/a-0")
    directory = open_directory(disk)
    add(directory, "a")
    assert directory.logs["a", 0].end_offset == 0


def test_log_start_offset_survives_a_crash(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    add(directory, "a", batches=5)
    asyncio.run(directory.logs["a", 0].durability.sync())
    directory.logs["a", 0].delete_records_before(4)
    disk.crash()
    directory = open_directory(disk)
    add(directory, "a")
    assert directory.logs["a", 0].start_offset == 4


@pytest.mark.parametrize(
    "text", ["", "0\n", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na 0 x\n", "x\n1\na 0 1\n"]
)
def test_damaged_checkpoint_names_the_file(disk: MemoryDisk, text: str) -> None:
    disk.mkdir("d")
    disk.write_atomically("d/f", text.encode())
    with pytest.raises(CorruptCheckpoint, match="d/f"):
        checkpoints.read_offsets(disk, "d/f")


def test_checkpoints_read_what_they_write(disk: MemoryDisk) -> None:
    disk.mkdir("d")
    offsets = {("a", 0): 5, ("a", 10): 2**62, ("a", 2): 0, ("b.c_d-e", 1): 7}
    disk.write_atomically("d/offsets", checkpoints.encode_offsets(offsets))
    assert checkpoints.read_offsets(disk, "d/offsets") == offsets
    assert checkpoints.read_offsets(disk, "d/none") == {}
    disk.write_atomically("d/epochs", checkpoints.encode_epochs([(0, 0), (5, 99)]))
    assert checkpoints.read_epochs(disk, "d/epochs") == [(0, 0), (5, 99)]


@pytest.mark.proves("topic-id-after-a-power-loss")
def test_a_topic_id_torn_at_any_byte_is_none() -> None:
    disk, path = MemoryDisk(), "/data/t-0/partition.metadata"
    checkpoints.write_topic_id(disk, path, bytes(range(16)))
    whole = disk.read_bytes(path)
    for size in range(len(whole)):
        for torn in (whole[:size], whole[:size] + bytes(len(whole) - size)):
            disk.write_atomically(path, torn)
            is_as_kafka_writes_it = torn.rstrip(b"\0\n").endswith(b"ODw")
            assert checkpoints.read_topic_id(disk, path) == (bytes(range(16)) if is_as_kafka_writes_it else None), torn
    for stale in (bytes(reversed(whole)), bytes(200 + n % 50 for n in range(len(whole)))):  # what lay there before
        disk.write_atomically(path, stale)
        assert checkpoints.read_topic_id(disk, path) is None, stale
    disk.write_atomically(path, whole + b"\n")
    assert checkpoints.read_topic_id(disk, path) == bytes(range(16))
    disk.write_atomically(path, whole.replace(b"version: 0", b"version: 9"))
    with pytest.raises(CorruptCheckpoint):
        checkpoints.read_topic_id(disk, path)


def test_one_flipped_bit_never_makes_another_topic_id() -> None:
    disk, path = MemoryDisk(), "/data/t-0/partition.metadata"
    checkpoints.write_topic_id(disk, path, bytes(range(16)))
    whole = disk.read_bytes(path)
    refused = 0
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        disk.write_atomically(path, flipped)
        try:
            assert checkpoints.read_topic_id(disk, path) in (bytes(range(16)), None), bytes(flipped)
        except CorruptCheckpoint:
            refused += 1
    assert refused > 22 * 8


def test_a_missing_directory_is_reported_unless_its_partition_was_deleted(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    for topic in ("gone", "deleted", "aside", "there"):
        add(directory, topic, batches=3)
    asyncio.run(directory.checkpoint())
    disk.kill()
    disk.rmtree("data/gone-0")
    directory = open_directory(disk)
    directory.delete_log("deleted", 0, unique="1")
    assert directory.set_aside("aside", 0, unique="1") == "data/aside-0.1-stray"
    assert directory.missing() == {("gone", 0): 3}
    disk.crash()
    directory = open_directory(disk)
    assert directory.missing() == {("gone", 0): 3}
    directory.forget("gone", 0)
    assert directory.missing() == {}


def test_the_partitions_of_a_topic_are_deleted_with_the_syncs_of_one() -> None:
    """The event loop of the caller waits for them."""
    syncs = []
    for count in (1, 50):
        disk = MemoryDisk()
        directory = open_directory(disk)
        for partition in range(count):
            add(directory, "doomed", partition, batches=1)
        add(directory, "kept", batches=1)
        asyncio.run(directory.checkpoint())
        before = disk.syncs
        directory.delete_logs("doomed", range(count), unique="1")
        syncs.append(disk.syncs - before)
        disk.crash()
        assert open_directory(disk).partitions() == [("kept", 0)]
    assert syncs[0] == syncs[1] > 0


@pytest.mark.parametrize("topic", ["t", "x" * 215, "x" * 249])
@pytest.mark.parametrize("partition", [0, 99_999, 2**31 - 1])
@pytest.mark.parametrize("suffix", ["-delete", "-stray"])
def test_the_new_name_of_a_directory_fits_every_file_system(topic: str, partition: int, suffix: str) -> None:
    unique = "A" * 22  # a topic id
    name = renamed_directory(topic, partition, unique=unique, suffix=suffix)
    assert len(name) <= 255
    assert name.endswith(f"-{partition}.{unique}{suffix}")
    assert topic.startswith(name.removesuffix(f"-{partition}.{unique}{suffix}"))
    whole = f"{topic}-{partition}.{unique}{suffix}"
    assert len(whole) > 255 or name == whole


def test_a_disk_in_memory_refuses_names_as_a_file_system_does(disk: MemoryDisk) -> None:
    disk.mkdir("data")
    long = "x" * 256
    for use in (
        lambda: disk.open(f"data/{long}"),
        lambda: disk.mkdir(f"data/{long}"),
        lambda: disk.rename("data", long),
        lambda: disk.write_atomically(f"data/{long[4:]}", b""),
    ):
        with pytest.raises(OSError, check=lambda error: error.errno == errno.ENAMETOOLONG):
            use()
    disk.open(f"data/{long[1:]}")


def test_directories_deleted_by_an_earlier_version_are_removed(disk: MemoryDisk) -> None:
    open_directory(disk).abandon()
    disk.mkdir(f"data/{'x' * 215}-0.{'A' * 22}-delete")
    open_directory(disk)
    assert not [name for name in disk.listdir("data") if name.endswith("-delete")]


def test_names_that_no_broker_gives_are_named_and_left_alone(disk: MemoryDisk) -> None:
    open_directory(disk).abandon()
    names = ["caf\udce9", "orders-007", "x" * 250 + "-0", "orders-\u0663"]
    for name in names:
        disk.mkdir(f"data/{name}")
    problems: list[dict[str, object]] = []
    directory = LogDirectory.open(
        disk,
        "data",
        node_id=1,
        cluster_id="",
        directory_id="MDEyMzQ1Njc4OTAxMjM0NQ",
        problem=lambda event, **facts: problems.append({"event": event, **facts}),
    )
    assert directory.partitions() == []
    (line,) = problems
    assert (line["event"], line["names"]) == ("foreign_names_ignored", sorted(names))
    assert set(names) < set(disk.listdir("data"))


def test_a_directory_that_cannot_be_removed_is_reported_and_tried_again(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    for partition in range(3):
        add(directory, "a", partition, batches=1)
    disk.denied.add("data/a-1")
    with pytest.raises(NotRemoved, match=r"data/a-1: .*1 of 3 directories remain"):
        directory.delete_logs("a", range(3), unique="1")
    assert directory.partitions() == [("a", 1)]
    directory.abandon()
    disk.denied = {f"data/a-{partition}.1-delete" for partition in range(3)}
    disk.mkdir("data/b-0.9-delete")
    disk.denied.add("data/b-0.9-delete")
    open_directory(disk).abandon()
    disk.denied.clear()
    open_directory(disk)
    assert "b-0.9-delete" not in disk.listdir("data")


def test_a_log_never_opens_in_the_directory_of_another_topic(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    add(directory, "a", batches=1)
    directory.abandon()
    directory = open_directory(disk)
    with pytest.raises(WrongDirectory, match="data/a-0 has the records of another topic"):
        directory.open_log("a", 0, LogConfig(), now_ms=NOW_MS, topic_id=b"another topic's.")
    add(directory, "a")


def test_a_start_that_opened_no_log_leaves_a_clean_stop_clean(disk: MemoryDisk) -> None:
    add(directory := open_directory(disk), "t", batches=3)
    directory.close()
    for _ in range(2):
        directory = open_directory(disk)
        assert directory.was_clean
        directory.abandon()
    add(directory := open_directory(disk), "t")
    directory.abandon()
    directory = open_directory(disk)
    assert not directory.was_clean, "a log was opened"
    directory.abandon()
    assert not open_directory(disk).was_clean


async def test_a_new_log_syncs_nothing_before_its_first_record_is_synced(disk: MemoryDisk) -> None:
    directory = open_directory(disk)
    before = disk.syncs
    add(directory, "t", batches=1)
    log = directory.logs["t", 0]
    assert disk.syncs == before
    await log.durability.sync()
    disk.crash()
    again = open_directory(disk)
    add(again, "t")
    assert (again.topic_id("t", 0), again.logs["t", 0].end_offset) == (TOPIC_ID, 1)


def test_records_whose_topic_id_a_power_loss_took_are_set_aside(disk: MemoryDisk) -> None:
    """Their topic may have been deleted meanwhile. A new topic of that name must not get them."""
    add(open_directory(disk), "t", batches=3)
    log = disk.open("data/t-0/00000000000000000000.log")
    disk.sync_dir("data")
    log.sync_now()
    disk.remove("data/t-0/partition.metadata")
    disk.sync_dir("data/t-0")
    disk.crash()
    told: list[str] = []

    def note(event: str, **facts: object) -> None:
        told.append(event)

    for _ in range(2):
        directory = LogDirectory.open(
            disk, "data", node_id=1, cluster_id="cluster", directory_id="d", event=note, problem=note
        )
        add(directory, "t")
        assert directory.logs["t", 0].end_offset == 0
        directory.abandon()
        asides = [name for name in disk.listdir("data") if name.endswith("-stray")]
        assert len(asides) == 1
        assert len(disk.read_bytes(f"data/{asides[0]}/00000000000000000000.log")) > 0
        disk.kill()
    assert told == ["records_without_topic_id_set_aside"], "once: the empty log has a topic id"


def test_a_log_without_a_topic_id_that_a_checkpoint_knows_is_not_set_aside(disk: MemoryDisk) -> None:
    add(directory := open_directory(disk), "t", batches=3)
    directory.close()
    disk.remove("data/t-0/partition.metadata")
    add(directory := open_directory(disk), "t")
    assert (directory.logs["t", 0].end_offset, directory.topic_id("t", 0)) == (3, TOPIC_ID)


async def test_what_a_killed_process_left_in_the_cache_is_durable_with_the_next_record(disk: MemoryDisk) -> None:
    add(open_directory(disk), "t", batches=1)
    disk.kill()
    directory = open_directory(disk)
    add(directory, "t", batches=1)
    await directory.logs["t", 0].durability.sync()
    disk.crash()
    again = open_directory(disk)
    add(again, "t")
    assert (again.topic_id("t", 0), again.logs["t", 0].end_offset) == (TOPIC_ID, 2)


async def test_a_log_rolls_once_the_name_of_its_segment_is_durable(disk: MemoryDisk) -> None:
    """Otherwise a power loss could take a segment from the middle."""
    directory = open_directory(disk)
    log = directory.open_log("t", 0, LogConfig(segment_bytes=300), now_ms=NOW_MS, topic_id=TOPIC_ID)
    disk.hold_syncs()
    for _ in range(10):
        put(log, make_batch())
        await asyncio.sleep(0)
    assert len(log.segments) == 1, "its own name is not durable yet"
    disk.release_syncs()
    await log.durability.sync()
    for _ in range(10):
        put(log, make_batch())
    assert len(log.segments) == 2, "the next one waits for the name of the second"
    await log.durability.sync()
    put(log, make_batch())
    assert len(log.segments) == 3


async def test_a_deletion_waits_for_what_a_thread_writes_into_the_directory(disk: MemoryDisk) -> None:
    """A write into a removed directory would end the process.

    A later write would put the epochs of the deleted log into a new log of the name.
    """
    directory = open_directory(disk)
    add(directory, "t", batches=1)
    checkpoint = asyncio.ensure_future(directory.logs["t", 0].durability.checkpoint())
    while not disk.asides:
        await asyncio.sleep(0)
    deletion = directory.deletion("t", [0], unique="u")
    list(deletion.forget())
    await directory.forgotten()
    assert not disk.asides
    list(deletion.rename())
    await checkpoint
    add(directory, "t")
    assert directory.logs["t", 0].epochs.entries == []
