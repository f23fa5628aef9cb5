"""A data directory: its lock, its owner, the logs of its partitions, and their common checkpoint files.

The layout is Kafka's: `<topic>-<partition>/` per log, `meta.properties`, `recovery-point-offset-checkpoint`,
`log-start-offset-checkpoint`, and after a clean close `.kafka_cleanshutdown`, until the next open.

A directory of one partition that cannot be used concerns this partition alone: `open_log` raises, and a removal that
fails is reported as an event. The next open of the data directory tries removals again.
"""

import asyncio
import re
from collections.abc import Callable, Generator, Iterable
from functools import partial

from semel_storage import checkpoints
from semel_storage.checkpoint_files import CheckpointFiles
from semel_storage.checkpoints import TopicPartition
from semel_storage.disk.disk import Disk, EventCallback, MissingFile, ignore_event
from semel_storage.identity import Identity, WrongDirectory, check_folder, identify
from semel_storage.log.log import CHECKPOINT_BYTES, Log
from semel_storage.log.recovery import is_interrupted
from semel_storage.segments.log_config import LogConfig
from semel_storage.segments.segment import LOG

__all__ = ["LogDirectory", "NotRemoved", "WrongDirectory", "partition_directory", "renamed_directory"]

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
NAME_LENGTH_MAX = 255
"""The longest file name that all usual file systems allow."""
NAMES_SHOWN_MAX = 5
LEFT_LOGS_MIN = 16
"""Default of `LogDirectory.open`."""
LOGS_PER_TURN = 256
"""Logs that a checkpoint looks at in one turn of the event loop."""
RESERVE_FILE = ".semel-reserve"
"""Its bytes are given up when a write finds no room: see `Disk.keep_reserve`."""
OPEN_FILES = 12
"""File descriptors that must be free to open another log, so that open logs can still roll, sync and read."""
_PARTITION = re.compile(r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})")
_LIKE_PARTITION = re.compile(r".*-\d+", re.DOTALL)


class NotRemoved(Exception):  # noqa: N818 (named after its cause)
    """The directories of deleted partitions could not be removed; the message names the first one and the reason."""


