"""Makes one log durable: syncs its files, writes producer snapshots and advances the recovery point."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from semel_storage import checkpoints
from semel_storage.disk.disk import Disk, File
from semel_storage.log.recovery import Recovered
from semel_storage.log.snapshot import Snapshots
from semel_storage.producers.producer_table import ProducerTable
from semel_storage.segments.epochs import EpochHistory
from semel_storage.segments.segment import Segment
from semel_storage.segments.segments import Segments

NOWHERE = -1


class LogState(Protocol):
    """What `Durability` reads of its log."""

    @property
    def end_offset(self) -> int: ...
    @property
    def bytes_appended(self) -> int: ...
    @property
    def segments(self) -> Segments: ...
    @property
    def producers(self) -> ProducerTable: ...
    @property
    def epochs(self) -> EpochHistory: ...


class Durability:
    """Syncs one log.

    Everything below `synced_offset` survives a power loss. Recovery scans the log from `recovery_point` on: everything
    below it is durable, and there is a producer snapshot of this offset. `save_checkpoints` writes the recovery point
    and the start offset to their files; it is called when one of them changes.

    `sync_due_bytes` and `snapshot_due_bytes` are values of the log's `bytes_appended`. From the first on, the log calls
    `sync_in_background`; from the second on, a sync ends with a producer snapshot.
    """

    def __init__(
        self,
        log: LogState,
        state: Recovered,
        disk: Disk,
        directory: str,
        *,
        checkpoint_bytes: int,
        save_checkpoints: Callable[[], None],
    ) -> None:
        self.synced_offset: int = state.end_offset
        self.recovery_point: int = state.recovery_point
        self.snapshots: Snapshots = state.snapshots
        self.save_checkpoints = save_checkpoints
        self.sync_due_bytes = log.bytes_appended + checkpoint_bytes
        self._log = log
        self._disk = disk
        self._directory = directory
        self._checkpoint_bytes = checkpoint_bytes
        self.snapshot_due_bytes = self.sync_due_bytes - state.replayed_bytes
        self._snapshot_offset = state.recovery_point
        self._unsynced: list[Segment] = []
        self._truncations = 0
        self._end_in_gap = NOWHERE
        """The end offset after a truncation if no batch ends there: recovery could not find it."""
        self._is_closed = False
        self._background: asyncio.Task[None] | None = None

    async def sync(self) -> None:
        """Return once everything appended before this call is durable; raises `synced_offset`.

        Group commit: concurrent callers share an fdatasync. Also raises the recovery point after a snapshot. Returns
        early if the log is closed in the meantime: a clean close has synced it, an abandoned log needs no sync.
        """
        await self._make_durable()
        if self.recovery_point < self._snapshot_offset <= self.synced_offset and await self._raise_recovery_point():
            self.save_checkpoints()
        if self._is_closed:
            return
        if self._log.bytes_appended >= self.snapshot_due_bytes:
            self.write_snapshot()

    def unsynced_file(self) -> File | None:
        """The only file to sync, for `note_synced`; None if more is necessary: then await `sync()`."""
        if (
            self._unsynced
            or self._is_closed
            or self.recovery_point < self._snapshot_offset
            or self._log.bytes_appended >= self.snapshot_due_bytes
        ):
            return None
        return self._log.segments.all[-1].file

    def note_synced(self) -> None:
        """The caller has synced `unsynced_file()` in this turn of the loop."""
        log = self._log
        active = log.segments.all[-1]
        log.segments.remember(log.end_offset, active, active.size)
        self.sync_due_bytes = log.bytes_appended + self._checkpoint_bytes
        self.synced_offset = log.end_offset

    async def checkpoint(self) -> None:
        """Make all durable and raise the recovery point to the current end offset. The caller saves it."""
        self.write_snapshot()
        await self._make_durable()
        await self._raise_recovery_point()

    async def _raise_recovery_point(self) -> bool:
        """Raise the recovery point to the last snapshot after a sync of the transaction index. False: not raised."""
        offset, truncations = self._snapshot_offset, self._truncations
        await self._log.segments.all[-1].aborted.sync()
        if (
            self._is_closed
            or truncations != self._truncations
            or not self.recovery_point < offset <= self.synced_offset
            or offset == self._end_in_gap
        ):
            return False
        self.recovery_point = offset
        return True

    def close(self) -> None:
        """Make all durable and raise the recovery point to the end offset. The caller saves it. Blocks."""
        end_offset = self._log.end_offset
        self._stop_background()
        self.write_snapshot()
        if self.synced_offset < end_offset:
            for file in self._unsynced_files():
                file.sync_now()
        self.synced_offset = end_offset
        if end_offset != self._end_in_gap:
            self.recovery_point = end_offset
        self._is_closed = True

    def abandon(self) -> None:
        """Stop syncing: the content of the log is not needed any more."""
        self._stop_background()
        self._is_closed = True

    def note_rolled(self, sealed: Segment) -> None:
        """The log continues in a new segment: the next sync includes `sealed`. Writes a snapshot of its end offset."""
        self._unsynced.append(sealed)
        self.write_snapshot()

    def lower_to(self, end_offset: int, *, last_batch_end: int) -> None:
        """The log will be truncated to `end_offset`; the last remaining batch ends at `last_batch_end`."""
        if last_batch_end != end_offset:
            self._end_in_gap = end_offset
        self._truncations += 1
        self.recovery_point = min(self.recovery_point, last_batch_end)
        self.synced_offset = min(self.synced_offset, end_offset)
        self._snapshot_offset = min(self._snapshot_offset, end_offset)

    def restart_at(self, offset: int) -> None:
        """The log is empty, durably, and starts at `offset`."""
        self._unsynced.clear()
        self.synced_offset = self.recovery_point = self._snapshot_offset = offset
        self.sync_due_bytes = self.snapshot_due_bytes = self._log.bytes_appended + self._checkpoint_bytes

    def write_snapshot(self) -> None:
        """Write the producer snapshot of the end offset, the index entries in memory and the leader epochs."""
        log = self._log
        end_offset, active = log.end_offset, log.segments.all[-1]
        if self._snapshot_offset != end_offset or not self.snapshots.has(end_offset):
            keep, states = [*log.segments.bases, self.recovery_point], log.producers.all()
            ending = log.segments.all[-2:][0] if active.size == 0 else active  # it ends at this offset
            # In an empty log no records tell of these producers, so a power loss must not damage the snapshot.
            durable = bool(states) and end_offset == log.segments.all[0].base_offset
            self.snapshots.write(end_offset, states, keep=keep, aborted=ending.aborted.sums, durable=durable)
            self._snapshot_offset = end_offset
        active.flush_indexes()
        if log.epochs.is_dirty:
            checkpoints.write_epochs(self._disk, f"{self._directory}/{checkpoints.LEADER_EPOCH}", log.epochs.entries)
            log.epochs.is_dirty = False
        self.snapshot_due_bytes = log.bytes_appended + self._checkpoint_bytes

    async def _make_durable(self) -> None:
        log = self._log
        while log.end_offset > self.synced_offset and not self._is_closed:
            end_offset = log.end_offset
            truncations = self._truncations
            active = log.segments.all[-1]
            rolled = list(self._unsynced)
            log.segments.remember(end_offset, active, active.size)
            self.sync_due_bytes = log.bytes_appended + self._checkpoint_bytes
            for file in self._unsynced_files():
                await file.sync()
            if truncations != self._truncations or self._is_closed:
                continue
            self._unsynced = [segment for segment in self._unsynced if segment not in rolled]
            self.synced_offset = max(self.synced_offset, end_offset)
            break

    def _unsynced_files(self) -> list[File]:
        segments = (*self._unsynced, self._log.segments.all[-1])
        return [segment.file for segment in segments if not segment.is_deleted]

    def sync_in_background(self) -> None:
        """Start a checkpoint task; bounds the scan after a crash if no caller waits for syncs (durability=os)."""
        if self._background is not None and not self._background.done():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return

        async def run() -> None:
            await self.checkpoint()
            self.save_checkpoints()

        self._background = loop.create_task(run(), name=f"sync {self._directory}")

    def _stop_background(self) -> None:
        if self._background is not None:
            self._background.cancel()
            self._background = None
