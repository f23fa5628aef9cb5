"""The two checkpoint files of a data directory: recovery points and log start offsets of all its logs.

Each write replaces both files, as far as they changed, with whatever was noted until then. While a write runs on a
thread, all that is noted meanwhile shares the next one.
"""

import asyncio
from collections.abc import Mapping

from semel_storage import checkpoints
from semel_storage.checkpoints import TopicPartition
from semel_storage.disk.disk import Disk
from semel_storage.disk.wakeups import Wakeups


class CheckpointFiles:
    """`points` and `starts` are as noted; the files follow with `saved` or `save_now`."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._points_path = f"{root}/{checkpoints.RECOVERY_POINT}"
        self._starts_path = f"{root}/{checkpoints.LOG_START_OFFSET}"
        self._points = checkpoints.read_offsets(disk, self._points_path)
        self._starts = checkpoints.read_offsets(disk, self._starts_path)
        self._points_changed = self._starts_changed = False
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._wakeups = Wakeups()
        self._saves_now = 0  # calls of `save_now` while a write ran

    @property
    def points(self) -> Mapping[TopicPartition, int]:
        """Recovery points."""
        return self._points

    @property
    def starts(self) -> Mapping[TopicPartition, int]:
        """Start offsets of logs that begin within a segment."""
        return self._starts

    def note_point(self, key: TopicPartition, point: int | None) -> None:
        """The recovery point of a log; None: it has none any more."""
        if self._points.get(key) != point:
            self._points_changed = True
            _put(self._points, key, point)

    def note_start(self, key: TopicPartition, start: int | None) -> None:
        """The start offset of a log; None: it is that of its first segment."""
        if self._starts.get(key) != start:
            self._starts_changed = True
            _put(self._starts, key, start)

    def save_now(self) -> None:
        """Write what has changed. Blocks."""
        points_changed, starts_changed = self._taken()
        if self._running is not None:
            self._disk.finish_asides()  # an older state must not be written after this one
            self._saves_now += 1
            points_changed = starts_changed = True  # of which the write that runs may have written nothing yet
        if points_changed:
            self._disk.write_atomically(self._points_path, checkpoints.encode_offsets(self._points))
        if starts_changed:
            self._disk.write_atomically(self._starts_path, checkpoints.encode_offsets(self._starts))

    async def saved(self) -> None:
        """Return once all that was noted before this call is durable."""
        self.save_soon()
        if (task := self._next or self._running) is not None:
            await self._wakeups.after(task)

    def save_soon(self) -> None:
        """Begin to write what has changed, after the write that runs."""
        if self._next is None and (self._points_changed or self._starts_changed):
            self._next = asyncio.get_running_loop().create_task(self._write(self._running), name="checkpoint files")

    async def idle(self) -> None:
        """Return once no write runs."""
        while (task := self._next or self._running) is not None:
            await asyncio.wait((task,))

    async def _write(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait((earlier,))
        self._running, self._next = self._next, None
        points_changed, starts_changed = self._taken()
        points, starts, saves_now = dict(self._points), dict(self._starts), self._saves_now
        try:
            if points_changed:
                await self._write_aside(self._points_path, points, saves_now)
            if starts_changed:
                await self._write_aside(self._starts_path, starts, saves_now)
        except BaseException:
            self._points_changed |= points_changed
            self._starts_changed |= starts_changed
            raise
        finally:
            self._running = None

    async def _write_aside(self, path: str, offsets: Mapping[TopicPartition, int], saves_now: int) -> None:
        """Write a file, unless `save_now` has written a newer state meanwhile."""
        encoded = await _encoded(offsets)
        if self._saves_now == saves_now:
            await self._disk.write_aside(path, encoded)

    def _taken(self) -> tuple[bool, bool]:
        changed = self._points_changed, self._starts_changed
        self._points_changed = self._starts_changed = False
        return changed


async def _encoded(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The bytes of a file; the loop turns between portions of the rows."""
    portions = []
    for portion in checkpoints.encoded_offsets(offsets):
        portions.append(portion)
        if len(offsets) > checkpoints.ROWS_PER_STEP:
            await asyncio.sleep(0)
    return b"".join(portions)


def _put(offsets: dict[TopicPartition, int], key: TopicPartition, offset: int | None) -> None:
    if offset is None:
        offsets.pop(key, None)
    else:
        offsets[key] = offset
