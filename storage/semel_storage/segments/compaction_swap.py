"""Replaces compacted segments by their copy, and finishes an interrupted replacement when a log opens.

The copy of a group of segments is written as `.cleaned` and synced. Once its log is renamed to `.swap`, the swap will
be finished; then the old segments are removed, and the copy gets the name of the first one. Each step is durable before
the next one begins, so that after a crash the file names show which step was done last.
"""

from collections.abc import Generator

from semel_storage.disk.disk import Disk
from semel_storage.segments.segment import (
    DELETED,
    INDEX,
    LOG,
    SUFFIXES,
    TIME_INDEX,
    TXN_INDEX,
    Segment,
    file_name,
    offset_of,
)

CLEANED = ".cleaned"
SWAP = ".swap"


class SwappedSegment(Segment):
    """The compacted copy of a group, in the place of the group, while its files still have their `.swap` names."""

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self._in_place: list[str] = []
        super().__init__(disk, directory, base_offset)

    def path(self, suffix: str) -> str:
        path = super().path(suffix)
        return path if suffix in self._in_place else path + SWAP

    def take_place(self, *suffixes: str) -> None:
        """Give these files their final names."""
        for suffix in suffixes:
            before = self.path(suffix)
            self._in_place.append(suffix)
            self.disk.rename(before, self.path(suffix))
        self.index.path, self.time_index.path, self.aborted.path = map(self.path, (INDEX, TIME_INDEX, TXN_INDEX))


def announced(disk: Disk, directory: str, first: Segment) -> Generator[None]:
    """Rename the `.cleaned` files of the segment `first` to `.swap`, in steps (`log.durability.Steps`).

    After the last step a crash finishes the replacement.
    """
    for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
        disk.rename(first.path(suffix) + CLEANED, first.path(suffix) + SWAP)
    disk.sync_dir_later(directory)
    yield
    disk.rename(first.path(LOG) + CLEANED, first.path(LOG) + SWAP)
    disk.sync_dir_later(directory)
    yield


def withdrawn(disk: Disk, directory: str, first: Segment) -> None:
    """The group is gone meanwhile: a crash must not bring its copy back."""
    disk.remove(first.path(LOG) + SWAP)
    disk.sync_dir_later(directory)


def completed(disk: Disk, directory: str, swapped: SwappedSegment) -> Generator[None]:
    """The group was deleted: give the copy its final names, in steps. The log is last: recovery repeats it without."""
    disk.sync_dir_later(directory)
    yield
    swapped.take_place(INDEX, TIME_INDEX, TXN_INDEX)
    disk.sync_dir_later(directory)
    yield
    swapped.take_place(LOG)
    disk.sync_dir_later(directory)
    yield


def _take_place(disk: Disk, directory: str, base_offset: int) -> None:
    """Give the `.swap` files their final names, the log last: recovery repeats this while the log is missing."""
    for suffix in (INDEX, TIME_INDEX, TXN_INDEX, LOG):
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if disk.exists(path + SWAP):
            disk.rename(path + SWAP, path)
            disk.sync_dir(directory)


def recover_swaps(disk: Disk, directory: str) -> None:
    """Finish interrupted swaps and remove unused files, before a log opens its files.

    A `.log.swap` replaces every segment that starts within its offsets. An old segment above them may remain if
    compaction removed all of its records; the next round removes them again.
    """
    names = disk.listdir(directory)
    swaps = [offset_of(name) for name in names if name.endswith(LOG + SWAP)]
    for name in names:
        is_orphan = name.endswith(SWAP) and offset_of(name) not in swaps
        if is_orphan or name.endswith((CLEANED, DELETED)):
            disk.remove(f"{directory}/{name}")
    for base_offset in swaps:
        next_offset = _next_offset(disk, directory, base_offset)
        for old in (offset_of(name) for name in names if name.endswith(LOG)):
            if base_offset < old < next_offset:
                for suffix in SUFFIXES:
                    disk.remove(f"{directory}/{file_name(old, suffix)}")
        disk.sync_dir(directory)
        _take_place(disk, directory, base_offset)


def _next_offset(disk: Disk, directory: str, base_offset: int) -> int:
    """One past the last offset in a `.log.swap`; its base offset if it is empty."""
    segment = SwappedSegment(disk, directory, base_offset)
    next_offset = base_offset
    for _, header, _ in segment.scan():
        next_offset = header.next_offset
    segment.close()
    return next_offset
