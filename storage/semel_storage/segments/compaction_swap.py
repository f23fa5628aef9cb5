"""Replaces compacted segments by their copy, and finishes an interrupted replacement when a log opens.

The copy of a group of segments is written as `.cleaned` and synced. Once its log is renamed to `.swap`, the swap will
be finished; then the old segments are removed, and the copy gets the name of the first one. A sync of the directory
makes each step durable before the next one, so that after a crash the file names show which step was done last.
"""

from collections.abc import Sequence

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


def swap_in(disk: Disk, directory: str, group: Sequence[Segment]) -> None:
    """Replace the group by the synced `.cleaned` files of its first segment, durably."""
    first = group[0]
    for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
        disk.rename(first.path(suffix) + CLEANED, first.path(suffix) + SWAP)
    disk.sync_dir(directory)
    disk.rename(first.path(LOG) + CLEANED, first.path(LOG) + SWAP)
    disk.sync_dir(directory)
    for segment in group:
        segment.delete()
    disk.sync_dir(directory)
    _take_place(disk, directory, first.base_offset)


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


class _SwapSegment(Segment):
    def path(self, suffix: str) -> str:
        return super().path(suffix) + SWAP


def _next_offset(disk: Disk, directory: str, base_offset: int) -> int:
    """One past the last offset in a `.log.swap`; its base offset if it is empty."""
    segment = _SwapSegment(disk, directory, base_offset)
    next_offset = base_offset
    for _, header, _ in segment.scan():
        next_offset = header.next_offset
    segment.close()
    return next_offset
