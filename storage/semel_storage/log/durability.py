"""What makes one partition's log last: syncs, snapshots of its producers, and the recovery point."""

import asyncio
from collections.abc import Callable

from semel_storage import checkpoints
from semel_storage.disk.disk import Disk, File
from semel_storage.log.read_index import LogReader
from semel_storage.log.recovery import Recovered
from semel_storage.log.snapshot import Snapshots
from semel_storage.segments.epochs import EpochHistory
from semel_storage.segments.segment import Segment
from semel_storage.segments.segments import Segments

NOWHERE = -1


class DurableLog(LogReader):
    """The half of `Log` that neither adds nor removes records.

    `recovery_point` is the offset below which a start after a crash need not look at the log: everything below is
    durable and a producer snapshot stands at it. `save_checkpoints` (set by the log directory) is called when the
    recovery point or the start offset has changed and must reach its file.
    """

    def __init__(self, disk: Disk, directory: str, state: Recovered, *, checkpoint_bytes: int) -> None:
        super().__init__(Segments(state.segments), state.start_offset, state.end_offset, state.producers)
        self.disk = disk
        self.directory = directory
        self.synced_offset: int = state.end_offset
        self.recovery_point: int = state.recovery_point
        self.epochs: EpochHistory = state.epochs
        self.save_checkpoints: Callable[[], None] = lambda: None
        self._snapshots: Snapshots = state.snapshots
        self._checkpoint_bytes = checkpoint_bytes
        self._bytes_since_snapshot = state.replayed_bytes
        self._bytes_since_sync = 0
        self._snapshot_offset = state.recovery_point
        self._unsynced: list[Segment] = []
        self._truncations = 0
        self._end_in_gap = NOWHERE  # the end offset, where the log was cut and no batch ends there: no start can tell
        self._is_closed = False
        self._background: asyncio.Task[None] | None = None

    async def sync(self) -> None:
        """Return once everything appended before this call is durable; moves `synced_offset`.

        Group commit: concurrent callers share an fdatasync. From time to time also moves the recovery point. Returns
        early when the log is closed meanwhile: a clean close has synced it, an abandoned log has nothing to keep.
        """
        await self._make_durable()
        if self.recovery_point < self._snapshot_offset <= self.synced_offset and await self._raise_recovery_point():
            self.save_checkpoints()
        if self._is_closed:
            return
        if self._bytes_since_snapshot >= self._checkpoint_bytes:
            self._write_snapshot()

    def unsynced_file(self) -> File | None:
        """The file whose sync makes all durable; None where there is more to it than that: `await sync()`."""
        if (
            self._unsynced
            or self._is_closed
            or self.recovery_point < self._snapshot_offset
            or self._bytes_since_snapshot >= self._checkpoint_bytes
        ):
            return None
        return self.segments[-1].file

    def note_synced(self) -> None:
        """That file has been synced, in this turn of the loop."""
        active = self.segments[-1]
        self._segments.remember(self.end_offset, active, active.size)
        self._bytes_since_sync = 0
        self.synced_offset = self.end_offset

    async def checkpoint(self) -> None:
        """Make all durable and move the recovery point to what is the end now; to be saved by the caller."""
        self._write_snapshot()
        await self._make_durable()
        await self._raise_recovery_point()

    async def _raise_recovery_point(self) -> bool:
        """Up to the last snapshot, once the index of aborted transactions is as durable as the log. Says if it did."""
        offset, truncations = self._snapshot_offset, self._truncations
        await self.active.aborted.sync()
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
        """Clean close: all durable, snapshot and recovery point at the end, to be saved by the caller. Blocks."""
        self._stop_background()
        self._write_snapshot()
        if self.synced_offset < self.end_offset:
            for file in self._unsynced_files():
                file.sync_now()
        self.synced_offset = self.end_offset
        if self.end_offset != self._end_in_gap:
            self.recovery_point = self.end_offset
        self._is_closed = True
        self.active.sync_indexes()
        for segment in self.segments:
            segment.close()

    def abandon(self) -> None:
        """Close the files and keep nothing: the log is about to be deleted, or was not opened for good."""
        self._stop_background()
        self._is_closed = True
        for segment in self.segments:
            segment.close()

    def _write_snapshot(self) -> None:
        if self._snapshot_offset != self.end_offset or not self._snapshots.has(self.end_offset):
            keep = [*self._segments.bases, self.recovery_point]
            ending = self.segments[-2:][0] if self.active.size == 0 else self.active  # the one that ends at this offset
            aborted = ending.aborted.sums
            self._snapshots.write(self.end_offset, self._producers.all(), keep=keep, aborted=aborted)
            self._snapshot_offset = self.end_offset
        self.active.flush_indexes()
        if self.epochs.is_dirty:
            checkpoints.write_epochs(self.disk, f"{self.directory}/{checkpoints.LEADER_EPOCH}", self.epochs.entries)
            self.epochs.is_dirty = False
        self._bytes_since_snapshot = 0

    async def _make_durable(self) -> None:
        while self.end_offset > self.synced_offset and not self._is_closed:
            end_offset = self.end_offset
            truncations = self._truncations
            active = self.segments[-1]
            rolled = list(self._unsynced)
            self._segments.remember(end_offset, active, active.size)
            self._bytes_since_sync = 0
            for file in self._unsynced_files():
                await file.sync()
            if truncations != self._truncations or self._is_closed:
                continue
            self._unsynced = [segment for segment in self._unsynced if segment not in rolled]
            self.synced_offset = max(self.synced_offset, end_offset)
            break

    def _unsynced_files(self) -> list[File]:
        return [segment.file for segment in (*self._unsynced, self.active) if not segment.is_deleted]

    def _sync_in_background(self) -> None:
        """Keep what a crash would have to scan bounded where nobody waits for a sync (durability = "os")."""
        if self._background is not None and not self._background.done():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return

        async def run() -> None:
            await self.checkpoint()
            self.save_checkpoints()

        self._background = loop.create_task(run(), name=f"sync {self.directory}")

    def _stop_background(self) -> None:
        if self._background is not None:
            self._background.cancel()
            self._background = None
