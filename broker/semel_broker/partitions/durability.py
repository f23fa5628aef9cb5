"""Makes the appends of one open log durable: one sync for many appends, and the end offset of what is durable."""

from __future__ import annotations

from asyncio import Task, TimerHandle, get_running_loop
from typing import TYPE_CHECKING

from semel_storage.segments.log_config import INT64_MAX

from semel_broker.scheduling.waiters import OffsetWaiters

if TYPE_CHECKING:
    from collections.abc import Callable

    from semel_storage.disk.disk import File
    from semel_storage.log.log import Log

    from semel_broker.partitions.flusher import Flusher

LAZY_S = 0.1
"""A lazy append is synced within this time, or with the next append that is not lazy."""

NO_FLUSH_MS = 365 * 24 * 3_600_000
"""From a year on `flush.ms` sets no timer."""


class Durability:
    """The syncs of one log, and the callers that wait for them.

    With `fsync` an append is durable once it is synced: every append schedules a sync, and all appends of one turn of
    the loop share it. Without it an append is durable at once.

    `on_progress` is called when more may be durable, also by a sync of another caller (a checkpoint of the log); it
    asks for `settled_end`. `on_failure` gets the exception after which nothing becomes durable any more.
    """

    def __init__(
        self,
        log: Log,
        flusher: Flusher,
        *,
        fsync: bool,
        on_progress: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._log = log
        self._flusher = flusher
        self._fsync = fsync
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._waiters = OffsetWaiters()
        self._flushing: Task[None] | None = None
        self._timer: TimerHandle | None = None
        self._is_retired = False
        self._batches_synced = log.batches_appended

    @property
    def end_offset(self) -> int:
        """All records below it are durable, as far as the broker setting `durability` asks for it."""
        return self._log.durability.synced_offset if self._fsync else self._log.end_offset

    def settled_end(self) -> int:
        """`end_offset`, after a call of which no caller of `synced` waits for less."""
        end = self.end_offset
        if self._waiters:
            self._waiters.reached(end)
        return end

    async def synced(self) -> None:
        """Return once all records that were appended so far are durable."""
        log = self._log
        if self.end_offset < log.end_offset:
            self._flusher.hurry()
        if self.end_offset < log.end_offset:
            await self._waiters.wait_for(log.end_offset, get_running_loop())

    # --- appends ---------------------------------------------------------------------------------------------

    def note_append(self, lazily: bool = False) -> None:
        """The log has grown. `lazily`: no caller waits for the sync, which may come up to LAZY_S later."""
        if self._fsync:
            if not lazily:
                self._flusher.add(self)
            elif self._timer is None:
                self._timer = get_running_loop().call_later(LAZY_S, self._flush_lazily)
            return
        self._on_progress()
        config = self._log.config
        if config.flush_messages < INT64_MAX or config.flush_ms < INT64_MAX:
            self._sync_if_asked()

    def sync_recovered(self) -> None:
        """Schedule a sync of the records that recovery has found above the synced offset."""
        if self._log.durability.synced_offset < self._log.end_offset:
            self._flusher.add(self)

    def _flush_lazily(self) -> None:
        self._timer = None
        self._flusher.add(self)

    # --- syncs of the flusher, see `flusher.Flushed` ---------------------------------------------------------

    def unsynced_file(self) -> File | None:
        log = self._log
        if log.durability.synced_offset >= log.end_offset or self._flushing is not None or self._is_retired:
            return None
        return log.durability.unsynced_file()

    def note_synced(self) -> None:
        self._log.durability.note_synced()
        self._count_sync(self._log.batches_appended)
        self._on_progress()

    def _count_sync(self, batches: int) -> None:
        """A sync has covered this many batches since the log was opened."""
        assert batches >= self._batches_synced, "two syncs ran at once: the later one has to cover more"
        self._flusher.batches_per_sync.observe(batches - self._batches_synced)
        self._batches_synced = batches

    def flush(self) -> None:
        log = self._log
        if self._is_retired:
            return
        if log.durability.synced_offset >= log.end_offset:
            self._on_progress()  # a checkpoint has synced it, without a call of `on_progress`
        elif self._flushing is None:
            self._flushing = get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        """Sync until nothing is left to sync. One sync at a time: all later appends share the next one."""
        log = self._log
        try:
            while not self._is_retired:
                self._on_progress()  # a checkpoint may have synced it before this task started
                if log.durability.synced_offset >= log.end_offset:
                    break
                batches = log.batches_appended
                await log.durability.sync()
                self._count_sync(batches)
        except Exception as error:  # a bug of ours: a disk that fails ends the process
            self._on_failure(error)
            self._waiters.fail(error)
            raise
        finally:
            self._flushing = None  # in the same turn as the last look at the end offset: no append falls in between

    # --- syncs by flush.messages and flush.ms, without `fsync` -----------------------------------------------

    def _sync_if_asked(self) -> None:
        """Begin a sync that no caller waits for, now or later, as flush.messages and flush.ms ask."""
        log = self._log
        config = log.config
        if log.end_offset - log.durability.synced_offset >= config.flush_messages:
            self._begin_sync()
        elif config.flush_ms < NO_FLUSH_MS and self._timer is None:
            self._timer = get_running_loop().call_later(config.flush_ms / 1000, self._begin_sync)

    def _begin_sync(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is None and not self._is_retired:
            self._flushing = get_running_loop().create_task(self._sync_once())

    async def _sync_once(self) -> None:
        log = self._log
        try:
            await log.durability.sync()
        finally:
            self._flushing = None
        if log.durability.synced_offset < log.end_offset and not self._is_retired:
            self._sync_if_asked()  # for the appends during this sync

    # --- end -------------------------------------------------------------------------------------------------

    async def idle(self) -> None:
        """Schedule no more syncs, and return once the one that runs has ended."""
        self._flusher.forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            await self._flushing

    def retire(self) -> None:
        """Begin no sync any more: the log is deleted."""
        self._is_retired = True

    async def close(self) -> None:
        """Sync all that was appended, and begin no other sync."""
        self._is_retired = True
        await self._log.durability.sync()

    def fail(self, error: Exception) -> None:
        """Give `error` to all callers of `synced` that wait."""
        self._waiters.fail(error)

    def end(self, error: Exception) -> None:
        """`fail`, after `idle`: nothing becomes durable any more.

        The partition, which has this, is freed with the last reference to it, because no cycle remains.
        """
        self.fail(error)
        self._on_progress, self._on_failure = _ignore_progress, _ignore_failure


def _ignore_progress() -> None:
    """The partition is closed."""


def _ignore_failure(error: Exception) -> None:
    """The partition is closed."""
