"""What can be read of a partition, up to where, and who waits for more."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.partitions.storage_errors import answering_used_up

if TYPE_CHECKING:
    from semel_storage.log.log import Log
    from semel_storage.producers.transactions import AbortedTransaction

    from semel_broker.scheduling.waiters import FetchWaiter

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
LOG_END = -1
"""The isolation level of replicas, which read everything that the leader has."""

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

UNSTABLE_MIN = 1000
"""Transactions to keep account of before looking which of them are over."""


class PartitionReader:
    """The half of `Partition` that neither adds nor removes records: a log, its high watermark, and readers.

    Bytes are counted from where the log ended when it was opened; readers compare two such counts.
    """

    def __init__(self, topic: str, index: int, open_log: Callable[[], Log]) -> None:
        self.topic = topic
        self.index = index
        self.leader_epoch = 0
        self.is_leading = True
        self.high_watermark = 0
        self.bytes_visible = 0  # below the high watermark
        self.bytes_stable = 0  # below the last stable offset
        self._epoch_start_offset = 0
        self._open_log = open_log
        self._log: Log | None = None
        self._retired = False
        self._fetching: dict[FetchWaiter, int] = {}  # and the isolation level of each
        self._bytes_appended = 0
        self._bytes_before: OrderedDict[int, int] = OrderedDict()  # bytes before each undecided transaction, by offset
        self._bytes_at: deque[tuple[int, int]] = deque()  # by end offset, of what followers have yet to fetch
        self._unstable_max = UNSTABLE_MIN

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @property
    def is_retired(self) -> bool:
        """Whether the topic was deleted, or its replica here: the log is about to be closed, or is."""
        return self._retired

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
        first = self._log.producers.transactions.first_unstable_offset(self.high_watermark)
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

    # --- reading ---------------------------------------------------------------------------------------------

    def read(self, offset: int, *, bytes_max: int, isolation: int = 0, at_least_one: bool = True) -> bytes:
        """Whole stored batches from the one that holds `offset`; b"" at the end. The first may start below `offset`.

        Raises OFFSET_OUT_OF_RANGE below the log start or above the end.
        """
        up_to = self._readable_end(offset, isolation)
        if not up_to:
            return b""
        assert self._log is not None
        with answering_used_up():
            return self._log.read(offset, up_to=up_to, bytes_max=bytes_max, at_least_one=at_least_one)

    def read_committed(self, offset: int, *, bytes_max: int, at_least_one: bool = True) -> tuple[bytes, list[bytes]]:
        """`read` below the last stable offset, and the aborted transactions among it (`Log.read_committed`)."""
        up_to = self._readable_end(offset, READ_COMMITTED)
        if not up_to:
            return b"", []
        assert self._log is not None
        with answering_used_up():
            return self._log.read_committed(offset, up_to=up_to, bytes_max=bytes_max, at_least_one=at_least_one)

    def read_replica(self, offset: int, *, bytes_max: int, at_least_one: bool = True) -> bytes:
        """`read` for a follower: up to the end of the log."""
        self._check_range(offset)
        if offset == self.end_offset:
            return b""
        assert self._log is not None
        with answering_used_up():
            return self._log.read(offset, up_to=self.end_offset, bytes_max=bytes_max, at_least_one=at_least_one)

    def _readable_end(self, offset: int, isolation: int) -> int:
        """Where a reader at `offset` has to stop; 0 when there is nothing for it yet."""
        self._check_range(offset)
        up_to = self.visible_end(isolation)
        return up_to if offset < up_to else 0

    def _check_range(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside [{self.log_start_offset}, {self.end_offset}]",
            )

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions that end at or after `start` and begin below `end`, in the order of their markers."""
        return self._log.aborted_transactions(start, end) if self._log is not None else []

    def offset_for(self, timestamp: int, isolation: int = READ_UNCOMMITTED) -> tuple[int, int]:
        """ListOffsets of one timestamp (ms, or one of the special values): (offset, timestamp), -1 for none.

        Raises OFFSET_NOT_AVAILABLE as long as a new leader does not know up to where its log is committed (KIP-207).
        """
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return self.log_start_offset, -1
        if self.high_watermark < self._epoch_start_offset:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"leader epoch {self.leader_epoch} has just begun: up to where the log is committed is not known yet",
            )
        up_to = self.visible_end(isolation)
        if timestamp == LATEST:
            return up_to, -1
        if timestamp == LATEST_TIERED or self._log is None:
            return -1, -1
        if timestamp == MAX_TIMESTAMP:
            return self._log.max_timestamp(up_to=up_to) or (-1, -1)
        if timestamp < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{timestamp} is no timestamp and no special value")
        return self._log.offset_for_timestamp(timestamp, up_to=up_to) or (-1, -1)

    # --- waiting for more ------------------------------------------------------------------------------------

    def bytes_readable(self, isolation: int) -> int:
        """What a reader of this isolation level could have read; of use for the difference of two such numbers."""
        if isolation == LOG_END:
            return self._bytes_appended
        return self.bytes_stable if isolation == READ_COMMITTED else self.bytes_visible

    def add_fetch_waiter(self, waiter: FetchWaiter, isolation: int = READ_UNCOMMITTED) -> None:
        """`waiter` hears of every byte that becomes readable at this isolation level, until it is removed."""
        self._fetching[waiter] = isolation
        if self._retired or not self.is_leading:
            waiter.release()

    def remove_fetch_waiter(self, waiter: FetchWaiter) -> None:
        self._fetching.pop(waiter, None)

    def release_fetches(self) -> None:
        """Everybody who waits is to look again."""
        for waiter in self._fetching:
            waiter.release()

    def _note_bytes(self, size: int) -> None:
        """So many bytes were appended."""
        self._bytes_appended += size
        for waiter, isolation in self._fetching.items():
            if isolation == LOG_END:
                waiter.wake(size)

    def _advance(self, high_watermark: int, bytes_visible: int) -> None:
        """The high watermark moves, and perhaps the last stable offset; wake whom that concerns."""
        assert high_watermark >= self.high_watermark, (high_watermark, self.high_watermark)
        self.high_watermark = high_watermark
        bytes_more = bytes_visible - self.bytes_visible
        self.bytes_visible = bytes_visible
        bytes_stable = self._count_stable()
        stable_more = bytes_stable - self.bytes_stable
        self.bytes_stable = bytes_stable
        for waiter, isolation in self._fetching.items():
            if isolation != LOG_END:
                waiter.wake(stable_more if isolation == READ_COMMITTED else bytes_more)

    def _bytes_below(self, high_watermark: int) -> int:
        """The count of bytes up to there; one more than before for bytes from before the counting."""
        marks = self._bytes_at
        if high_watermark >= self.end_offset:
            marks.clear()
            return max(self._bytes_appended, self.bytes_visible + 1)
        count = self.bytes_visible + 1
        while marks and marks[0][0] <= high_watermark:
            count = marks.popleft()[1]
        return count

    def _count_stable(self) -> int:
        before = self._bytes_before
        if not before:
            return self.bytes_visible
        assert self._log is not None
        first = self._log.producers.transactions.first_unstable_offset(self.high_watermark)
        while before and (first is None or next(iter(before)) < first):
            before.popitem(last=False)
        if first is None or first >= self.high_watermark:
            return self.bytes_visible
        return before.get(first, self.bytes_stable)  # one from before the counting has ended, above the high watermark

    def _note_begin(self, offset: int) -> None:
        """A transaction begins at `offset`, behind all the bytes of before."""
        before = self._bytes_before
        before[offset] = self._bytes_appended
        if len(before) > self._unstable_max:  # those that have ended while an older one stays open
            assert self._log is not None
            keep = set(self._log.producers.transactions.unstable_offsets)
            self._bytes_before = OrderedDict((first, count) for first, count in before.items() if first in keep)
            self._unstable_max = max(UNSTABLE_MIN, 2 * len(keep))

    def _begin_counting(self, log: Log) -> None:
        """From here on. Transactions that are open already: their bytes lie before where counting starts."""
        self._bytes_at.clear()
        self._bytes_before.clear()
        self.bytes_visible = self._bytes_appended
        firsts = sorted(state.txn_first_offset for state in log.producers.all() if state.txn_first_offset >= 0)
        for first in firsts:
            self._bytes_before[first] = self._bytes_appended - log.bytes_between(first, log.end_offset)
        self.bytes_stable = self._count_stable()
