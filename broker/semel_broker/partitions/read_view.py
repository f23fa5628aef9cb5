"""The part of a partition that readers see: high watermark, last stable offset, and the fetches that wait for more."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from semel_storage.log.log import Log

    from semel_broker.scheduling.waiters import FetchWaiter

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
LOG_END = -1
"""The isolation level of replicas: they read up to the end of the leader's log."""

UNSTABLE_MIN = 1000
"""Byte counts of transactions to keep before those of completed transactions are removed."""


class Undecided(msgspec.Struct, frozen=True, gc=False):
    """A transaction without a marker below the high watermark."""

    bytes_before: int
    """The count of bytes where it begins."""
    began_ms: int
    """When this broker appended its first batch. Of one that was open before this broker led the partition: when the
    last batch was appended.
    """
    transactional_id: str = ""
    """Empty if this broker does not know it."""


class ReadView:
    """Where reads of each isolation level end, and the waiting fetches, which it wakes as these ends move.

    Bytes are counted from the end that the log has when it is opened; readers compare two such counts.
    """

    def __init__(self) -> None:
        self.high_watermark = 0
        self.bytes_visible = 0
        """Below the high watermark."""
        self.bytes_stable = 0
        """Below the last stable offset."""
        self._log: Log | None = None
        self._waiters: dict[FetchWaiter, int] = {}  # and the isolation level of each
        self._bytes_appended = 0
        self._undecided: OrderedDict[int, Undecided] = OrderedDict()  # by first offset
        self._bytes_at: deque[tuple[int, int]] = deque()  # by end offset, for appends above the high watermark
        self._unstable_max = UNSTABLE_MIN

    def attach(self, log: Log) -> None:
        """The partition has opened its log."""
        assert self._log is None, "bytes are counted from the end that one log had when it was opened"
        self._log = log
        self.high_watermark = max(self.high_watermark, log.start_offset)
        self.begin_counting()

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the first offset of the first undecided transaction if that is below it.

        A transaction is undecided until its marker is below the high watermark.
        """
        log = self._log
        if log is None:
            return self.high_watermark
        first = log.producers.transactions.first_unstable_offset(self.high_watermark)
        if first is None or first >= self.high_watermark:
            return self.high_watermark
        return max(first, log.start_offset)

    def readable_from(self, offset: int) -> int:
        """How many records a read_committed consumer at `offset` still gets: without markers and aborted records, as
        far as `ProducerTable.unreadable` knows them.
        """
        end = self.last_stable_offset
        if self._log is None or offset >= end:
            return 0
        start = max(offset, self._log.start_offset)
        return max(0, end - start - self._log.producers.unreadable.between(start, end))

    def visible_end(self, isolation: int) -> int:
        """The offset at which a read of this isolation level ends: READ_COMMITTED or READ_UNCOMMITTED."""
        return self.last_stable_offset if isolation == READ_COMMITTED else self.high_watermark

    def bytes_readable(self, isolation: int) -> int:
        """The count of bytes up to the end of this isolation level. Only the difference of two counts has a meaning."""
        if isolation == LOG_END:
            return self._bytes_appended
        return self.bytes_stable if isolation == READ_COMMITTED else self.bytes_visible

    # --- waiting fetches -------------------------------------------------------------------------------------

    def add_waiter(self, waiter: FetchWaiter, isolation: int) -> None:
        """Wake `waiter` for all bytes that become readable at this isolation level, until it is removed."""
        self._waiters[waiter] = isolation

    def remove_waiter(self, waiter: FetchWaiter) -> None:
        self._waiters.pop(waiter, None)

    def release_waiters(self) -> None:
        """Release all waiting fetches: each reads the partition again."""
        for waiter in self._waiters:
            waiter.release()

    # --- movement --------------------------------------------------------------------------------------------

    def note_append(self, end_offset: int, size: int) -> None:
        """The leader has appended `size` bytes, up to `end_offset`."""
        self._bytes_appended += size
        for waiter, isolation in self._waiters.items():
            if isolation == LOG_END:
                waiter.wake(size)
        self._mark(end_offset)

    def note_replicated(self, end_offset: int, size: int) -> None:
        """The follower has appended `size` bytes, up to `end_offset`."""
        self._bytes_appended += size
        self._mark(end_offset)

    def _mark(self, end_offset: int) -> None:
        marks = self._bytes_at
        assert not marks or marks[-1][0] < end_offset, "`_bytes_below` reads the marks in the order of offsets"
        marks.append((end_offset, self._bytes_appended))

    def advance(self, high_watermark: int) -> None:
        """Move the high watermark of a leader, and with it the last stable offset; wake the waiting fetches."""
        assert high_watermark >= self.high_watermark, (high_watermark, self.high_watermark)
        bytes_visible = self._bytes_below(high_watermark)
        self.high_watermark = high_watermark
        bytes_more = bytes_visible - self.bytes_visible
        self.bytes_visible = bytes_visible
        bytes_stable = self._count_stable()
        stable_more = bytes_stable - self.bytes_stable
        self.bytes_stable = bytes_stable
        for waiter, isolation in self._waiters.items():
            if isolation != LOG_END:
                waiter.wake(stable_more if isolation == READ_COMMITTED else bytes_more)

    def forget_counts(self) -> None:
        """The replica becomes a follower, or its log is cut: forget where bytes end and transactions begin.

        Without the beginnings of transactions, a read_committed fetch that waits here may be woken too early.
        """
        self._bytes_at.clear()
        self._undecided.clear()

    def follow(self, high_watermark: int) -> None:
        """Set the high watermark of a follower, which may also go back."""
        assert high_watermark >= 0, high_watermark
        if self._log is not None and high_watermark > self.high_watermark:
            self.advance(high_watermark)
            return
        self.high_watermark = high_watermark

    def _bytes_below(self, high_watermark: int) -> int:
        """The count of bytes up to there; for bytes from before the counting, one more than the last count."""
        assert self._log is not None
        marks = self._bytes_at
        if high_watermark >= self._log.end_offset:
            marks.clear()
            return max(self._bytes_appended, self.bytes_visible + 1)
        count = self.bytes_visible + 1
        while marks and marks[0][0] <= high_watermark:
            count = marks.popleft()[1]
        return count

    def _count_stable(self) -> int:
        before = self._undecided
        if not before:
            return self.bytes_visible
        assert self._log is not None
        first = self._log.producers.transactions.first_unstable_offset(self.high_watermark)
        while before and (first is None or next(iter(before)) < first):
            before.popitem(last=False)
        if first is None or first >= self.high_watermark:
            return self.bytes_visible
        known = before.get(first)  # None: it is from before the counting, and has ended above the high watermark
        return self.bytes_stable if known is None else known.bytes_before

    def pinned_by(self) -> Undecided | None:
        """The transaction that holds the last stable offset below the high watermark; None: there is none."""
        if self._log is None:
            return None
        first = self._log.producers.transactions.first_unstable_offset(self.high_watermark)
        return None if first is None or first >= self.high_watermark else self._undecided.get(first)

    def note_transaction(self, offset: int, now_ms: int = -1, transactional_id: str = "") -> None:
        """A transaction begins with the batch at `offset`. To be called before `note_append` of this batch."""
        before = self._undecided
        assert not before or next(reversed(before)) < offset, "`_count_stable` takes the first ones from the front"
        before[offset] = Undecided(self._bytes_appended, now_ms, transactional_id)
        if len(before) > self._unstable_max:  # some have ended while an older one stays open
            assert self._log is not None
            keep = set(self._log.producers.transactions.unstable_offsets)
            self._undecided = OrderedDict((first, known) for first, known in before.items() if first in keep)
            self._unstable_max = max(UNSTABLE_MIN, 2 * len(keep))

    def begin_counting(self) -> None:
        """Count bytes from the end of the log. The bytes of transactions that are open already lie before it."""
        log = self._log
        assert log is not None
        self._bytes_at.clear()
        self._undecided.clear()
        self.bytes_visible = self._bytes_appended
        begun = sorted(
            (state.txn_first_offset, state.last_append_ms)
            for state in log.producers.all()
            if state.txn_first_offset >= 0
        )
        for first, last_ms in begun:
            self._undecided[first] = Undecided(self._bytes_appended - log.bytes_between(first, log.end_offset), last_ms)
        self.bytes_stable = self._count_stable()
