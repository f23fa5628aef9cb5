"""One partition's log: segments, offsets, producer state; append, read, sync, truncate.

`append` is a plain function: check, assign, write and account happen without an `await` between them, so that no lock
is needed. Only `sync` waits. The three offsets: `start_offset <= synced_offset <= end_offset`; what lies below
`synced_offset` survives a power loss.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from struct import Struct as Layout

import msgspec
from semel_protocol.batch import BatchHeader, read_header, stamp_log_append_time
from semel_protocol.errors import ErrorCode, KafkaError

from semel_storage import lookup, producers, recovery
from semel_storage.disk import Buffer, Disk, Event, ignore_event
from semel_storage.epochs import EpochHistory
from semel_storage.log_config import LogConfig
from semel_storage.producers import ProducerState
from semel_storage.segment import Segment
from semel_storage.snapshot import Snapshots

CHECKPOINT_BYTES = 32 << 20
"""Appended bytes after which the recovery point is moved up, so that a start after a crash scans little."""
CURSORS_MAX = 128

_PREFIX = Layout(">qii")
"""Base offset, batch length, leader epoch: what a broker writes in front of the bytes that it passes on."""
_PREFIX_BYTES = 16


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a batch is. `log_append_time_ms` is -1 for CreateTime; `duplicate`: it was there already."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


class Log:
    """Open with `Log.open`. Not for use from several threads.

    `config` may be replaced at any time. `recovery_point` is the offset below which a start after a crash need not
    look at the log: everything below is durable and a producer snapshot stands at it. `before_checkpoint` (set by the
    log directory) is called when the recovery point or the start offset has changed and must reach its file.
    """

    def __init__(
        self, disk: Disk, directory: str, config: LogConfig, state: recovery.Recovered, *, checkpoint_bytes: int
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.segments: list[Segment] = state.segments
        self.start_offset: int = state.start_offset
        self.end_offset: int = state.end_offset
        self.synced_offset: int = state.end_offset
        self.recovery_point: int = state.recovery_point
        self.epochs: EpochHistory = state.epochs
        self.save_checkpoints: Callable[[], None] = lambda: None
        self._producers: dict[int, ProducerState] = state.producers
        self._snapshots: Snapshots = state.snapshots
        self._checkpoint_bytes = checkpoint_bytes
        self._bytes_since_snapshot = 0
        self._bytes_since_sync = 0
        self._snapshot_offset = state.recovery_point
        self._bases = [segment.base_offset for segment in self.segments]
        self._unsynced: list[Segment] = []
        self._cursors: dict[int, tuple[Segment, int]] = {}
        self._truncations = 0
        self._background: asyncio.Task[None] | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        recovery_point: int = 0,
        start_offset: int = 0,
        clean: bool = False,
        allow_data_loss: bool = False,
        event: Event = ignore_event,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
    ) -> "Log":
        """Create the log, or recover the one that is there (see `recovery`).

        `recovery_point` and `start_offset` come from the data directory's checkpoint files; `clean` says that the
        last owner closed the log. Raises `recovery.CorruptLog` rather than lose what may have been acknowledged,
        unless `allow_data_loss`.
        """
        state = recovery.recover(
            disk,
            directory,
            config,
            now_ms=now_ms,
            recovery_point=recovery_point,
            start_offset=start_offset,
            clean=clean,
            allow_data_loss=allow_data_loss,
            event=event,
        )
        return cls(disk, directory, config, state, checkpoint_bytes=checkpoint_bytes)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    # Appending

    def append(self, batch: Buffer, *, header: BatchHeader, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append one checked batch (`semel_protocol.batch.check_produced`); its base offset is assigned here.

        A batch that stands in the log already is answered with its first place and not written again. Raises
        KafkaError: 45, 46, 47, 48 from the producer's state (`producers.check`), RECORD_LIST_TOO_LARGE for a batch
        above segment.bytes.
        """
        state = None
        if header.producer_id >= 0:
            state = self._producers.get(header.producer_id)
            known = producers.check(state, header)
            if known is not None:
                stamp_ms = known.timestamp if self.config.log_append_time else -1
                return AppendResult(known.base_offset, known.last_offset, stamp_ms, True)
        config = self.config
        size = header.batch_length + 12
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch takes {size} bytes, the topic's segment.bytes is {config.segment_bytes}",
            )
        stamp_ms = -1
        if config.log_append_time:
            batch = bytearray(batch)
            stamp_log_append_time(batch, now_ms)
            header = read_header(batch)
            stamp_ms = now_ms
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        segment = self.segments[-1]
        if segment.is_full(size, last_offset, header.max_timestamp, config):
            segment = self.roll()
        if leader_epoch > self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        prefix = _PREFIX.pack(base_offset, header.batch_length, leader_epoch)
        position = segment.append(prefix, memoryview(batch)[_PREFIX_BYTES:])
        segment.note(position, size, last_offset, header.max_timestamp, config.index_interval_bytes)
        if header.producer_id >= 0:
            self._producers[header.producer_id] = producers.apply(state, header, base_offset, batch, now_ms)
        self.end_offset = last_offset + 1
        self._bytes_since_snapshot += size
        self._bytes_since_sync += size
        if self._bytes_since_sync >= self._checkpoint_bytes:
            self._sync_in_background()
        return AppendResult(base_offset, last_offset, stamp_ms)

    def roll(self) -> Segment:
        """Seal the active segment and open a new one at the end offset. Returns the new one."""
        old = self.segments[-1]
        if old.size == 0:
            return old
        old.seal()
        self._unsynced.append(old)
        self._write_snapshot()
        new = Segment(self.disk, self.directory, self.end_offset)
        new.activate(reset_indexes=True)
        assert new.file.size() == 0, f"{new.file.path} holds data already"
        self.disk.sync_dir(self.directory)
        self.segments.append(new)
        self._bases.append(new.base_offset)
        return new

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll an active segment whose first record is older than segment.ms."""
        first = self.active.first_timestamp
        if self.active.size == 0 or first < 0 or now_ms - first <= self.config.segment_ms:
            return False
        self.roll()
        return True

    # Durability

    async def sync(self) -> None:
        """Return once everything appended before this call is durable; moves `synced_offset`.

        Group commit: concurrent callers share an fdatasync. From time to time also moves the recovery point.
        """
        while self.end_offset > self.synced_offset:
            end_offset = self.end_offset
            truncations = self._truncations
            active = self.segments[-1]
            rolled = list(self._unsynced)
            self._remember(end_offset, active, active.size)
            self._bytes_since_sync = 0
            for segment in rolled:
                await segment.file.sync()
            await active.file.sync()
            if truncations != self._truncations:
                continue
            self._unsynced = [segment for segment in self._unsynced if segment not in rolled]
            self.synced_offset = max(self.synced_offset, end_offset)
            break
        self._move_recovery_point()

    async def checkpoint(self) -> None:
        """Make all durable and move the recovery point to what is the end now. The caller saves the checkpoints."""
        self._write_snapshot()
        await self.sync()

    def close(self) -> None:
        """Clean close: everything durable, snapshot at the end, recovery point at the end. Blocks for the sync."""
        self._stop_background()
        self._write_snapshot()
        for segment in (*self._unsynced, self.active):
            segment.file.sync_now()
        self.synced_offset = self.end_offset
        self._move_recovery_point()
        for segment in self.segments:
            segment.flush_indexes()
            segment.close()

    def abandon(self) -> None:
        """Close the files and keep nothing: the log is about to be deleted."""
        self._stop_background()
        for segment in self.segments:
            segment.close()

    def _write_snapshot(self) -> None:
        if self._snapshot_offset != self.end_offset or not self._snapshots.has(self.end_offset):
            keep = [*self._bases, self.recovery_point]
            self._snapshots.write(self.end_offset, self._producers.values(), keep=keep)
            self._snapshot_offset = self.end_offset
        self.active.flush_indexes()
        self.epochs.flush()
        self._bytes_since_snapshot = 0

    def _move_recovery_point(self) -> None:
        if self.recovery_point < self._snapshot_offset <= self.synced_offset:
            self.recovery_point = self._snapshot_offset
            self.save_checkpoints()
        if self._bytes_since_snapshot >= self._checkpoint_bytes:
            self._write_snapshot()

    def _sync_in_background(self) -> None:
        """Keep what a crash would have to scan bounded where nobody waits for a sync (durability = "os")."""
        if self._background is not None and not self._background.done():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        self._background = loop.create_task(self.checkpoint(), name=f"sync {self.directory}")

    def _stop_background(self) -> None:
        if self._background is not None:
            self._background.cancel()
            self._background = None

    # Reading

    def read(self, offset: int, *, up_to: int, bytes_max: int, at_least_one: bool = True) -> bytes:
        """Stored bytes of whole batches from the one holding `offset`, none reaching `up_to` or beyond it.

        At most `bytes_max` bytes, but with `at_least_one` the first batch always whole. The first batch may start
        below `offset`. Empty when there is nothing in between. Raises KafkaError OFFSET_OUT_OF_RANGE.
        """
        self._check_range(offset)
        assert up_to <= self.end_offset, f"reading up to {up_to}, the log ends at {self.end_offset}"
        if offset >= up_to:
            return b""
        segment, position = self._locate(offset)
        chunks: list[bytes] = []
        room = bytes_max
        while True:
            limit = position + room
            known = self._cursors.get(up_to)
            if known is not None and known[0] is segment and position <= known[1] <= limit:
                stop, next_offset = known[1], up_to
            else:
                stop, next_offset = segment.boundary(
                    position, limit, up_to=up_to, at_least_one=at_least_one and not chunks
                )
            if stop > position:
                chunks.append(segment.file.pread(stop - position, position))
                room -= stop - position
                self._remember(next_offset, segment, stop)
            if stop < segment.size or room <= 0 or segment is self.segments[-1]:
                break
            segment, position = self.segments[bisect_right(self._bases, segment.base_offset)], 0
            if segment.base_offset >= up_to:
                break
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def offset_for_timestamp(self, timestamp_ms: int, *, up_to: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below `up_to` with timestamp >= `timestamp_ms`; None: no such."""
        return lookup.offset_for_timestamp(self.segments, timestamp_ms, start=self.start_offset, up_to=up_to)

    def max_timestamp(self, *, up_to: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below `up_to` with the largest timestamp; None when there is none."""
        return lookup.max_timestamp(self.segments, start=self.start_offset, up_to=up_to)

    def _check_range(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within [{self.start_offset}, {self.end_offset}]; reset it to either end",
            )

    def _locate(self, offset: int) -> tuple[Segment, int]:
        """The segment and position of the batch that holds `offset`, or of the first one after it."""
        known = self._cursors.get(offset)
        if known is not None and known[1] < known[0].size:
            return known
        at = max(0, bisect_right(self._bases, offset) - 1)
        while True:
            segment = self.segments[at]
            position = segment.position_of(offset)
            if position < segment.size or segment is self.segments[-1]:
                return segment, position
            at += 1

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        """Note that `offset` starts at `position`: where the next sequential read will ask, or where it will stop."""
        cursors = self._cursors
        cursors.pop(offset, None)
        cursors[offset] = (segment, position)
        if len(cursors) > CURSORS_MAX:
            del cursors[next(iter(cursors))]

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Remove what lies at `offset` and above, durably; a batch that straddles it goes whole.

        Epochs, snapshots and producer state follow. Does nothing at or above the end offset.
        """
        if offset >= self.end_offset:
            return
        self._truncations += 1
        self.recovery_point = min(self.recovery_point, offset)
        self._snapshot_offset = min(self._snapshot_offset, offset)
        self.save_checkpoints()
        self._snapshots.remove_above(offset)
        while len(self.segments) > 1 and self.segments[-1].base_offset >= offset:
            self._drop(self.segments[-1])
        segment = self.active
        if not segment.is_active:
            segment.activate()
        position = segment.position_of(max(offset, segment.base_offset))
        end_offset = max(offset, segment.base_offset)
        for _, header, _ in segment.scan(position):
            end_offset = min(end_offset, header.base_offset)
            break
        segment.truncate(position, end_offset)
        self.disk.sync_dir(self.directory)
        self.end_offset = end_offset
        self.start_offset = min(self.start_offset, end_offset)
        self.synced_offset = min(self.synced_offset, end_offset)
        self.epochs.truncate_from_end(end_offset)
        self._producers = recovery.producers_at(self.segments, self._snapshots, end_offset)
        self._cursors.clear()

    def delete_records_before(self, offset: int) -> None:
        """Move the start offset up (never down), saved before this returns, and drop the segments wholly below it.

        The caller has checked that `offset` is not beyond the high watermark.
        """
        assert offset <= self.end_offset
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self.epochs.truncate_from_start(offset)
        self.save_checkpoints()
        bases = self._bases
        self.delete_segments([s for s, after in zip(self.segments, bases[1:], strict=False) if after <= offset])

    def delete_segments(self, old: Sequence[Segment]) -> None:
        """Retention: remove the oldest segments, never the active one; the start offset follows."""
        assert old == self.segments[: len(old)], "only the oldest segments can go"
        assert len(old) < len(self.segments), "the active segment stays; roll it first"
        if not old:
            return
        self.start_offset = max(self.start_offset, self.segments[len(old)].base_offset)
        for segment in old:
            self._drop(segment)
        self._snapshots.remove_below(self.segments[0].base_offset)
        self.epochs.truncate_from_start(self.start_offset)

    def replace_segments(self, old: Sequence[Segment]) -> Segment:
        """Compaction: the files of `old`, neighbours and sealed, have been swapped for one of the first's name.

        Returns the segment that stands for them now.
        """
        at = self.segments.index(old[0])
        assert list(old) == self.segments[at : at + len(old)], "only neighbouring segments can be replaced"
        assert not any(segment.is_active for segment in old)
        for segment in old:
            segment.close()
        new = Segment(self.disk, self.directory, old[0].base_offset)
        new.next_offset = old[-1].next_offset
        self.segments[at : at + len(old)] = [new]
        self._bases = [segment.base_offset for segment in self.segments]
        self._unsynced = [segment for segment in self._unsynced if segment not in old]
        self._cursors.clear()
        return new

    def _drop(self, segment: Segment) -> None:
        self.segments.remove(segment)
        self._bases.remove(segment.base_offset)
        if segment in self._unsynced:
            self._unsynced.remove(segment)
        self._cursors.clear()
        segment.delete()

    # Producers

    def active_producers(self) -> list[ProducerState]:
        """Producers with state, by id (DescribeProducers)."""
        return [self._producers[producer_id] for producer_id in sorted(self._producers)]

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have appended nothing for `expiration_ms` (producer.id.expiration.ms)."""
        for producer_id in producers.expired(self._producers, now_ms, expiration_ms):
            del self._producers[producer_id]
