"""EDGE: a data directory as files: which partitions it holds, which segments, and stretches of these to look at.

Nothing is locked and nothing written: the broker may run. What it appends after the listing is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from struct import Struct as Layout

import msgspec
import numpy as np

STRETCH_BYTES = 32 << 20
"""What is read at once, and what a task gets at least, where the index of a segment tells batches to part at."""
PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>\d+)")
SEGMENT = re.compile(r"\d{20}\.log")
CLEANER_OFFSET = "cleaner-offset-checkpoint"
RECOVERY_POINT = "recovery-point-offset-checkpoint"
ABORTED = Layout(">hqqqq")
"""Of a `.txnindex`: version, producer id, first offset, offset of the marker, last stable offset."""
COMPACTED = ("__consumer_offsets", "__transaction_state")


class NoDataError(Exception):
    """The directory holds no partitions; says what was expected."""


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes [`start`, `end`) of one segment's log, which open with a batch."""

    topic: str
    partition: int
    path: str
    base_offset: int
    start: int
    end: int
    is_last: bool
    """The end of the newest segment, which a broker may be writing."""
    is_compacted: bool
    """Records may be missing here, by compaction."""
    recovery_point: int
    """Offsets below it were on the disk for sure when the broker noted it; -1 when it noted nothing."""


def stretches(data_dir: Path, topics: tuple[str, ...] = (), compacted: tuple[str, ...] = ()) -> list[Stretch]:
    """All of a data directory, or of some topics, partition by partition and in the order of the offsets.

    `compacted`: topics whose gaps are compaction's, beside the internal ones and those that a cleaner left its
    checkpoint at. Raises NoDataError.
    """
    points = _offsets(data_dir / RECOVERY_POINT)
    found: list[Stretch] = []
    for directory in sorted(path for path in data_dir.iterdir() if path.is_dir()) if data_dir.is_dir() else ():
        named = PARTITION.fullmatch(directory.name)
        if named is None or (topics and named["topic"] not in topics):
            continue
        topic, partition = named["topic"], int(named["partition"])
        is_compacted = topic in (*COMPACTED, *compacted) or bool(_offsets(directory / CLEANER_OFFSET))
        logs = [path for path in sorted(directory.iterdir()) if SEGMENT.fullmatch(path.name)]
        for log in logs:
            whole = Stretch(
                topic=topic,
                partition=partition,
                path=str(log),
                base_offset=int(log.stem),
                start=0,
                end=log.stat().st_size,
                is_last=log == logs[-1],
                is_compacted=is_compacted,
                recovery_point=points.get((topic, partition), -1),
            )
            found += _parted(whole)
    if not found:
        what = f"none of {', '.join(topics)}" if topics else "no <topic>-<partition> directory with segments"
        raise NoDataError(f"{data_dir} holds {what}; name the log.dir of a broker")
    return found


def _parted(whole: Stretch) -> Iterator[Stretch]:
    """A sealed segment, parted at batches that its index tells; the newest one stays whole, its index may be behind."""
    cuts = [0, *([] if whole.is_last else _cuts(Path(whole.path).with_suffix(".index"), whole.end)), whole.end]
    for start, end in pairwise(cuts):
        yield msgspec.structs.replace(whole, start=start, end=end)


def _cuts(index: Path, size: int) -> list[int]:
    """Positions of batches, about a stretch apart."""
    if size <= STRETCH_BYTES or not index.exists():
        return []
    entries = np.frombuffer(index.read_bytes()[: index.stat().st_size // 8 * 8], ">i4").reshape(-1, 2)
    cuts: list[int] = []
    for position in entries[:, 1].tolist():
        if position - (cuts[-1] if cuts else 0) >= STRETCH_BYTES and position < size:
            cuts.append(position)
    return cuts


def _offsets(path: Path) -> dict[tuple[str, int], int]:
    """A checkpoint file of `topic partition offset`; empty when it is absent or not whole."""
    lines = path.read_text("utf-8", "replace").splitlines()[2:] if path.exists() else []
    rows = [line.split() for line in lines]
    return {(row[0], int(row[1])): int(row[2]) for row in rows if len(row) == 3 and row[1].isdecimal()}


def read(stretch: Stretch, at: int, size: int) -> memoryview:
    """So many bytes of the segment from `at`, fewer at its end. Raises FileNotFoundError when retention or compaction
    has removed it meanwhile."""
    with Path(stretch.path).open("rb", buffering=0) as file:
        file.seek(at)
        data = bytearray(size)
        return memoryview(data)[: file.readinto(data)]


def aborted_in_index(directory: Path) -> dict[tuple[int, int], int]:
    """Of a partition: (producer id, offset of the marker) -> first offset, as its `.txnindex` files tell readers."""
    found = {}
    for path in sorted(directory.glob("*.txnindex")):
        data = path.read_bytes()
        for _, producer_id, first, last, _ in ABORTED.iter_unpack(data[: len(data) // ABORTED.size * ABORTED.size]):
            found[producer_id, last] = first
    return found
