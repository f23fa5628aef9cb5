"""EDGE: writes lines to an output in a thread of its own, so that no output holds the event loop.

The output may be a pipe or a terminal that is not read, or a file on a disk that hangs. `put` never waits: it appends
to a bounded queue. If the output fails for a time (a full disk), the lines in hand are tried again; meanwhile the queue
fills, and then lines are lost and counted. If the output is gone (a closed pipe), all lines are lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from errno import EBADF, EIO, EPIPE
from typing import Final, Protocol

from semel_broker.output.line_queue import Line, LineQueue, Lost, Room

CHUNK_BYTES: Final = 64 << 10
"""The lines of one write."""
AGAIN_S: Final = 1.0
"""The pause after a failed write."""
GONE: Final = (EBADF, EIO, EPIPE)
"""An output that is not a file has ended: a closed descriptor, a terminal that has hung up, a closed pipe."""


class Sink(Protocol):
    """An output of bytes. Only the thread of its writer uses it."""

    def write(self, data: bytes, at: int) -> int:
        """Write `data` from `at` on; may wait. Return the position behind what was written, which is beyond `at` or
        before it (if lines must be written again). Raises OSError.
        """
        ...


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class LineWriter:
    """One for each output. Its thread ends with `close`, or with the process.

    `describe`: the lines that are written in place of lost ones. `gone`: the errors after which nothing is tried again.
    `on_failed`: called in the thread when a write fails
    after one that did not. `on_drained`: called in the thread when all lines are written, with the number of lines that
    were lost since the last time, by kind.
    """

    def __init__(
        self,
        sink: Sink,
        rooms: Mapping[str, Room],
        describe: Callable[[Lost], bytes],
        *,
        name: str,
        gone: Collection[int] = GONE,
        on_failed: Callable[[OSError], None] = lambda error: None,
        on_drained: Callable[[Mapping[str, int]], None] = lambda lost: None,
    ) -> None:
        self._sink, self._queue, self._describe = sink, LineQueue(rooms), describe
        self._gone, self._on_failed, self._on_drained = gone, on_failed, on_drained
        # Reentrant: the garbage collector may run a finalizer that logs inside of `put`.
        self._changed = threading.Condition(threading.RLock())
        self._missing: dict[str, int] = {}
        self._is_busy = False
        self._begun_s: float | None = None
        self._has_failed = False
        self._is_gone = False
        self._is_closing = False
        self._thread = threading.Thread(target=self._write_all, name=name, daemon=True)
        self._thread.start()

    def put(self, kind: str, data: bytes) -> bool:
        """Queue one line, with its end. False: it is lost. Never waits for the output."""
        with self._changed:
            if self._is_gone:
                self._queue.lost[kind] += 1
                return False
            is_queued = self._queue.put(kind, data, _now_ms())
            if not self._is_busy:
                self._changed.notify_all()
            return is_queued

    def lost_lines(self, *kinds: str) -> int:
        """Lines of these kinds that were lost since the start."""
        return sum(self._queue.lost[kind] for kind in kinds)

    def is_behind(self, kind: str, seconds: float) -> bool:
        """Whether a line of this kind may wait long: there is no room, the last write has failed, the output is gone,
        or a write has not ended for so many seconds.
        """
        with self._changed:
            begun_s = self._begun_s
            waits = begun_s is not None and time.monotonic() - begun_s > seconds
            return waits or self._has_failed or self._is_gone or not self._queue.has_room(kind)

    def flush(self, wait_s: float) -> bool:
        """Wait until all lines are written, at most `wait_s` seconds. Returns whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_busy and not len(self._queue), wait_s)

    def close(self, wait_s: float) -> bool:
        """`flush`, and end the thread. Returns whether all lines are written."""
        is_written = self.flush(wait_s)
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if is_written:
            self._thread.join(wait_s)
        return is_written

    # --- in the thread -----------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._is_busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: len(self._queue) or self._is_closing)
                if not len(self._queue):
                    return
                self._is_busy = True
                taken = self._queue.take(CHUNK_BYTES)
            is_written = self._write(taken)
            with self._changed:
                self._queue.done(taken)
                if not is_written:
                    self._lose_all(taken)
                    return
                is_drained = not len(self._queue)
            if is_drained:
                self._on_drained(self._missing)
                self._missing = {}

    def _write(self, taken: Sequence[Line | Lost]) -> bool:
        """Write lines, again and again until it succeeds. False: the output is gone, or the process ends."""
        data = b"".join([each.data if isinstance(each, Line) else self._describe(each) for each in taken])
        at = 0
        while at < len(data):
            self._begun_s = time.monotonic()
            try:
                at = self._sink.write(data, at)
            except OSError as error:
                if not self._has_failed:
                    self._has_failed = True
                    self._on_failed(error)
                if error.errno in self._gone or self._pause():
                    return False
            finally:
                self._begun_s = None
        self._has_failed = False
        for each in taken:
            if isinstance(each, Lost):
                for kind, count in each.lines.items():
                    self._missing[kind] = self._missing.get(kind, 0) + count
        return True

    def _pause(self) -> bool:
        """Wait before the next attempt; return whether the writer is closed meanwhile."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_closing, AGAIN_S)

    def _lose_all(self, taken: Sequence[Line | Lost]) -> None:
        self._is_gone = True
        for each in taken:
            if isinstance(each, Line):
                self._queue.lost[each.kind] += 1
        self._queue.lose_all()
        self._is_busy = False
        self._changed.notify_all()