def partition_directory(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def renamed_directory(topic: str, partition: int, *, unique: str, suffix: str) -> str:
    """The name of a partition's directory that is no longer in use: `<topic>-<partition>.<unique><suffix>`.

    The topic's name is cut where the whole would be too long for a file system, as Kafka does. `unique` (an id or a
    number never used before) keeps the names of different topics different.
    """
    end = f"-{partition}.{unique}{suffix}"
    return topic[: NAME_LENGTH_MAX - len(end)] + end


class _LogCheckpoint:
    """See `durability.Checkpoint`: the entries of one log."""

    def __init__(self, directory: "LogDirectory", key: TopicPartition) -> None:
        self._directory = directory
        self._key = key

    def note(self) -> None:
        self._directory.note_log(self._key)

    def save_now(self) -> None:
        self.note()
        self._directory.save_now()

    async def saved(self) -> None:
        self.note()
        await self._directory.saved()

    def save_soon(self) -> None:
        self.note()
        self._directory.save_soon()


class LogDirectory:
    """One data directory. Open it with `LogDirectory.open`. `logs` has the open logs."""

    def __init__(
        self, disk: Disk, root: str, unlock: Callable[[], None], event: EventCallback, problem: EventCallback
    ) -> None:
        self.disk = disk
        self.root = root
        self.logs: dict[TopicPartition, Log] = {}
        self.cluster_id = ""
        self.directory_id = ""
        self.node_id = -1
        self.was_clean = False
        self._left_synced: set[TopicPartition] = set()
        """Partitions that are not open yet, and whose files are durable although the last stop was not clean."""
        self._unlock = unlock
        self._event = event
        self._problem = problem
        self._files = CheckpointFiles(disk, root)

    @classmethod
    def open(
        cls,
        disk: Disk,
        root: str,
        *,
        node_id: int,
        cluster_id: str,
        directory_id: str,
        event: EventCallback = ignore_event,
        problem: EventCallback = ignore_event,
        left_logs_min: int = LEFT_LOGS_MIN,
    ) -> "LogDirectory":
        """Lock the directory, and create it if it is missing.

        A new directory gets `cluster_id` and `directory_id` (a new random Uuid in base64). For an existing one,
        `cluster_id` must match ("" matches any) and `LogDirectory.cluster_id` is the stored one. Raises
        DirectoryLocked if another process uses it; WrongDirectory if it belongs to another node or cluster, has
        another format, or is not a data directory; then nothing has changed.

        `problem`: called for events that an operator has to act on; `event` for all others. `left_logs_min`: after a
        process that did not stop cleanly, so many logs are made durable by one sync of the file system. Fewer are
        synced one by one, as the file system may have much of other programs to write.
        """
        check_folder(disk, root)
        disk.mkdir(root)
        unlock = disk.lock(root)
        disk.find_reserve(f"{root}/{RESERVE_FILE}")
        try:
            directory = cls(disk, root, unlock, event, problem)
            mine = identify(disk, root, Identity(node_id, cluster_id, directory_id))
            directory.node_id, directory.cluster_id = mine.node_id, mine.cluster_id
            directory.directory_id = mine.directory_id
            directory._take(left_logs_min)
        except BaseException:
            unlock()
            raise
        return directory

    def partitions(self) -> list[TopicPartition]:
        """The partitions with a directory, or with a file in its place, sorted."""
        found = [_PARTITION.fullmatch(name) for name in self.disk.listdir(self.root)]
        return sorted((match["topic"], int(match["partition"])) for match in found if match is not None)

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        """The topic id in the partition's directory; None without one. Raises CorruptCheckpoint."""
        return checkpoints.read_topic_id(
            self.disk, self._partition_path(topic, partition, checkpoints.PARTITION_METADATA)
        )

    def has_checked_topic_id(self, topic: str, partition: int) -> bool:
        """Whether the topic id has a checksum, which `topic_id` has checked."""
        return checkpoints.has_checksum(
            self.disk, self._partition_path(topic, partition, checkpoints.PARTITION_METADATA)
        )

    def has_directory(self, topic: str, partition: int) -> bool:
        return self.disk.exists(self._partition_path(topic, partition))

    def missing(self) -> dict[TopicPartition, int]:
        """The partitions with a recovery point, which was durable, but without a directory: {partition: point}."""
        here = set(self.partitions())
        return {key: point for key, point in sorted(self._files.points.items()) if key not in here}

    def forget(self, topic: str, partition: int) -> bool:
        """Remove the checkpoint entries of a partition whose directory is intentionally removed.

        False: it had none. The caller saves the checkpoints before it counts as removed: a later topic of the name has
        no directory at first, and the next start would miss it.
        """
        key = (topic, partition)
        has_entry = key in self._files.points
        self._files.note_point(key, None)
        self._files.note_start(key, None)
        return has_entry

    def set_aside(self, topic: str, partition: int, *, unique: str) -> str:
        """Rename the partition's directory, which is not open, to a unique name with `-stray`. Returns its new path.

        Its checkpoint entries are removed first, so that the next start does not report it as missing. Raises OSError
        if the directory cannot be renamed.
        """
        self.forget(topic, partition)
        self.save_checkpoints()
        aside = self._path(renamed_directory(topic, partition, unique=unique, suffix=STRAY_SUFFIX))
        self.disk.rename(self._partition_path(topic, partition), aside)
        self.disk.sync_dir(self.root)
        return aside

    def open_log(
        self,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        now_ms: int,
        topic_id: bytes | None = None,
        settles_later: bool = False,
        allow_data_loss: bool = False,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
    ) -> Log:
        """Open the partition's log, recover it after a crash, or create it. A log must not be open twice.

        `settles_later`: see `Log.open`.
        Raises, without a change for other partitions: OSError for files that this process cannot use, WrongDirectory
        for a directory with another topic id, CorruptLog and CorruptCheckpoint for damaged files.
        """
        key = (topic, partition)
        assert key not in self.logs, f"{topic}-{partition} is open already"
        path = self._partition_path(topic, partition)
        self.disk.check_room(OPEN_FILES)
        is_new = not self.disk.exists(path)
        if is_new:
            self.disk.mkdir(path, durable=False)
            if point := self._files.points.get(key, 0):
                self._event(
                    "log_damaged",
                    file=path,
                    position=0,
                    reason=f"the directory is missing, it was durable up to {point}",
                )
            self.forget(topic, partition)
        else:
            self.disk.check_directory(path)
            if topic_id is not None and self._has_nothing_durable(topic, partition):
                self._clear_away(topic, partition, topic_id)
                is_new = True
        if topic_id is not None:
            self._claim(topic, partition, topic_id)
        is_synced = key in self._left_synced and not is_new
        self._left_synced.discard(key)
        log = Log.open(
            self.disk,
            path,
            config,
            now_ms=now_ms,
            recovery_point=self._files.points.get(key),
            start_offset=self._files.starts.get(key, 0),
            clean=self.was_clean and not is_new,
            is_synced=is_synced,
            settles_later=settles_later,
            allow_data_loss=allow_data_loss,
            event=partial(self._event, topic=topic, partition=partition),
            checkpoint_bytes=checkpoint_bytes,
            checkpoint=_LogCheckpoint(self, key),
            is_own=topic_id is not None and (is_new or self.has_checked_topic_id(topic, partition)),
        )
        if is_new:
            self.disk.sync_dir_later(self.root)
        self.logs[key] = log
        return log

    def is_interrupted(self, topic: str, partition: int) -> bool:
        """Whether the opening of a log that is not open finishes a change in durable steps, and blocks meanwhile. Also
        True if its directory cannot be read.
        """
        start_offset = self._files.starts.get((topic, partition), 0)
        try:
            return is_interrupted(self.disk, self._partition_path(topic, partition), start_offset, clean=self.was_clean)
        except OSError:
            return True

    def _has_nothing_durable(self, topic: str, partition: int) -> bool:
        """Whether a power loss took the topic id: then no record beside it was durable, or is of this topic for sure.

        A sync of records makes the topic id durable first. Logs of other programs without a topic id have an entry in
        the checkpoint file, or no records.
        """
        return self.was_never_durable(topic, partition) and self.has_records(topic, partition)

    def was_never_durable(self, topic: str, partition: int) -> bool:
        """Whether it has neither a topic id nor an entry in the checkpoint file. Raises CorruptCheckpoint."""
        return (topic, partition) not in self._files.points and self.topic_id(topic, partition) is None

    def has_records(self, topic: str, partition: int) -> bool:
        """Whether a segment of the partition, which need not be open, has bytes."""
        return self.size_of(topic, partition) > 0

    def size_of(self, topic: str, partition: int) -> int:
        """Bytes of the segments of a partition, which need not be open. Raises OSError, MissingFile."""
        path = self._partition_path(topic, partition)
        return sum(self.disk.size(f"{path}/{name}") for name in self.disk.listdir(path) if name.endswith(LOG))

    def _clear_away(self, topic: str, partition: int, topic_id: bytes) -> None:
        """Rename the directory to a unique name with `-stray`, and make an empty one."""
        path, number = self._partition_path(topic, partition), 0
        while self.disk.exists(aside := self._path(self._stray_name(topic, partition, topic_id, number))):
            number += 1
        self.disk.rename(path, aside)
        self.disk.mkdir(path, durable=False)
        self._event(
            "records_without_topic_id_set_aside",
            topic=topic,
            partition=partition,
            directory=aside,
            do="a power loss took the topic id before any of these records was durable: remove the directory",
        )

    @staticmethod
    def _stray_name(topic: str, partition: int, topic_id: bytes, number: int) -> str:
        unique = f"{checkpoints.topic_id_text(topic_id).replace('-', '_')}.{number}"
        return renamed_directory(topic, partition, unique=unique, suffix=STRAY_SUFFIX)

    def _claim(self, topic: str, partition: int, topic_id: bytes) -> None:
        """Write the topic id into a directory without one. Raises WrongDirectory if it has that of another topic."""
        known, path = self.topic_id(topic, partition), self._partition_path(topic, partition)
        file = f"{path}/{checkpoints.PARTITION_METADATA}"
        if known is None:
            checkpoints.write_topic_id(self.disk, file, topic_id)
        elif known != topic_id:
            raise WrongDirectory(
                f"{path} has the records of another topic: the topic id there is {checkpoints.topic_id_text(known)}, "
                f"that of {topic} is {checkpoints.topic_id_text(topic_id)}; move the directory away"
            )
        elif (topic, partition) not in self._files.points and (topic, partition) not in self._left_synced:
            self._owe(file, path)

    def _owe(self, file: str, directory: str) -> None:
        """A killed process may have left a topic id and its names in the kernel's cache only."""
        self.disk.sync_later(file)
        self.disk.sync_dir_later(directory)
        self.disk.sync_dir_later(self.root)

    def delete_log(self, topic: str, partition: int, *, unique: str) -> None:
        """Delete the partition: its directory is renamed now, its files are deleted soon after.

        `unique` makes the new name of the directory unique (a number or id never used before).
        """
        self.delete_logs(topic, [partition], unique=unique)

    def delete_logs(self, topic: str, partitions: Iterable[int], *, unique: str) -> None:
        """Delete partitions of a topic as `delete_log` does one; all share the syncs, for which the caller waits.

        Raises NotRemoved.
        """
        deletion = self.deletion(topic, partitions, unique=unique)
        for _ in deletion.forget():
            pass
        self.disk.finish_asides()
        self.save_checkpoints()
        for _ in deletion.rename():
            pass
        self.disk.settle_now(self.root)
        for _ in deletion.remove():
            pass

    def deletion(self, topic: str, partitions: Iterable[int], *, unique: str) -> "Deletion":
        """`delete_logs` in steps, so that a topic with many partitions does not hold the event loop.

        No log of these partitions may be opened before the end.
        """
        return Deletion(self, topic, partitions, unique)

    async def checkpoint(self) -> None:
        """Make every log durable and move its recovery point to its end (log.flush.offset.checkpoint.interval.ms)."""
        for number, key in enumerate(sorted(self.logs), 1):
            log = self.logs.get(key)
            if log is not None and not log.is_in_truncation and log.durability.recovery_point < log.end_offset:
                await log.durability.checkpoint()
            if not number % LOGS_PER_TURN:
                await asyncio.sleep(0)
        for number, key in enumerate(list(self.logs), 1):
            self.note_log(key)
            if not number % LOGS_PER_TURN:
                await asyncio.sleep(0)
        await self.saved()

    def note_log(self, key: TopicPartition) -> None:
        """Note the recovery point and the start offset of an open log, as of now."""
        log = self.logs.get(key)
        if log is None:
            return
        self._files.note_point(key, log.durability.recovery_point)
        if log.start_offset > log.segments[0].base_offset:
            self._files.note_start(key, log.start_offset)
        elif not self.disk.owes(log.segments[0].path(LOG)):
            self._files.note_start(key, None)  # unless a power loss could bring segments below it back

    def save_checkpoints(self) -> None:
        """Write both checkpoint files as of now, durably. Blocks."""
        for key in self.logs:
            self.note_log(key)
        self._files.save_now()

    def save_now(self) -> None:
        """Write what was noted. Blocks."""
        self._files.save_now()

    async def saved(self) -> None:
        """Return once all that was noted before (`note_log`, `forget`) is durable."""
        await self._files.saved()

    async def forgotten(self) -> None:
        """Return once directories of logs that were closed and forgotten may be renamed: no thread writes there, and
        their entries are removed durably.
        """
        await self.disk.asides_done()
        await self.saved()

    def save_soon(self) -> None:
        """Begin to write the noted changes, and return at once."""
        self._files.save_soon()

    async def idle(self) -> None:
        """Return once nothing is written on a thread."""
        await self._files.idle()

    def close(self) -> None:
        """Clean shutdown: close every log, save the checkpoints, write the clean shutdown marker, release the lock.

        After an unclean shutdown, a partition that was not opened is not recovered yet. Then there is no marker, and
        the next open recovers every log from its recovery point.
        """
        is_recovered = self.was_clean or self.logs.keys() >= set(self.partitions())
        is_clean = is_recovered and not self.missing()
        self.disk.finish_asides()
        self.disk.sync_all_now([file for log in self.logs.values() for file in log.prepare_close()])
        self.disk.sync_all_now([log.active.file for log in self.logs.values() if log.durability.note_prepared()])
        for key in sorted(self.logs):
            self.logs[key].close()
        self.save_checkpoints()
        self.logs.clear()
        if is_clean:
            self._mark_clean()
        self._unlock()

    def abandon(self) -> None:
        """Release the lock without the clean shutdown marker, because the start has failed or was stopped.

        A directory of which no log was opened is as the last stop left it: it keeps the marker.
        """
        if self.was_clean and not self.logs and not self.missing():
            self._mark_clean()
        for key in sorted(self.logs):
            self.logs[key].abandon()
        self.logs.clear()
        self._unlock()

    def _mark_clean(self) -> None:
        self.disk.write_atomically(self._path(checkpoints.CLEAN_SHUTDOWN), b'{"version":0,"brokerEpoch":-1}')

    def _take(self, left_logs_min: int) -> None:
        """After locking: remove the clean shutdown marker and finish interrupted deletions."""
        marker = self._path(checkpoints.CLEAN_SHUTDOWN)
        self.was_clean = self.disk.exists(marker)
        self.disk.remove(marker)
        foreign = []
        for name in self.disk.listdir(self.root):
            if name.endswith(DELETE_SUFFIX) and "." in name:
                try:
                    self.disk.rmtree(self._path(name))
                except OSError as error:
                    self.report_removal(self._path(name), error)
            elif not name.isascii() or (_LIKE_PARTITION.fullmatch(name) and not _PARTITION.fullmatch(name)):
                foreign.append(name)
        if foreign:
            self._problem(
                "foreign_names_ignored",
                directory=self.root,
                names=foreign[:NAMES_SHOWN_MAX],
                count=len(foreign),
                do="no broker gives such names: move them to another directory",
            )
        self.disk.sync_dir(self.root)
        left = self.partitions()
        if not self.was_clean and len(left) >= left_logs_min and self.disk.sync_file_system(self.root):
            self._left_synced.update(left)

    def report_removal(self, path: str, error: Exception) -> None:
        self._problem(
            "directory_not_removed",
            directory=path,
            error=str(error),
            do="let the broker's user change it, or remove it; the next start of the broker tries it again",
        )

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _partition_path(self, topic: str, partition: int, name: str | None = None) -> str:
        path = self._path(partition_directory(topic, partition))
        return path if name is None else f"{path}/{name}"


class Deletion:
    """The deletion of partitions of a topic in three parts, each in steps: they yield 1 after each.

    Await `LogDirectory.forgotten` before `rename`: else the next start could report a missing directory, or a thread
    could write into the directory of a new topic of the name.
    The debts of the data directory must be paid before `remove`, which at last raises NotRemoved if some remain.
    """

    def __init__(self, logs: LogDirectory, topic: str, partitions: Iterable[int], unique: str) -> None:
        self._logs = logs
        self._topic = topic
        self._partitions = partitions
        self._unique = unique
        self._doomed: list[int] = []
        self._renamed: list[str] = []
        self._failures: list[str] = []

    def forget(self) -> Generator[int, None, int]:
        """Close the logs and forget their checkpoint entries. Returns the number of directories."""
        for partition in self._partitions:
            log = self._logs.logs.pop((self._topic, partition), None)
            if log is not None:
                log.abandon()
            self._logs.forget(self._topic, partition)
            if self._logs.has_directory(self._topic, partition):
                self._doomed.append(partition)
            yield 1
        return len(self._doomed)

    def rename(self) -> Generator[int, None, int]:
        """Take their names from the directories. Returns how many could be renamed."""
        disk, root = self._logs.disk, self._logs.root
        for partition in self._doomed:
            path = f"{root}/{partition_directory(self._topic, partition)}"
            new = f"{root}/{renamed_directory(self._topic, partition, unique=self._unique, suffix=DELETE_SUFFIX)}"
            try:
                disk.rename(path, new)
            except (OSError, MissingFile) as error:
                self._logs.report_removal(path, error)
                self._failures.append(f"{path}: {error}")
            else:
                self._renamed.append(new)
            yield 1
        if self._renamed:
            disk.sync_dir_later(root)
        return len(self._renamed)

    def remove(self) -> Generator[int, None, int]:
        """Remove the files. Returns the number of directories."""
        for new in self._renamed:
            self._logs.disk.remove_later(new)
            yield 1
        if self._failures:
            raise NotRemoved(f"{self._failures[0]} ({len(self._failures)} of {len(self._doomed)} directories remain)")
        return len(self._renamed)
