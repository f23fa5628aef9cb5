"""What makes a partition's appends last: its log, opened when needed, and synced for many appends at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from asyncio import Task, TimerHandle, get_running_loop
from collections.abc import Callable
from typing import TYPE_CHECKING

from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.segments.log_config import INT64_MAX

from semel_broker.partitions.flusher import Flusher
from semel_broker.partitions.read_view import PartitionReader
from semel_broker.scheduling.waiters import OffsetWaiters

if TYPE_CHECKING:
    from semel_storage.disk.disk import File
    from semel_storage.log.log import Log

    from semel_broker.world import World

LAZY_S = 0.1
"""A lazy append is synced within this time, or with the next one that is not."""

NO_FLUSH_MS = 365 * 24 * 3_600_000
"""From a year on `flush.ms` sets no timer."""


class DurablePartition(PartitionReader, ABC):
    """The half of `Partition` that knows nothing of other brokers.

    With `fsync` what counts is what is synced: every append schedules a sync, and all appends of one turn of the loop
    share it. Otherwise an append counts at once.
    """

    def __init__(
        self, topic: str, index: int, open_log: Callable[[], Log], world: World, fsync: bool, flusher: Flusher | None
    ) -> None:
        super().__init__(topic, index, open_log)
        self._world = world
        self._fsync = fsync
        self._flusher = flusher or Flusher(world.disk)
        self._durable = OffsetWaiters()
        self._flushing: Task[None] | None = None
        self._lazy_flush: TimerHandle | None = None

    @property
    def log(self) -> Log:
        """The log, opened now if it is not yet. Raises UNKNOWN_TOPIC_OR_PARTITION once the partition is retired."""
        return self._log or self.open()

    def open(self) -> Log:
        """Open (create or recover) the log. Of the only replica everything found in it is committed as far as it is
        durable; of others it turns out later how far.

        The leader epoch goes on from that of the log, which another broker may have written.
        """
        if self._retired:
            raise self._gone()
        if self._log is None:
            self._log = log = self._open_log()
            self.high_watermark = max(self.high_watermark, log.start_offset)
            self._begin_counting(log)
            self._opened(log)
            if log.durability.synced_offset < log.end_offset:
                self._flusher.add(self)
        return self._log

    @property
    def durable_end(self) -> int:
        """Everything below is here for good, as far as the broker's `durability` asks for it."""
        log = self._log
        if log is None:
            return 0
        return log.durability.synced_offset if self._fsync else log.end_offset

    def hurry(self) -> None:
        """What was appended, here and in other partitions, is to be committed now if it can be."""
        self._flusher.hurry()

    async def synced(self) -> None:
        """Return once everything that was appended is as durable as it has to be."""
        if self.durable_end < self.end_offset:
            self.hurry()
        if self.durable_end < self.end_offset:
            await self._durable.wait_for(self.end_offset, get_running_loop())

    def unsynced_file(self) -> File | None:
        """See `flusher.Flushed`."""
        log = self._log
        if log is None or log.durability.synced_offset >= log.end_offset or self._flushing is not None or self._retired:
            return None
        return log.durability.unsynced_file()

    def note_synced(self) -> None:
        """See `flusher.Flushed`."""
        log = self._log
        assert log is not None
        log.durability.note_synced()
        self._settled()

    def flush(self) -> None:
        """See `flusher.Flushed`."""
        log = self._log
        if log is None or self._retired:
            return
        if log.durability.synced_offset >= log.end_offset:
            self._settled()  # a checkpoint's sync has covered it, and told nobody
        elif self._flushing is None:
            self._flushing = get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        """Sync until nothing is left to sync. One at a time: what is appended meanwhile shares the next one."""
        log = self._log
        assert log is not None
        try:
            while not self._retired:
                self._settled()  # also what somebody else's sync has covered before this task came to it
                if log.durability.synced_offset >= log.end_offset:
                    break
                await log.durability.sync()
        except Exception as error:  # a bug of ours: a disk that fails ends the process
            self._failed(error)
            raise
        finally:
            self._flushing = None  # in the same turn as the last look at the end offset: no append falls in between

    def _appended(self, size: int, lazily: bool = False) -> None:
        """`size` bytes more in the log: they count now, or once they are synced."""
        assert self._log is not None
        self._note_bytes(size)
        self._bytes_at.append((self._log.end_offset, self._bytes_appended))
        if not self._fsync:
            self._settled()
            config = self._log.config
            if config.flush_messages < INT64_MAX or config.flush_ms < INT64_MAX:
                self._sync_if_asked()
            return
        if not lazily:
            self._flusher.add(self)
        elif self._lazy_flush is None:
            self._lazy_flush = get_running_loop().call_later(LAZY_S, self._flush_lazily)

    def _sync_if_asked(self) -> None:
        """Without `fsync`: begin a sync that nothing waits for, now or later, as flush.messages and flush.ms ask."""
        log = self._log
        assert log is not None
        config = log.config
        if log.end_offset - log.durability.synced_offset >= config.flush_messages:
            self._begin_sync()
        elif config.flush_ms < NO_FLUSH_MS and self._lazy_flush is None:
            self._lazy_flush = get_running_loop().call_later(config.flush_ms / 1000, self._begin_sync)

    def _begin_sync(self) -> None:
        if self._lazy_flush is not None:
            self._lazy_flush.cancel()
            self._lazy_flush = None
        if self._flushing is None and not self._retired:
            self._flushing = get_running_loop().create_task(self._sync_once())

    async def _sync_once(self) -> None:
        log = self._log
        assert log is not None
        try:
            await log.durability.sync()
        finally:
            self._flushing = None
        if log.durability.synced_offset < log.end_offset and not self._retired:
            self._sync_if_asked()  # for what was appended meanwhile

    def _flush_lazily(self) -> None:
        self._lazy_flush = None
        self._flusher.add(self)

    @abstractmethod
    def _opened(self, log: Log) -> None:
        """The log is there now."""

    @abstractmethod
    def _settled(self) -> None:
        """What is durable here may have become more."""

    def _failed(self, error: Exception) -> None:
        """Nothing becomes durable any more."""
        self._durable.fail(error)

    def _gone(self) -> KafkaError:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic}-{self.index} is deleted or closed")
