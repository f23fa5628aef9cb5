"""Makes one log durable: syncs its files, writes producer snapshots and advances the recovery point."""

import asyncio
from collections.abc import Generator
from contextlib import suppress
from typing import Protocol, TypeVar

import msgspec

from semel_storage import checkpoints
from semel_storage.disk.disk import TEMPORARY, Disk, File
from semel_storage.log.recovery import Recovered
from semel_storage.log.snapshot import Snapshots
from semel_storage.producers.producer_table import ProducerTable
from semel_storage.segments.epochs import EpochHistory
from semel_storage.segments.segment import Segment
from semel_storage.segments.segments import Segments

NOWHERE = -1
CLOSING = f".closing{TEMPORARY}"
"""The suffix of epochs that are not in their place yet; recovery removes such files."""


T = TypeVar("T")
Steps = Generator[None, None, T]
"""A change of a log in steps: what a step leaves unsynced must be durable before the next one begins.

Where the generator yields, the debts of the log's directory (`disk.Disk`) and the checkpoint files become durable: on
an event loop while others run (`Log.carry_out`), or at once (`Log.carry_out_now`). In between the log may have been
closed, or another change may have been faster, so the generator looks again after each `yield`.
"""


class LogState(Protocol):
    """The fields of a log that `Durability` reads."""

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


class _EndedLog(msgspec.Struct):
    """The state of a log that is closed. It replaces the log, which has this `Durability`: without a cycle of the two,
    both are freed with the last reference to the log."""

    end_offset: int
    bytes_appended: int
    segments: Segments
    producers: ProducerTable
    epochs: EpochHistory


class Checkpoint(Protocol):
    """The entries of one log in the checkpoint files: its recovery point and its start offset."""

    def note(self) -> None:
        """They have changed: the next write has them as of now."""
        ...

    def save_now(self) -> None:
        """Write them as of now. Blocks."""
        ...

    async def saved(self) -> None:
        """Return once they are durable as of now."""
        ...

    def save_soon(self) -> None:
        """Begin to write them as of now, and return at once."""
        ...


class NoCheckpoint:
    """Of a log without checkpoint files."""

    def note(self) -> None:
        pass

    def save_now(self) -> None:
        pass

    async def saved(self) -> None:
        pass

    def save_soon(self) -> None:
        pass


