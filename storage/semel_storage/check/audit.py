"""EDGE: the whole check of a data directory, its ranges examined in processes of this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from semel_storage.check.data_dir import SegmentRange, aborted_in_index, read, segment_ranges
from semel_storage.check.partition_result import CheckedPartition, combine
from semel_storage.check.range_facts import Facts, examine

Progress = Callable[[int, int], None]
"""Bytes or tasks done, and all of them."""
ALONE_BYTES_MAX = 64 << 20
"""A directory up to this size is examined by this process: starting others takes longer."""


class Audit(NamedTuple):
    """The result. `seconds`: the duration, without the start of Spark."""

    partitions: list[CheckedPartition]
    seconds: float

    @property
    def is_sound(self) -> bool:
        return not any(each.breaches.counts for each in self.partitions)


def audit(
    data_dir: Path,
    topics: tuple[str, ...] = (),
    compacted: tuple[str, ...] = (),
    progress: Progress = lambda done, total: None,
    processes: int = 0,
) -> Audit:
    """Check every batch of a data directory. `processes`: 0 is one for each core. Raises NoDataError."""
    started = time.monotonic()
    parts = segment_ranges(data_dir, topics, compacted)
    total = sum(_size(part) for part in parts)
    count = processes or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else processes or 1
    found: dict[int, list[Facts]] = {}
    done = 0
    progress(0, total)
    if count == 1 or total <= ALONE_BYTES_MAX:
        for number, part in enumerate(parts):
            found[number] = _examined(part)
            progress(done := done + _size(part), total)
    else:
        with ProcessPoolExecutor(count) as pool:
            running = {pool.submit(_examined, part): number for number, part in enumerate(parts)}
            for future in as_completed(running):
                number = running[future]
                found[number] = future.result()
                progress(done := done + _size(parts[number]), total)
    return Audit(combine_all(parts, found), time.monotonic() - started)


def combine_all(parts: Sequence[SegmentRange], found: Mapping[int, list[Facts]]) -> list[CheckedPartition]:
    """The results by partition. `found`: the facts of each range, by its index in `parts`."""
    partitions = []
    for (topic, number), each in groupby(range(len(parts)), key=lambda i: (parts[i].topic, parts[i].partition)):
        mine = list(each)
        pieces = [facts for i in mine for facts in found[i]]
        index = aborted_in_index(Path(parts[mine[0]].path).parent)
        partitions.append(combine(topic, number, pieces, parts[mine[0]].is_compacted, index))
    return partitions


def _examined(part: SegmentRange) -> list[Facts]:
    return examine(part, read)


def _size(part: SegmentRange) -> int:
    return part.end - part.start
