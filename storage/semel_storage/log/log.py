"""The log of one partition: appends, reads, replicates, truncates and deletes record batches.

`append` is a plain function: check, assign, write and account happen without an `await` between them, so it needs no
lock. Only the syncs of `durability` wait. Offsets: `start_offset <= durability.synced_offset <= end_offset`.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from struct import Struct as Layout

import msgspec
from msgspec.structs import replace
from semel_protocol.batch import BatchHeader, read_header, stamp_log_append_time
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_protocol.errors import ErrorCode, KafkaError

from semel_storage import checkpoints
from semel_storage.disk.disk import Buffer, Disk, EventCallback, File, ignore_event
from semel_storage.log import recovery, replicated, snapshot
from semel_storage.log.durability import Checkpoint, Durability, NoCheckpoint, Steps, T
from semel_storage.producers import producers
from semel_storage.producers.producer_table import ProducerTable
from semel_storage.producers.producers import ProducerState
from semel_storage.producers.transactions import AbortedTransaction, decode, pairs_of
from semel_storage.segments import lookup
from semel_storage.segments.index import RELATIVE_OFFSET_MAX
from semel_storage.segments.log_config import LogConfig
from semel_storage.segments.segment import Segment
from semel_storage.segments.segments import Segments

ROLL_FILES = 2
SEGMENTS_PER_STEP = 64
"""Segments removed in one turn of the event loop."""
SEGMENT_BYTES_MAX = 2**31 - 1
"""Positions in an index have 31 bits."""
CHECKPOINT_BYTES = 32 << 20
"""Appended bytes after which the recovery point advances, so that recovery after a crash scans little."""

_PREFIX = Layout(">qii")
"""Base offset, batch length, leader epoch: the broker writes these before the bytes of the producer."""
_PREFIX_BYTES = 16


class AppendResult(msgspec.Struct, frozen=True, gc=False):
    """The offsets of a batch. `log_append_time_ms`: -1 for CreateTime. `duplicate`: an earlier append stored it."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int = -1
    duplicate: bool = False