class Durability:
    """Syncs one log."""

    def __init__(
        self,
        log: LogState,
        state: Recovered,
        disk: Disk,
        directory: str,
        *,
        checkpoint_bytes: int,
        checkpoint_files: Checkpoint,
    ) -> None:
        self.synced_offset: int = state.end_offset
        """Everything below it survives a power loss."""
        self.recovery_point: int = state.recovery_point
        """Recovery scans the log from here on. Everything below is durable, and this offset has a producer snapshot."""
        self.snapshots: Snapshots = state.snapshots
        self.checkpoint_files = checkpoint_files
        """Keeps recovery point and start offset; each change of them is noted there."""
        self.sync_due_bytes = log.bytes_appended + checkpoint_bytes
        """The log's `bytes_appended` from which on the log calls `sync_in_background`."""
        self._log: LogState = log
        self._disk = disk
        self._directory = directory
        self._epochs_path = f"{directory}/{checkpoints.LEADER_EPOCH}"
        self.writing_epochs = asyncio.Lock()
        self._checkpoint_bytes = checkpoint_bytes
        self.snapshot_due_bytes = self.sync_due_bytes - state.replayed_bytes
        """The log's `bytes_appended` from which on a sync ends with a producer snapshot."""
        self._snapshot_offset = state.recovery_point
        self._unsynced: list[Segment] = []
        self._truncations = 0
        self._held: asyncio.Future[None] | None = None
        self._end_in_gap = NOWHERE
        """The end offset after a truncation if no batch ends there: recovery could not find it."""
        self.is_closed = False
        self._has_prepared_epochs = False
        self._background: asyncio.Task[None] | None = None
        self._syncing: asyncio.Task[None] | None = None

    async def sync(self) -> None:
        """Return once everything appended before this call is durable; raises `synced_offset`.

        Group commit: concurrent callers share an fdatasync. Also raises the recovery point after a snapshot. Returns
        early if the log is closed in the meantime: a clean close has synced it, an abandoned log needs no sync.
        """
        await self._make_durable()
        if self.recovery_point < self._snapshot_offset <= self.synced_offset and await self._raise_recovery_point():
            self.checkpoint_files.save_soon()
        if self.is_closed:
            return
        if self._log.bytes_appended >= self.snapshot_due_bytes:
            self.write_snapshot()

    def unsynced_file(self) -> File | None:
        """The only file to sync, for `note_synced`; None if more is necessary: then await `sync()`.

        More is necessary after a roll, which leaves two files, and if `sync` would raise the recovery point or write a
        producer snapshot: those bound what a recovery after a crash has to read.
        """
        if (
            self._unsynced
            or self.is_closed
            or self.recovery_point < self._snapshot_offset
            or self._log.bytes_appended >= self.snapshot_due_bytes
        ):
            return None
        return self._log.segments.all[-1].file

    def note_synced(self) -> None:
        """The caller has synced `unsynced_file()` in this turn of the loop."""
        log = self._log
        assert log.end_offset >= self.synced_offset, "followers and consumers already count on records up to there"
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
        """Raise the recovery point to the last snapshot. False: not raised.

        Recovery will not replay what is below it: epochs, transaction index and all debts of the directory (sealed
        indexes, names) are durable first.
        """
        offset, truncations = self._snapshot_offset, self._truncations
        active = self._log.segments.all[-1]
        async with self.writing_epochs:
            if self._log.epochs.is_dirty and not self.is_closed:
                entries, self._log.epochs.is_dirty = self._log.epochs.entries, False
                await self._disk.write_aside(self._epochs_path, checkpoints.encode_epochs(entries))
        if not self.is_closed and not active.is_deleted:
            await active.aborted.sync()
        if not self.is_closed and not active.is_deleted:
            await active.file.sync()
        if (
            self.is_closed
            or truncations != self._truncations
            or self._held is not None
            or not self.recovery_point < offset <= self.synced_offset
            or offset == self._end_in_gap
        ):
            return False
        self.recovery_point = offset
        return True

    def close(self) -> None:
        """Make all durable and raise the recovery point to the end offset. The caller saves it. Blocks."""
        end_offset = self._log.end_offset
        assert end_offset >= self.synced_offset, "the recovery point would promise records that are not there"
        self._stop_background()
        self._disk.finish_asides()  # older epochs must not be written after those below
        self.write_snapshot()
        if self._log.epochs.is_dirty:
            self._disk.write_atomically(self._epochs_path, checkpoints.encode_epochs(self._log.epochs.entries))
            self._log.epochs.is_dirty = False
        if self.synced_offset < end_offset:
            for file in self._unsynced_files():
                file.sync_now()
        self.synced_offset = end_offset
        if end_offset != self._end_in_gap:
            self.recovery_point = end_offset
        self._end()

    def prepare_close(self) -> list[File]:
        """Write all that `close` writes; epochs not in their place yet. Returns the files to sync, with their debts: a
        sync that many logs share. No thread may write into the directory any more.
        """
        self._stop_background()
        self.write_snapshot()
        if self._log.epochs.is_dirty:
            self._disk.write_later(self._epochs_path + CLOSING, checkpoints.encode_epochs(self._log.epochs.entries))
            self._log.epochs.is_dirty, self._has_prepared_epochs = False, True
        return self._unsynced_files()

    def note_prepared(self) -> bool:
        """The files of `prepare_close` are synced. Whether it wrote epochs, which are renamed now, as a debt."""
        self._unsynced.clear()
        self.synced_offset = self._log.end_offset
        has_epochs, self._has_prepared_epochs = self._has_prepared_epochs, False
        if has_epochs:
            self._disk.rename(self._epochs_path + CLOSING, self._epochs_path)
            self._disk.sync_dir_later(self._directory)
        return has_epochs

    def abandon(self) -> None:
        """Stop syncing: the content of the log is not needed any more."""
        self._stop_background()
        self._end()

    def _end(self) -> None:
        log = self._log
        self.is_closed = True
        self._log = _EndedLog(log.end_offset, log.bytes_appended, log.segments, log.producers, log.epochs)

    def hold(self) -> None:
        """Sync nothing and raise nothing until `release`: the end of the log is being removed."""
        with suppress(RuntimeError):  # without a loop no other code runs
            self._held = asyncio.get_running_loop().create_future()

    def release(self) -> None:
        """See `hold`."""
        held, self._held = self._held, None
        if held is not None and not held.done():
            held.set_result(None)

    def note_rolled(self, sealed: Segment) -> None:
        """The log continues in a new segment: the next sync includes `sealed`. Writes a snapshot of its end offset."""
        assert not sealed.is_active, "one more sync is enough only if the segment grows no more"
        self._unsynced.append(sealed)
        self.write_snapshot()

    def lower_to(self, end_offset: int, *, last_batch_end: int) -> None:
        """The log will be truncated to `end_offset`; the last remaining batch ends at `last_batch_end`."""
        assert last_batch_end <= end_offset, "a batch reaches past the end of the log"
        if last_batch_end != end_offset:
            self._end_in_gap = end_offset
        self._truncations += 1
        self.recovery_point = min(self.recovery_point, last_batch_end)
        self.synced_offset = min(self.synced_offset, end_offset)
        self._snapshot_offset = min(self._snapshot_offset, end_offset)

    def restart_at(self, offset: int) -> None:
        """The log is empty, durably, and starts at `offset`."""
        assert self._log.end_offset == offset, "an empty log ends where it starts"
        self._unsynced.clear()
        self.synced_offset = self.recovery_point = self._snapshot_offset = offset
        self.sync_due_bytes = self.snapshot_due_bytes = self._log.bytes_appended + self._checkpoint_bytes

    def write_snapshot(self) -> None:
        """Write the producer snapshot of the end offset and the index entries in memory."""
        if self._held is not None:
            return  # the producers are still those of records that are being removed
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
        self.snapshot_due_bytes = log.bytes_appended + self._checkpoint_bytes

    async def _make_durable(self) -> None:
        """Sync up to the present end."""
        log = self._log
        while log.end_offset > self.synced_offset and not self.is_closed:
            if self._held is not None:
                await asyncio.wait((self._held,))
                continue
            end_offset = log.end_offset
            truncations = self._truncations
            active = log.segments.all[-1]
            rolled = list(self._unsynced)
            log.segments.remember(end_offset, active, active.size)
            self.sync_due_bytes = log.bytes_appended + self._checkpoint_bytes
            for file in self._unsynced_files():
                await file.sync()
            if truncations != self._truncations or self.is_closed:
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
            await self.checkpoint_files.saved()

        self._background = loop.create_task(run(), name=f"sync {self._directory}")

    def sync_soon(self) -> bool:
        """Start a sync that no caller waits for, unless one runs. False: there is no event loop to run it."""
        if self._syncing is not None and not self._syncing.done():
            return True
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        self._syncing = loop.create_task(self._make_durable(), name=f"sync soon {self._directory}")
        return True

    def _stop_background(self) -> None:
        for task in (self._background, self._syncing):
            if task is not None:
                task.cancel()
        self._background = self._syncing = None
