"""One partition as its leader sees it: append, when an append is committed, and what may be read."""

from __future__ import annotations

from asyncio import Future, Task, TimerHandle, get_running_loop
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from semel_protocol.control import MARKER_BYTES
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.flusher import Flusher
from semel_broker.waiters import FetchWaiter, OffsetWaiters

if TYPE_CHECKING:
    from semel_protocol.batch import BatchHeader
    from semel_storage.disk import File
    from semel_storage.log import AppendResult, Log
    from semel_storage.transactions import AbortedTransaction

    from semel_broker.world import World

Buffer = bytes | bytearray | memoryview

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

LAZY_S = 0.1
"""A lazy append is synced within this time, or with the next one that is not."""
UNSTABLE_MIN = 1000
"""Transactions to keep account of before looking which of them are over."""


class Partition:
    """A log and its high watermark. The log is opened (and its directory created) at the first append, or by `open`.

    `fsync`: the high watermark follows what is synced, so that consumers never see what a power cut could take
    back; every append schedules a sync, and all appends of one turn of the loop share it. Otherwise an append is
    committed at once, as in Kafka.
    """

    def __init__(
        self,
        topic: str,
        index: int,
        *,
        open_log: Callable[[], Log],
        world: World,
        fsync: bool,
        flusher: Flusher | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.leader_epoch = 0
        self.high_watermark = 0
        self.bytes_visible = 0  # below the high watermark, counted from where that was when the log was opened
        self.bytes_stable = 0  # the same, below the last stable offset
        self._open_log = open_log
        self._log: Log | None = None
        self._world = world
        self._fsync = fsync
        self._flusher = flusher or Flusher(world.disk)
        self._retired = False
        self._committing = OffsetWaiters()
        self._fetching: dict[FetchWaiter, int] = {}  # and the isolation level of each
        self._bytes_appended = 0
        self._bytes_before: OrderedDict[int, int] = OrderedDict()  # bytes before each undecided transaction, by offset
        self._unstable_max = UNSTABLE_MIN
        self._flushing: Task[None] | None = None
        self._lazy_flush: TimerHandle | None = None

    # --- the log ---------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @property
    def is_retired(self) -> bool:
        """Whether the topic was deleted: the log is about to be closed, or is."""
        return self._retired

    @property
    def log(self) -> Log:
        """The log, opened now if it is not yet. Raises UNKNOWN_TOPIC_OR_PARTITION once the partition is retired."""
        return self._log or self.open()

    def open(self) -> Log:
        """Open (create or recover) the log; everything found in it is committed as far as it is durable.

        The leader epoch goes on from that of the log, which another broker may have written.
        """
        if self._retired:
            raise self._gone()
        if self._log is None:
            self._log = self._open_log()
            self.leader_epoch = max(self.leader_epoch, self._log.epochs.latest)
            self.high_watermark = self._log.synced_offset if self._fsync else self._log.end_offset
            self._count_unstable(self._log)
            if self.high_watermark < self._log.end_offset:
                self._flusher.add(self)
        return self._log

    @property
    def log_start_offset(self) -> int:
        return self._log.start_offset if self._log is not None else 0

    @property
    def end_offset(self) -> int:
        """The offset the next record gets."""
        return self._log.end_offset if self._log is not None else 0

    @property
    def last_stable_offset(self) -> int:
        """Read-committed consumers read below this: the high watermark, or where the first undecided transaction began.

        A transaction counts as undecided until its marker is committed too.
        """
        if self._log is None:
            return self.high_watermark
        first = self._log.first_unstable_offset(self.high_watermark)
        if first is None or first >= self.high_watermark:
            return self.high_watermark
        return max(first, self._log.start_offset)

    def visible_end(self, isolation: int) -> int:
        """Where a reader of this isolation level ends."""
        return self.last_stable_offset if isolation == READ_COMMITTED else self.high_watermark

    def check_leader_epoch(self, epoch: int) -> None:
        """The epoch a client believes in (KIP-320), -1 for none. Raises FENCED_ or UNKNOWN_LEADER_EPOCH."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch} is over, now is {self.leader_epoch}")
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch} is not known here yet")

    # --- writing ---------------------------------------------------------------------------------------------

    def append(self, batch: Buffer, *, header: BatchHeader, lazily: bool = False) -> AppendResult:
        """Append one whole batch; runs to completion. With acks=all await `committed(result.last_offset + 1)`.

        `lazily`: nobody waits for it to be committed. Raises KafkaError: 10 and 18 (size), 45, 46 and 47 (producer
        state), 3 once the partition is retired. A duplicate is no error: the result carries the offsets of the
        original.
        """
        if self._retired:
            raise self._gone()
        log = self.log
        result = log.append(batch, header=header, leader_epoch=self.leader_epoch, now_ms=self._world.now_ms())
        if not result.duplicate:
            if header.is_transactional and self.open_transaction(header.producer_id) == result.base_offset:
                self._note_begin(result.base_offset)
            self._appended(header.size, lazily)
        return result

    def append_marker(
        self, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int
    ) -> AppendResult:
        """Append the marker that ends the producer's transaction here; runs to completion.

        Await `committed(result.last_offset + 1)` before the transaction counts as ended. To do so again is harmless:
        a retry is answered with the first one's place. Raises KafkaError: 47 for an epoch that a newer one has
        fenced, 52 for a coordinator whose successor has written here, 3 once the partition is retired.
        """
        if self._retired:
            raise self._gone()
        result = self.log.append_marker(
            producer_id,
            producer_epoch,
            commit,
            coordinator_epoch,
            leader_epoch=self.leader_epoch,
            now_ms=self._world.now_ms(),
        )
        if not result.duplicate:
            self._appended(MARKER_BYTES)
        return result

    def open_transaction(self, producer_id: int) -> int | None:
        """The first offset of the producer's transaction that is open in this partition; None: none is."""
        state = self._log.producer(producer_id) if self._log is not None else None
        return state.txn_first_offset if state is not None and state.txn_first_offset >= 0 else None

    async def committed(self, offset: int) -> None:
        """Return once everything below `offset` is committed (synced, if the broker runs with fsync)."""
        if self.high_watermark < offset:
            self.hurry()
        if (future := self.committing(offset)) is not None:
            await future

    def committing(self, offset: int) -> Future[None] | None:
        """Done once everything below `offset` is committed; None: it is. Whoever has it may end it sooner."""
        return self._committing.wait_for(offset, get_running_loop()) if self.high_watermark < offset else None

    def hurry(self) -> None:
        """What was appended, here and in other partitions, is to be committed now if it can be."""
        self._flusher.hurry()

    def delete_records(self, before: int) -> int:
        """Move the log start to `before` (-1: the high watermark); returns the new low watermark.

        Raises OFFSET_OUT_OF_RANGE beyond the high watermark.
        """
        if before == LATEST:
            before = self.high_watermark
        if before < 0 or before > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete records before {before}: the high watermark is {self.high_watermark}",
            )
        if before > self.log_start_offset:
            self.log.delete_records_before(before)
        return self.log_start_offset

    # --- reading ---------------------------------------------------------------------------------------------

    def read(self, offset: int, *, bytes_max: int, isolation: int = 0, at_least_one: bool = True) -> bytes:
        """Whole stored batches from the one that holds `offset`; b"" at the end. The first may start below `offset`.

        Raises OFFSET_OUT_OF_RANGE below the log start or above the end.
        """
        up_to = self._readable_end(offset, isolation)
        return self.log.read(offset, up_to=up_to, bytes_max=bytes_max, at_least_one=at_least_one) if up_to else b""

    def read_committed(self, offset: int, *, bytes_max: int, at_least_one: bool = True) -> tuple[bytes, list[bytes]]:
        """`read` below the last stable offset, and the aborted transactions among it (`Log.read_committed`)."""
        up_to = self._readable_end(offset, READ_COMMITTED)
        if not up_to:
            return b"", []
        return self.log.read_committed(offset, up_to=up_to, bytes_max=bytes_max, at_least_one=at_least_one)

    def _readable_end(self, offset: int, isolation: int) -> int:
        """Where a reader at `offset` has to stop; 0 when there is nothing for it yet."""
        if not self.log_start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside [{self.log_start_offset}, {self.end_offset}]",
            )
        up_to = self.visible_end(isolation)
        return up_to if offset < up_to else 0

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions that end at or after `start` and begin below `end`, in the order of their markers."""
        return self._log.aborted_transactions(start, end) if self._log is not None else []

    def offset_for(self, timestamp: int, isolation: int = READ_UNCOMMITTED) -> tuple[int, int]:
        """ListOffsets of one timestamp (ms, or one of the special values): (offset, timestamp), -1 for none."""
        up_to = self.visible_end(isolation)
        if timestamp == LATEST:
            return up_to, -1
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return self.log_start_offset, -1
        if timestamp == LATEST_TIERED or not self.is_open:
            return -1, -1
        if timestamp == MAX_TIMESTAMP:
            return self.log.max_timestamp(up_to=up_to) or (-1, -1)
        if timestamp < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{timestamp} is no timestamp and no special value")
        return self.log.offset_for_timestamp(timestamp, up_to=up_to) or (-1, -1)

    def bytes_readable(self, isolation: int) -> int:
        """What a reader of this isolation level could have read; of use for the difference of two such numbers."""
        return self.bytes_stable if isolation == READ_COMMITTED else self.bytes_visible

    def add_fetch_waiter(self, waiter: FetchWaiter, isolation: int = READ_UNCOMMITTED) -> None:
        """`waiter` hears of every byte that becomes readable at this isolation level, until it is removed."""
        self._fetching[waiter] = isolation
        if self._retired:
            waiter.release()

    def remove_fetch_waiter(self, waiter: FetchWaiter) -> None:
        self._fetching.pop(waiter, None)

    # --- life ------------------------------------------------------------------------------------------------

    def retire(self) -> None:
        """The topic is deleted: whoever waits or comes later gets UNKNOWN_TOPIC_OR_PARTITION."""
        self._retired = True
        self._committing.fail(self._gone())
        self._release_fetches()

    async def close(self) -> None:
        """For good: nothing is appended any more, and all that was is durable. The data directory closes the log."""
        self._flusher.forget(self)
        if self._lazy_flush is not None:
            self._lazy_flush.cancel()
        if self._flushing is not None:
            await self._flushing
        log, retired, self._retired = self._log, self._retired, True
        if log is not None and not retired:
            await log.sync()
            self._advance(log.end_offset, self._bytes_appended)
        self._release_fetches()

    # --- inside ----------------------------------------------------------------------------------------------

    def unsynced_file(self) -> File | None:
        """See `flusher.Flushed`."""
        log = self._log
        if log is None or self.high_watermark >= log.end_offset or self._flushing is not None or self._retired:
            return None
        return log.unsynced_file()

    def note_synced(self) -> None:
        """See `flusher.Flushed`."""
        log = self._log
        assert log is not None
        log.note_synced()
        self._advance(log.end_offset, self._bytes_appended)

    def flush(self) -> None:
        """See `flusher.Flushed`."""
        log = self._log
        if log is not None and self.high_watermark < log.end_offset and self._flushing is None and not self._retired:
            self._flushing = get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        """Sync until nothing is left to sync. One at a time: what is appended meanwhile shares the next one."""
        log = self._log
        assert log is not None
        try:
            while self.high_watermark < log.end_offset and not self._retired:
                end, appended = log.end_offset, self._bytes_appended
                await log.sync()
                self._advance(end, appended)
        except Exception as error:  # a bug of ours: a disk that fails ends the process
            self._committing.fail(error)
            raise
        finally:
            self._flushing = None  # in the same turn as the last look at the end offset: no append falls in between

    def _appended(self, size: int, lazily: bool = False) -> None:
        """`size` bytes more in the log: committed now, or once they are synced."""
        assert self._log is not None
        self._bytes_appended += size
        if not self._fsync:
            self._advance(self._log.end_offset, self._bytes_appended)
        elif not lazily:
            self._flusher.add(self)
        elif self._lazy_flush is None:
            self._lazy_flush = get_running_loop().call_later(LAZY_S, self._flush_lazily)

    def _flush_lazily(self) -> None:
        self._lazy_flush = None
        self._flusher.add(self)

    def _advance(self, high_watermark: int, bytes_visible: int) -> None:
        """The high watermark moves, and perhaps the last stable offset; wake whom that concerns."""
        assert high_watermark >= self.high_watermark, (high_watermark, self.high_watermark)
        self.high_watermark = high_watermark
        bytes_more = bytes_visible - self.bytes_visible
        self.bytes_visible = bytes_visible
        bytes_stable = self._bytes_stable()
        stable_more = bytes_stable - self.bytes_stable
        self.bytes_stable = bytes_stable
        if self._committing:
            self._committing.reached(high_watermark)
        for waiter, isolation in self._fetching.items():
            waiter.wake(stable_more if isolation == READ_COMMITTED else bytes_more)

    def _bytes_stable(self) -> int:
        before = self._bytes_before
        if not before:
            return self.bytes_visible
        assert self._log is not None
        first = self._log.first_unstable_offset(self.high_watermark)
        while before and (oldest := next(iter(before))) != first:
            del before[oldest]
        return before[first] if first is not None and first < self.high_watermark else self.bytes_visible

    def _note_begin(self, offset: int) -> None:
        """A transaction begins at `offset`, behind all the bytes of before."""
        before = self._bytes_before
        before[offset] = self._bytes_appended
        if len(before) > self._unstable_max:  # those that have ended while an older one stays open
            keep = set(self.log.unstable_offsets())
            self._bytes_before = OrderedDict((first, count) for first, count in before.items() if first in keep)
            self._unstable_max = max(UNSTABLE_MIN, 2 * len(keep))

    def _count_unstable(self, log: Log) -> None:
        """Transactions that were open when the log was opened: their bytes lie before where counting starts."""
        firsts = sorted(state.txn_first_offset for state in log.active_producers() if state.txn_first_offset >= 0)
        for first in firsts:
            self._bytes_before[first] = -log.bytes_between(first, self.high_watermark)
        self.bytes_stable = self._bytes_stable()

    def _release_fetches(self) -> None:
        for waiter in self._fetching:
            waiter.release()

    def _gone(self) -> KafkaError:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.topic}-{self.index} is deleted or closed")
