"""The last step of a compaction, and what a start does about one that was interrupted.

The copy of a group of segments is written as `.cleaned` and synced. Renaming its log to `.swap` is the point of no
return; then the old segments are removed, and the copy takes the name of the first. Each step is made durable by a
sync of the directory before the next one, so that after a crash at any point the directory tells how far it came.
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
    """Put the synced `.cleaned` files of the group's first segment in the place of the whole group, durably."""
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
    """Give a `.swap` its final name, the log last: while that is missing, a start does this again."""
    for suffix in (INDEX, TIME_INDEX, TXN_INDEX, LOG):
        path = f"{directory}/{file_name(base_offset, suffix)}"
        if disk.exists(path + SWAP):
            disk.rename(path + SWAP, path)
            disk.sync_dir(directory)


def recover_swaps(disk: Disk, directory: str) -> None:
    """Finish the swaps that a crash interrupted and remove what counts for nothing, before a log looks at its files.

    A `.log.swap` stands for every segment that starts within its offsets. One of the group that lost all of its
    records may so be left beside it: it holds only what the next round drops again.
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
    """One past the last offset in a `.log.swap`; its base offset when it is empty."""
    segment = _SwapSegment(disk, directory, base_offset)
    next_offset = base_offset
    for _, header, _ in segment.scan():
        next_offset = header.next_offset
    segment.close()
    return next_offset
