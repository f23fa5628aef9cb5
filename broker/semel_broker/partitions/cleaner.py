"""Background work on the logs: retention, rolling by time, checkpoints, expiry of producers, compaction.

There are two tasks. *Sweeps* are short and run by the clock, one after the other. *Compaction* may take minutes: it
takes the dirtiest log first (an overdue log before all others), yields to the loop every few milliseconds, and pauses
for `log.cleaner.backoff.ms` when no log is dirty. The offset where it stopped is kept beside each log in
`cleaner-offset-checkpoint`. Kafka has one such file for the whole data directory. Beside the log it is deleted with the
log, so that a new topic with an old name never starts at the offset of the old one: deleted keys could come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from semel_protocol.batch import CorruptBatch
from semel_storage import checkpoints
from semel_storage.compaction.compaction import Compacted, CompactionAborted, Dirtiness, compact, dirtiness
from semel_storage.compaction.filter import BYTES_PER_KEY
from semel_storage.compaction.retention import retention
from semel_storage.log.log import Log
from semel_storage.segments.segment import CorruptLog

from semel_broker.cluster.topic_plan import INTERNAL_TOPICS
from semel_broker.config.loading import BrokerConfig
from semel_broker.partitions.disk_space import DiskSpace
from semel_broker.partitions.partition import Partition
from semel_broker.world import World

CLEANER_OFFSET = checkpoints.CLEANER_OFFSET
MS = 1000
LOGS_PER_TURN = 64
"""Logs that compaction looks at in one turn of the event loop. At the first look it reads a file of each."""

TopicPartition = tuple[str, int]


class CompactionProgress(msgspec.Struct):
    """How far one log is compacted."""

    log: Log
    first_dirty_offset: int
    is_uncleanable: bool = False
    """Compaction has failed on a batch, and leaves the log alone."""


class Sweep(msgspec.Struct):
    """A function to run at intervals."""

    interval_ms: int
    run: Callable[[], Awaitable[None]]
    due_s: float
    """The next time, on the clock of the loop."""


class Cleaner:
    """Runs the background work on all open logs. `start` it on a running loop, `stop` it before the logs are closed.

    `partitions` returns the partitions whose logs are open, in a fixed order; `checkpoint` moves the recovery points
    of all logs up to their ends (`LogDirectory.checkpoint`). `space`: watched meanwhile; compaction needs some.
    """

    def __init__(
        self,
        world: World,
        config: BrokerConfig,
        *,
        partitions: Callable[[], Sequence[Partition]],
        checkpoint: Callable[[], Awaitable[None]],
        space: DiskSpace | None = None,
    ) -> None:
        self._world = world
        self._config = config
        self._partitions = partitions
        self._checkpoint = checkpoint
        self._space = space
        self._progress: dict[TopicPartition, CompactionProgress] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start both tasks; returns at once."""
        assert not self._tasks, "the cleaner is running already"
        if self._space is not None:
            self._space.start()
            self._space.hangs.start()
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._run_sweeps(), name="log sweeps"))
        if self._config.log_cleaner_enable:
            self._tasks.append(loop.create_task(self._run_compaction(), name="log compaction"))

    async def stop(self) -> None:
        """Cancel both tasks; a compaction that runs leaves its log unchanged."""
        if self._space is not None:
            self._space.stop()
            self._space.hangs.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # --- sweeps ----------------------------------------------------------------------------------------------

    async def _run_sweeps(self) -> None:
        config, time = self._config, asyncio.get_running_loop().time
        sweeps = [
            Sweep(interval_ms, run, time() + interval_ms / MS)
            for interval_ms, run in (
                (config.log_retention_check_interval_ms, self.sweep_segments),
                (config.log_flush_offset_checkpoint_interval_ms, self._checkpoint),
                (config.producer_id_expiration_check_interval_ms, self.sweep_producers),
            )
        ]
        while True:
            sweep = min(sweeps, key=lambda s: s.due_s)
            await asyncio.sleep(max(0.0, sweep.due_s - time()))
            try:
                await sweep.run()
            except Exception:  # the other sweeps go on; the next run tries again
                self._world.log.exception("log_sweep_failed", sweep=sweep.run.__name__)
            sweep.due_s = time() + sweep.interval_ms / MS

    async def sweep_segments(self) -> None:
        """Roll segments that are open for too long, and delete those past retention (`retention`)."""
        for partition in self._partitions():
            await asyncio.sleep(0)
            if partition.is_retired or partition.log.is_in_truncation:
                continue
            log, now_ms = partition.log, self._world.now_ms()
            if not log.can_roll:
                await log.settle()
            if partition.is_retired or partition.is_changing or not log.can_roll:
                continue  # the next sweep
            if not log.roll_if_due(now_ms) and (_delays_compaction(log, now_ms) or self._is_long(partition)):
                log.roll()
            while await self._delete_expired(partition, log, now_ms):
                pass

    async def _delete_expired(self, partition: Partition, log: Log, now_ms: int) -> bool:
        """Delete some segments past retention. False: there are no more."""
        if partition.is_retired or partition.is_changing:
            return False
        deleted = await log.carry_out(retention(log, high_watermark=partition.high_watermark, now_ms=now_ms))
        if deleted is None:
            return False
        self._world.log.info(
            "segments_deleted",
            topic=partition.topic,
            partition=partition.index,
            segments=deleted.segments,
            size_bytes=deleted.size_bytes,
            log_start_offset=deleted.start_offset,
            reason=deleted.reason,
        )
        return True

    def _is_long(self, partition: Partition) -> bool:
        """Whether the active segment of an internal topic, which compaction skips, is too long to read at a start."""
        size_max = self._config.limits.journal_uncompacted_bytes_max
        return partition.topic in INTERNAL_TOPICS and partition.log.active.size > size_max

    async def sweep_producers(self) -> None:
        """Remove producers that have not written for producer.id.expiration.ms."""
        for partition in self._partitions():
            if not partition.is_retired:
                partition.log.producers.expire(self._world.now_ms(), self._config.producer_id_expiration_ms)
                await asyncio.sleep(0)

    # --- compaction ------------------------------------------------------------------------------------------

    async def _run_compaction(self) -> None:
        while True:
            try:
                has_more = await self.compact_dirtiest()
            except Exception:
                has_more = False
                self._world.log.exception("compaction_failed")
            await asyncio.sleep(0 if has_more else self._config.log_cleaner_backoff_ms / MS)

    async def compact_dirtiest(self) -> bool:
        """Compact the log that needs it most, once. False if no log is due, or if the round was aborted."""
        found = await self._dirtiest()
        if found is None:
            return False
        partition, progress, dirty = found
        if not dirty.is_due(progress.log.config):
            return False
        where = {"topic": partition.topic, "partition": partition.index}
        held_by_all = partition.held_by_all
        try:
            done = await compact(
                progress.log,
                dirty,
                now_ms=self._world.now_ms(),
                keys_max=self._config.log_cleaner_dedupe_buffer_size // BYTES_PER_KEY,
                held_by_all=held_by_all,
                pause=lambda: _pause(partition, held_by_all),
            )
        except CompactionAborted as e:
            self._world.log.info("compaction_aborted", **where, reason=str(e))
            return False
        except (CorruptBatch, CorruptLog) as e:
            progress.is_uncleanable = True
            self._world.log.error("log_uncleanable", **where, reason=e.message)
            return False
        except Exception:
            progress.is_uncleanable = True  # a bug of ours: it would fail each time
            raise
        await self._save(partition, progress, done)
        self._world.log.info(
            "log_compacted",
            **where,
            from_offset=dirty.first_dirty_offset,
            to_offset=done.end_offset,
            bytes_before=done.bytes_before,
            bytes_after=done.bytes_after,
            complete=done.is_complete,
        )
        return True

    async def _dirtiest(self) -> tuple[Partition, CompactionProgress, Dirtiness] | None:
        """The log that needs compaction most: overdue logs first, then by the share of dirty bytes."""
        found = []
        known, self._progress = self._progress, {}
        for number, partition in enumerate(self._partitions(), 1):
            if not number % LOGS_PER_TURN:
                await asyncio.sleep(0)
            if partition.is_retired or not partition.log.config.is_compacted:
                continue
            log = partition.log
            key = (partition.topic, partition.index)
            progress = known.get(key)
            if progress is None or progress.log is not log:
                progress = CompactionProgress(log, self._load(key, log))
            self._progress[key] = progress
            if not (progress.is_uncleanable or partition.is_changing) and self._has_room_to_compact(log):
                dirty = self._dirtiness(partition, progress)
                if dirty.is_due(log.config):
                    found.append((partition, progress, dirty))
        present = [item for item in found if not (item[0].is_retired or item[0].is_changing)]
        if not present:
            return None
        partition, progress, _ = max(present, key=lambda item: (item[2].overdue, item[2].ratio))
        return partition, progress, self._dirtiness(partition, progress)  # the log may have been truncated meanwhile

    def _dirtiness(self, partition: Partition, progress: CompactionProgress) -> Dirtiness:
        return dirtiness(
            progress.log,
            progress.first_dirty_offset,
            last_stable_offset=partition.last_stable_offset,
            now_ms=self._world.now_ms(),
        )

    def _has_room_to_compact(self, log: Log) -> bool:
        """Whether the disk has room for the copy of a group of segments, before the old ones are removed."""
        largest = max(log.config.segment_bytes, max(segment.size for segment in log.segments))
        return self._space is None or self._space.has_room(min(log.size, largest))

    def _load(self, key: TopicPartition, log: Log) -> int:
        try:
            return checkpoints.read_offsets(self._world.disk, f"{log.directory}/{CLEANER_OFFSET}").get(key, 0)
        except checkpoints.CorruptCheckpoint as e:
            self._world.log.warning("cleaner_offset_unusable", reason=str(e))
            return 0

    async def _save(self, partition: Partition, progress: CompactionProgress, done: Compacted) -> None:
        progress.first_dirty_offset = done.end_offset
        key, path = (partition.topic, partition.index), f"{progress.log.directory}/{CLEANER_OFFSET}"
        if not partition.is_retired:
            await self._world.disk.write_aside(path, checkpoints.encode_offsets({key: done.end_offset}))


def _delays_compaction(log: Log, now_ms: int) -> bool:
    """Whether the active segment, which is never compacted, holds a record older than max.compaction.lag.ms."""
    active, lag_ms = log.active, log.config.max_compaction_lag_ms
    return log.config.is_compacted and active.size > 0 and now_ms - active.oldest_ms > lag_ms


async def _pause(partition: Partition, held_by_all: int) -> None:
    """Yield to the loop.

    Raises CompactionAborted if the partition was deleted, or if a replica may lack records that this round treats as
    held by all.
    """
    await asyncio.sleep(0)
    if partition.is_retired:
        raise CompactionAborted(f"{partition.topic}-{partition.index} is deleted")
    if partition.held_by_all < held_by_all:
        raise CompactionAborted(f"not all replicas of {partition.topic}-{partition.index} are in sync any more")