class Log:
    """The log of one partition. Open it with `Log.open`. Not thread-safe.

    `durability` syncs the log and knows which part of it survives a crash. `producers` and `epochs` hold the state that
    follows from its batches. `config` may be replaced at any time.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        state: recovery.Recovered,
        *,
        now_ms: int,
        checkpoint_bytes: int,
        checkpoint: Checkpoint,
        is_own: bool = False,
    ) -> None:
        self.disk = disk
        self._is_own = is_own
        self.directory = directory
        self.config = config
        self.segments = Segments(state.segments)
        first = self.segments[0].base_offset
        assert first <= state.start_offset <= state.end_offset, f"{directory}: reads would begin outside of the log"
        assert state.recovery_point <= state.end_offset, f"{directory}: more is durable than the log has"
        self.start_offset: int = state.start_offset
        self.end_offset: int = state.end_offset
        self.producers: ProducerTable = state.producers
        self.epochs = state.epochs
        self.bytes_appended = self.batches_appended = 0
        """Since the log was opened."""
        self._appended_less_end = -self.end_offset  # the records appended, less the end offset: most appends leave it
        self.duplicates = 0
        """Batches and markers that were not written again, since the log was opened."""
        self._last_now_ms = now_ms
        self.is_settled = state.is_settled
        """Whether all that recovery has changed is durable. If not, carry out `settling` before any append."""
        self.is_in_truncation = False
        """Records are being removed from the end: nothing may be read or appended."""
        self._changing = asyncio.Lock()
        self.durability = Durability(
            self, state, disk, directory, checkpoint_bytes=checkpoint_bytes, checkpoint_files=checkpoint
        )

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        now_ms: int,
        recovery_point: int | None = None,
        start_offset: int = 0,
        clean: bool = False,
        is_synced: bool = False,
        settles_later: bool = False,
        allow_data_loss: bool = False,
        event: EventCallback = ignore_event,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        checkpoint: Checkpoint | None = None,
        is_own: bool = False,
    ) -> "Log":
        """Create the log, or recover an existing one (see `recovery`).

        See `recovery.Opening` for what the caller knows of the log.
        `checkpoint_bytes`: see CHECKPOINT_BYTES. `checkpoint`: see `Durability`. Raises CorruptLog if records may be
        lost that were acknowledged, unless `allow_data_loss`.
        """
        opening = recovery.Opening(
            now_ms=now_ms,
            recovery_point=recovery_point,
            start_offset=start_offset,
            clean=clean,
            is_synced=is_synced,
            settles_later=settles_later,
            allow_data_loss=allow_data_loss,
            is_own=is_own,
            event=event,
        )
        state = recovery.recover(disk, directory, config, opening)
        return cls(
            disk,
            directory,
            config,
            state,
            now_ms=now_ms,
            checkpoint_bytes=checkpoint_bytes,
            checkpoint=checkpoint or NoCheckpoint(),
            is_own=is_own,
        )

    @property
    def active(self) -> Segment:
        return self.segments.all[-1]

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def records_appended(self) -> int:
        """Since the log was opened, also those that were removed later."""
        return self.end_offset + self._appended_less_end

    def _move_end(self, offset: int) -> None:
        """Move the end offset without an append."""
        self._appended_less_end += self.end_offset - offset
        self.end_offset = offset

    def prepare_close(self) -> list[File]:
        """See `Durability.prepare_close`; `Durability.note_prepared` comes next."""
        self.active.aborted.sync_later()
        return self.durability.prepare_close()

    def close(self) -> None:
        """Make all durable, move the recovery point to the end offset and close the files. Blocks.

        The caller saves the recovery point.
        """
        assert not self.is_in_truncation, f"{self.directory} is closed while records are removed"
        self.durability.close()
        self.active.sync_indexes()
        for segment in self.segments:
            segment.close()

    def abandon(self) -> None:
        """Close the files without a sync: the log will be deleted, or the start of the broker failed."""
        self.durability.abandon()
        for segment in self.segments:
            segment.close()

    # Reading

    def read(self, offset: int, *, up_to: int, bytes_max: int, at_least_one: bool = True) -> bytes:
        """Stored bytes of complete batches: from the batch with `offset` on, with offsets below `up_to` only.

        At most `bytes_max` bytes; with `at_least_one` the first batch is returned even if it is larger. The first
        batch may start below `offset`. Empty if there is no such batch. Raises KafkaError OFFSET_OUT_OF_RANGE.
        """
        return self._read(offset, up_to, bytes_max, at_least_one)[0]

    def read_committed(
        self, offset: int, *, up_to: int, bytes_max: int, at_least_one: bool = True
    ) -> tuple[bytes, list[bytes]]:
        """As `read`; also returns the aborted transactions that overlap the returned batches.

        They are ordered by first offset and encoded as in a Fetch response (`transactions.PAIR`).
        """
        data, next_offset = self._read(offset, up_to, bytes_max, at_least_one)
        return data, pairs_of(self.segments.aborted_entries(offset, next_offset)) if data else []

    def _read(self, offset: int, up_to: int, bytes_max: int, at_least_one: bool) -> tuple[bytes, int]:
        """The bytes, and an offset above all of theirs."""
        if not self.start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not within [{self.start_offset}, {self.end_offset}]; reset it to either end",
            )
        assert up_to <= self.end_offset, f"reading up to {up_to}, the log ends at {self.end_offset}"
        if offset >= up_to:
            return b"", offset
        return self.segments.read(offset, up_to=up_to, bytes_max=bytes_max, at_least_one=at_least_one)

    def offset_for_timestamp(self, timestamp_ms: int, *, up_to: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below `up_to` with timestamp >= `timestamp_ms`, or None."""
        return lookup.offset_for_timestamp(self.segments.all, timestamp_ms, start=self.start_offset, up_to=up_to)

    def max_timestamp(self, *, up_to: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below `up_to` with the largest timestamp, or None."""
        return lookup.max_timestamp(self.segments.all, start=self.start_offset, up_to=up_to)

    def bytes_between(self, start: int, end: int) -> int:
        """Bytes of the batches from the one with `start` up to, and without, the one with `end`."""
        return self.segments.bytes_before(end) - self.segments.bytes_before(start)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with a marker at or after `start` and a first offset below `end`, in marker order."""
        return decode(self.segments.aborted_entries(start, end))

    # Appending

    def append(self, batch: Buffer, *, header: BatchHeader, leader_epoch: int, now_ms: int) -> AppendResult:
        """Append one batch that `semel_protocol.batch.check_produced` has accepted, at the end offset.

        A duplicate is not written again; the result has the offsets of the first append. Raises KafkaError:
        OUT_OF_ORDER_SEQUENCE_NUMBER, DUPLICATE_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE and
        UNKNOWN_PRODUCER_ID by `producers.check`, RECORD_LIST_TOO_LARGE for a batch above segment.bytes.
        """
        if header.producer_id >= 0:
            known = producers.check(self.producers.get(header.producer_id), header)
            if known is not None:
                self.duplicates += 1
                stamp_ms = known.timestamp if self.config.log_append_time else -1
                return AppendResult(known.base_offset, known.last_offset, stamp_ms, True)
        config = self.config
        size = header.batch_length + 12
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"the batch has {size} bytes, segment.bytes is {config.segment_bytes}; send smaller batches",
            )
        stamp_ms = -1
        if config.log_append_time:
            batch = bytearray(batch)
            stamp_log_append_time(batch, now_ms)
            header = read_header(batch)
            stamp_ms = now_ms
        base_offset = self.end_offset
        self._write(batch, header, leader_epoch, now_ms)
        return AppendResult(base_offset, self.end_offset - 1, stamp_ms)

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        *,
        leader_epoch: int,
        now_ms: int,
    ) -> AppendResult:
        """Append the marker that ends the producer's transaction in this log, also if it wrote nothing (KIP-98).

        A retry of the producer's last marker is not written again (`duplicate`). Raises KafkaError:
        INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED by `producers.check_marker`.
        """
        state = self.producers.get(producer_id)
        known = producers.check_marker(state, producer_epoch, coordinator_epoch, commit)
        if known is not None:
            self.duplicates += 1
            return AppendResult(known.offset, known.offset, -1, True)
        marker = EndTxnMarker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator_epoch)
        batch = build_marker(marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=now_ms)
        self._write(batch, read_header(batch), leader_epoch, now_ms)
        return AppendResult(self.end_offset - 1, self.end_offset - 1)

    def _write(self, batch: Buffer, header: BatchHeader, leader_epoch: int, now_ms: int) -> None:
        """Write an accepted batch at the end offset and update all state that follows from it."""
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        size = header.batch_length + 12
        # Before anything is written: a batch that breaks one of these would make the file unreadable from there on.
        assert not self.is_in_truncation, "the batch would be removed with the records before it"
        assert len(batch) == size, f"the batch has {len(batch)} bytes, its header speaks of {size}"
        assert last_offset >= base_offset, "the end offset would go back"
        segment = self.segments.all[-1]
        if segment.is_full(size, last_offset, header.max_timestamp, self.config, now_ms) and self._may_roll(header):
            segment = self.roll()
        if segment.size == 0:
            segment.opened_ms = now_ms
        if leader_epoch > self.epochs.latest:  # not durable before the batch: recovery reads it from the header
            self.epochs.assign(leader_epoch, base_offset)
        prefix = _PREFIX.pack(base_offset, header.batch_length, leader_epoch)
        position = segment.append(prefix, memoryview(batch)[_PREFIX_BYTES:])
        segment.note(position, header, last_offset, self.config.index_interval_bytes)
        if header.producer_id >= 0:
            aborted = self.producers.note(header, base_offset, batch, now_ms)
            if aborted is not None:
                segment.aborted.append(aborted)
        self.end_offset = last_offset + 1
        self._last_now_ms = now_ms
        self.bytes_appended += size
        self.batches_appended += 1
        if self.bytes_appended >= self.durability.sync_due_bytes:
            self.durability.sync_in_background()

    def append_replicated(self, data: Buffer, *, now_ms: int) -> list[BatchHeader]:
        """Append complete batches from the partition's leader, from the end offset on. Returns their headers.

        Epochs, producers, open and aborted transactions become as in the leader's log. The log has been restarted
        before where `begins_inside` says so. Raises CorruptBatch; then nothing was appended.
        """
        headers = replicated.checked_headers(data)
        if not headers:
            return headers
        first = headers[0]
        assert not self.is_in_truncation, "the batches would be removed with the records before them"
        assert first.base_offset >= self.end_offset, f"the log has the batch at {first.base_offset} already"
        view, segment, written, at = memoryview(data), self.active, 0, 0
        for header in headers:
            if header.base_offset > self.end_offset:
                self._note_gap()
            if self._is_beyond(segment, header, now_ms) and self._may_roll(header):
                segment, written = self._write_run(segment, view[written:at]), at
                segment = self._roll_for(header)
            self._appended_less_end += header.record_count - (header.next_offset - self.end_offset)
            self._account(segment, header, view[at : at + header.size], now_ms)
            at += header.size
        self._write_run(segment, view[written:])
        self._last_now_ms = now_ms
        self.bytes_appended += at
        self.batches_appended += len(headers)
        if self.bytes_appended >= self.durability.sync_due_bytes:
            self.durability.sync_in_background()
        return headers

    def begins_inside(self, data: Buffer) -> int | None:
        """The base offset of the first batch from the leader, if this empty log starts inside of it; else None.

        The leader's log start is inside of a batch then. Before the batches are appended the log has to restart at that
        offset, with the same producers; afterwards its start offset is that of the leader. Raises CorruptBatch.
        """
        if self.start_offset != self.end_offset or not data:
            return None
        first = replicated.checked_headers(data)[0]
        return first.base_offset if first.base_offset < self.end_offset <= first.last_offset else None

    @property
    def can_roll(self) -> bool:
        """Whether `roll` need not wait for the disk: the names of all segments are durable. Else `settle` first."""
        return not self.disk.owes_names(self.directory)

    async def settle(self) -> None:
        """Return once the names of all segments are durable."""
        await self.disk.settle(self.directory)

    def _may_roll(self, header: BatchHeader) -> bool:
        """Whether the segment may be sealed before this batch. If not, it grows beyond its limits for a moment.

        A log has at most one segment whose name is not durable. Otherwise a power loss could take a segment from the
        middle, and recovery would not notice it in a log whose offsets have gaps.
        """
        segment = self.active
        if self.can_roll:
            return True
        last_offset = header.base_offset + header.last_offset_delta
        must_end = (
            max(last_offset, self.end_offset + header.last_offset_delta) - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.size + header.size > SEGMENT_BYTES_MAX
        )
        return must_end or not self.durability.sync_soon()

    def _is_beyond(self, segment: Segment, header: BatchHeader, now_ms: int) -> bool:
        """Whether a replicated batch needs a new segment; also an empty segment may start too far below it."""
        if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        return segment.is_full(header.size, header.last_offset, header.max_timestamp, self.config, now_ms)

    def _roll_for(self, header: BatchHeader) -> Segment:
        """Open a new segment for a replicated batch."""
        old = self.active
        if header.last_offset - self.end_offset > RELATIVE_OFFSET_MAX or old.size == 0:
            self._move_end(header.base_offset)  # the leader's log was compacted in between
        return self.roll() if old.size else self._replace_empty(old)

    def _replace_empty(self, old: Segment) -> Segment:
        """Replace the empty active segment by one that starts at the end offset."""
        old.seal()
        if len(self.segments) == 1 and (states := self.producers.all()):
            snapshots = self.durability.snapshots
            # Until it is durable, the one where the old segment begins has the same producers.
            snapshots.write(self.end_offset, states, keep=snapshots.offsets, later=True)
        new = self._new_segment(self.end_offset)
        self.segments.add(new)
        self.segments.drop(old)
        return new

    def _account(self, segment: Segment, header: BatchHeader, batch: Buffer, now_ms: int) -> None:
        """Update all state that follows from a replicated batch; `_write_run` writes it in the same turn."""
        if header.partition_leader_epoch > self.epochs.latest:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        interval_bytes = self.config.index_interval_bytes
        if segment.size == 0:
            segment.opened_ms = now_ms
        segment.note(segment.size, header, header.last_offset, interval_bytes)
        if header.producer_id >= 0:
            aborted = self.producers.note(header, header.base_offset, batch, now_ms)
            if aborted is not None:
                segment.aborted.append(aborted)
        self.end_offset = header.next_offset

    @staticmethod
    def _write_run(segment: Segment, run: memoryview) -> Segment:
        """Write batches with one system call, after `_account` for each of them."""
        if run:
            position = segment.file.append(run)
            assert position + len(run) == segment.size, f"{segment.file.path}: {position}, {len(run)}, {segment.size}"
        return segment

    def _note_gap(self) -> None:
        """Create the cleaner checkpoint: the leader's log was compacted, and recovery must expect missing offsets."""
        path = f"{self.directory}/{checkpoints.CLEANER_OFFSET}"
        if not self.config.is_compacted and not self.disk.exists(path):
            self.disk.write_later(path, checkpoints.encode_offsets({}))

    def roll(self) -> Segment:
        """Seal the active segment and open a new one at the end offset. Returns the new one."""
        old = self.segments[-1]
        if old.size == 0:
            return old
        assert self.end_offset > old.base_offset, "two segments would have the same name"
        self.disk.check_room(ROLL_FILES)
        if not self.can_roll:
            old.file.sync_now()  # see `_may_roll`
        if len(self.segments) == 1 and not self._is_own:
            self.durability.checkpoint_files.save_now()  # recovery of two or more segments needs a checkpoint entry
        old.seal()
        self.durability.note_rolled(old)
        new = self._new_segment(self.end_offset)
        self.segments.add(new)
        return new

    def _new_segment(self, base_offset: int) -> Segment:
        """Create an empty active segment. Its names become durable with its first bytes."""
        new = Segment(self.disk, self.directory, base_offset)
        new.activate(reset_indexes=True)
        assert new.file.size() == 0, f"{new.file.path} holds data already"
        self.disk.sync_dir_later(self.directory)
        return new

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll an active segment whose first batch is older than segment.ms (`Segment.oldest_ms`)."""
        if self.active.size == 0 or now_ms - self.active.oldest_ms <= self.config.segment_ms:
            return False
        self.roll()
        return True

    # Changes in steps

    async def carry_out(self, steps: Steps[T]) -> T:
        """Do a change while others run. One change of a log at a time."""
        async with self._changing, self.durability.writing_epochs:
            try:
                while True:
                    next(steps)
                    await asyncio.sleep(0)  # the other two return at once if nothing has to be durable
                    await self.disk.settle(self.directory)
                    await self.durability.checkpoint_files.saved()
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                steps.close()

    def carry_out_now(self, steps: Steps[T]) -> T:
        """As `carry_out`, but blocks."""
        self.disk.finish_asides()  # a thread must not write epochs that this change removes
        try:
            while True:
                next(steps)
                self.disk.settle_now(self.directory)
                self.durability.checkpoint_files.save_now()
        except StopIteration as end:
            result: T = end.value
            return result

    # Truncation and deletion

    def truncate_to(self, offset: int) -> None:
        """As `truncation`, but blocks."""
        self.carry_out_now(self.truncation(offset))

    def restart_at(self, offset: int, producers: Collection[ProducerState] = ()) -> None:
        """As `restart`, but blocks."""
        self.carry_out_now(self.restart(offset, producers))

    def delete_records_before(self, offset: int) -> None:
        """`raise_start_offset` and `deletion_of_records`, but blocks."""
        if offset > self.start_offset:
            self.raise_start_offset(offset)
            self.carry_out_now(self.deletion_of_records())

    def delete_segments(self, old: Sequence[Segment]) -> None:
        """As `deletion_of_segments`, but blocks."""
        self.carry_out_now(self.deletion_of_segments(old))

    def _is_closed(self) -> bool:
        return self.durability.is_closed

    @contextmanager
    def _in_truncation(self) -> Iterator[None]:
        """The log is neither read nor appended to, and its durability stands still."""
        assert not self.is_in_truncation, "each change computes what it removes from a log that stands still"
        self.is_in_truncation = True
        self.durability.hold()
        try:
            yield
        finally:
            self.is_in_truncation = False
            self.durability.release()

    def settling(self) -> Steps[None]:
        """What recovery has cut must not come back behind new records after a power loss."""
        with self._in_truncation():
            yield
            self.is_settled = True

    def truncation(self, offset: int) -> Steps[None]:
        """Remove all records at `offset` and above; a batch that contains `offset` is removed completely.

        Also truncates epochs, snapshots and producer state. For an `offset` at or above the end offset, only epochs
        without records are removed.
        """
        if offset >= self.end_offset:
            self.epochs.truncate_from_end(offset)  # removes an epoch without records
            return
        if offset < self.segments[0].base_offset:
            yield from self.restart(offset)
            return
        with self._in_truncation():
            yield from self._truncation(offset)

    def _truncation(self, offset: int) -> Steps[None]:
        segment, position = self.segments.locate(offset)
        first = next(segment.scan(position), None)
        end_offset = min(offset, first[1].base_offset) if first is not None else offset
        last_end = _end_of_last(segment, position, end_offset)
        assert end_offset <= offset < self.end_offset, "a truncation removes records, and only from the end"
        durability = self.durability
        durability.lower_to(end_offset, last_batch_end=last_end)
        self.start_offset = min(self.start_offset, end_offset)
        yield  # recovery must not expect the records any more
        if self._is_closed():
            return
        durability.lower_to(end_offset, last_batch_end=last_end)  # a sync that ran meanwhile has raised it
        for _ in durability.snapshots.removal_above(end_offset, SEGMENTS_PER_STEP):
            yield
            if self._is_closed():
                return
        dropped = 0
        while self.active is not segment:
            self.segments.drop(self.active)
            dropped += 1
            if not dropped % SEGMENTS_PER_STEP:
                yield
                if self._is_closed():
                    return
        if not segment.is_active:
            segment.activate()
        segment.truncate(position, end_offset, durable=False)
        self.disk.sync_dir_later(self.directory)
        self._move_end(end_offset)
        self.epochs.truncate_from_end(end_offset)
        self.producers = recovery.producers_at(
            self.segments.all,
            durability.snapshots,
            end_offset,
            now_ms=self._last_now_ms,
            decided=self.producers.decided,
        )
        self.segments.forget()
        yield  # a power loss must not leave removed records behind new ones

    def producer_snapshot(self) -> bytes:
        """The snapshot of the producers as of the log start: of a replica whose log restarts there (`restart_at`).

        Producers outlive their records (KIP-360), so the records from there on do not tell of all of them. A batch that
        the log start is inside of is not included: the replica gets it. Raises CorruptLog.
        """
        offset, table = self.start_offset, self.producers
        if offset < self.end_offset:
            segment, position = self.segments.locate(offset)
            first = next(segment.scan(position), None)
            offset = offset if first is None else min(offset, first[1].base_offset)
            snapshots = self.durability.snapshots
            table = recovery.producers_at(self.segments.all, snapshots, offset, now_ms=self._last_now_ms)
        return snapshot.encode(table.all(), offset=offset)

    def has_producers(self, producers: Iterable[ProducerState]) -> bool:
        """Whether its producers are these. Times of the last append do not count: each broker has its own clock."""
        here = [replace(state, last_append_ms=0) for state in self.producers.all()]
        return here == [replace(state, last_append_ms=0) for state in producers]

    def restart(self, offset: int, producers: Collection[ProducerState] = ()) -> Steps[None]:
        """Remove everything; the log is empty and starts at `offset`, which may be below or above the old one.

        Also removes epochs and producer state; `producers` replace it. A crash in the middle leaves the old log, a part
        of it, or an empty log, never with a higher end offset than before, and at `offset` never without `producers`.
        """
        with self._in_truncation():
            yield from self._restart(offset, producers)

    def _restart(self, offset: int, producers: Collection[ProducerState]) -> Steps[None]:
        durability = self.durability
        durability.lower_to(0, last_batch_end=0)
        self.start_offset = self.segments[0].base_offset
        yield  # recovery must not expect the records any more
        if self._is_closed():
            return
        durability.lower_to(0, last_batch_end=0)
        self.disk.remove(f"{self.directory}/{checkpoints.LEADER_EPOCH}")
        self.epochs.clear()
        # A part of the old log needs that of its start.
        for _ in durability.snapshots.removal_above(self.start_offset, SEGMENTS_PER_STEP):
            yield
            if self._is_closed():
                return
        for count, segment in enumerate(reversed(self.segments), 1):
            segment.delete()
            if not count % SEGMENTS_PER_STEP:
                yield
                if self._is_closed():
                    return
        self.disk.sync_dir_later(self.directory)
        yield  # a crash must not leave them beside the new segment
        if self._is_closed():
            return
        durability.snapshots.remove_all()
        self.disk.sync_dir_later(self.directory)
        yield
        if self._is_closed():
            return
        if producers:
            durability.snapshots.write(offset, producers, keep=(), later=True)
            yield  # before the segment: a log at `offset` has them
            if self._is_closed():
                return
        self.segments.restart(self._new_segment(offset))
        self.producers = ProducerTable(producers)
        self._move_end(offset)
        yield  # before the recovery point, which promises the segment
        if self._is_closed():
            return
        assert offset == self.end_offset, "nothing is appended before the log start is in its place"
        self.start_offset = offset
        durability.restart_at(offset)
        yield

    def raise_start_offset(self, offset: int) -> None:
        """Records below `offset`, which is not above the high watermark, cannot be read any more. In memory alone."""
        assert offset <= self.end_offset, f"no records up to {offset} exist: the log ends at {self.end_offset}"
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.truncate_from_start(offset)

    @property
    def has_unreadable_segments(self) -> bool:
        """Whether all records of a segment are below the start offset: `deletion_of_records` removes it."""
        bases = self.segments.bases
        return len(bases) > 1 and bases[1] <= self.start_offset

    def deletion_of_records(self) -> Steps[None]:
        """Save the start offset, then delete the segments below it."""
        yield
        gone = [segment for segment, after in pairwise(self.segments) if after.base_offset <= self.start_offset]
        if not self._is_closed():
            yield from self.deletion_of_segments(gone)

    def deletion_of_segments(self, old: Sequence[Segment]) -> Steps[None]:
        """Retention: delete the oldest segments, never the active one, and raise the start offset."""
        assert old == self.segments[: len(old)], "only the oldest segments can be deleted"
        assert len(old) < len(self.segments), "the active segment cannot be deleted; roll it first"
        if not old:
            return
        first = self.segments[len(old)].base_offset
        assert first <= self.end_offset, "the log start would pass the end"
        self.start_offset = max(self.start_offset, first)
        snapshots = self.durability.snapshots
        states = recovery.producers_at(self.segments.all, snapshots, first, now_ms=self._last_now_ms)
        snapshots.write(first, states.all(), keep=snapshots.offsets, later=True)
        yield  # the producers of deleted records; and the start offset, by which recovery finishes the deletion
        for at in range(0, len(old), SEGMENTS_PER_STEP):
            some = old[at : at + SEGMENTS_PER_STEP]
            if self._is_closed() or some != self.segments[: len(some)] or len(some) >= len(self.segments):
                return  # the log was truncated or deleted
            for segment in some:
                self.segments.drop(segment)
            self.epochs.truncate_from_start(self.start_offset)
            self.disk.sync_dir_later(self.directory)
            yield  # otherwise a power loss may bring deleted records back
            snapshots.remove_below(min(first, self.segments[0].base_offset))  # the log may have begun anew meanwhile


def _end_of_last(segment: Segment, position: int, offset: int) -> int:
    """The end offset of the last batch before `position`, the place of `offset`; the base offset without batches."""
    start = segment.start_for(offset - 1)
    end_offset = segment.base_offset
    for _, header, _ in segment.scan(start if start < position else 0, position):
        end_offset = header.next_offset
    return end_offset
