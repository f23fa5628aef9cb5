"""EDGE: a data directory as files: its partitions, their segments, and the ranges of the segments that are checked.

The audit takes no lock and writes nothing, so the broker may run. Batches that the broker appends after the listing are
not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from struct import Struct as Layout

import msgspec
import numpy as np

RANGE_BYTES = 32 << 20
"""The most bytes of one read, and the least bytes of one range, where the index of a segment gives batch positions to
split at.
"""
PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>[0-9]+)")
SEGMENT = re.compile(r"[0-9]{20}\.log")
CLEANER_OFFSET = "cleaner-offset-checkpoint"
RECOVERY_POINT = "recovery-point-offset-checkpoint"
ABORTED = Layout(">hqqqq")
"""One entry of a `.txnindex`: version, producer id, first offset, offset of the marker, last stable offset."""
COMPACTED = ("__consumer_offsets", "__transaction_state")


class NoDataError(Exception):
    """The directory holds no partitions; the message says which folder is expected."""


class SegmentRange(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes [`start`, `end`) of one segment's log; a batch starts at `start`."""

    topic: str
    partition: int
    path: str
    base_offset: int
    start: int
    end: int
    is_last: bool
    """This is the end of the newest segment: a broker may be writing it."""
    is_compacted: bool
    """Compaction may have removed records."""
    recovery_point: int
    """The recovery point that the broker stored: offsets below it are synced. -1 if there is no recovery point."""


def segment_ranges(data_dir: Path, topics: tuple[str, ...] = (), compacted: tuple[str, ...] = ()) -> list[SegmentRange]:
    """Return the ranges of all partitions, or of some topics, by partition and in offset order.

    `compacted`: topics that may have gaps from compaction. Internal topics and topics in a cleaner's checkpoint are
    known. Raises NoDataError.
    """
    points = _offsets(data_dir / RECOVERY_POINT)
    found: list[SegmentRange] = []
    for directory in sorted(path for path in data_dir.iterdir() if path.is_dir()) if data_dir.is_dir() else ():
        named = PARTITION.fullmatch(directory.name)
        if named is None or (topics and named["topic"] not in topics):
            continue
        topic, partition = named["topic"], int(named["partition"])
        is_compacted = topic in (*COMPACTED, *compacted) or bool(_offsets(directory / CLEANER_OFFSET))
        logs = [path for path in sorted(directory.iterdir()) if SEGMENT.fullmatch(path.name)]
        for log in logs:
            whole = SegmentRange(
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
            found += _split(whole)
    if not found:
        what = f"none of {', '.join(topics)}" if topics else "no <topic>-<partition> directory with segments"
        raise NoDataError(f"{data_dir} holds {what}; name the log.dir of a broker")
    return found


def _split(whole: SegmentRange) -> Iterator[SegmentRange]:
    """Split a sealed segment at batches that its index lists. The newest segment stays whole, because its index may be
    incomplete.
    """
    cuts = [0, *([] if whole.is_last else _cuts(Path(whole.path).with_suffix(".index"), whole.end)), whole.end]
    for start, end in pairwise(cuts):
        yield msgspec.structs.replace(whole, start=start, end=end)


def _cuts(index: Path, size: int) -> list[int]:
    """Positions of batches, about RANGE_BYTES apart."""
    if size <= RANGE_BYTES or not index.exists():
        return []
    entries = np.frombuffer(index.read_bytes()[: index.stat().st_size // 8 * 8], ">i4").reshape(-1, 2)
    cuts: list[int] = []
    for position in entries[:, 1].tolist():
        if position - (cuts[-1] if cuts else 0) >= RANGE_BYTES and position < size:
            cuts.append(position)
    return cuts


def _offsets(path: Path) -> dict[tuple[str, int], int]:
    """Read a checkpoint file of `topic partition offset`; empty if the file is missing or incomplete."""
    lines = path.read_text("utf-8", "replace").splitlines()[2:] if path.exists() else []
    rows = [line.split() for line in lines]
    return {(row[0], int(row[1])): int(row[2]) for row in rows if len(row) == 3 and row[1].isdecimal()}


def read(segment_range: SegmentRange, at: int, size: int) -> memoryview:
    """Read `size` bytes of the segment from `at`, fewer at its end.

    Raises FileNotFoundError if retention or compaction has removed the segment.
    """
    with Path(segment_range.path).open("rb", buffering=0) as file:
        file.seek(at)
        data = bytearray(size)
        return memoryview(data)[: file.readinto(data)]


def aborted_in_index(directory: Path) -> dict[tuple[int, int], int]:
    """Read the `.txnindex` files of a partition: (producer id, offset of the marker) -> first offset."""
    found = {}
    for path in sorted(directory.glob("*.txnindex")):
        data = path.read_bytes()
        for _, producer_id, first, last, _ in ABORTED.iter_unpack(data[: len(data) // ABORTED.size * ABORTED.size]):
            found[producer_id, last] = first
    return found
