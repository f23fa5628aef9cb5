"""EDGE: runs the audit as a Spark job: workers examine segment ranges and return facts, the driver combines them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from semel_storage.check.audit import Audit, Progress, combine_all
from semel_storage.check.data_dir import SegmentRange, read, segment_ranges
from semel_storage.check.range_facts import Facts, examine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE = 4
POLL_S = 0.1


def audit(
    spark: SparkSession,
    data_dir: Path,
    topics: tuple[str, ...] = (),
    compacted: tuple[str, ...] = (),
    progress: Progress = lambda done, total: None,
) -> Audit:
    """Check every batch of a data directory. Raises NoDataError."""
    started = time.monotonic()
    parts = segment_ranges(data_dir, topics, compacted)
    tasks = balanced_tasks(parts, spark.sparkContext.defaultParallelism * TASKS_PER_CORE)
    rows = spark.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(_examine_task)
    found: dict[int, list[Facts]] = dict(_run(spark, rows.collect, len(tasks), progress))
    return Audit(combine_all(parts, found), time.monotonic() - started)


def balanced_tasks(parts: list[SegmentRange], count: int) -> list[list[tuple[int, SegmentRange]]]:
    """Return at most `count` tasks of about equal bytes, the longest ranges first; each range with its index in
    `parts`.
    """
    tasks: list[list[tuple[int, SegmentRange]]] = [[] for _ in range(min(count, len(parts)))]
    sizes = [0] * len(tasks)
    for i in sorted(range(len(parts)), key=lambda i: parts[i].start - parts[i].end):
        least = sizes.index(min(sizes))
        tasks[least].append((i, parts[i]))
        sizes[least] += parts[i].end - parts[i].start
    return tasks


def _examine_task(tasks: Iterable[list[tuple[int, SegmentRange]]]) -> Iterator[tuple[int, bytes]]:
    """Run in a worker. The facts are packed with msgpack, because Spark would pickle each number by itself."""
    for task in tasks:
        for i, segment_range in task:
            yield i, msgspec.msgpack.encode(examine(segment_range, read))


def _run(
    spark: SparkSession, collect: Callable[[], list[tuple[int, bytes]]], total: int, progress: Progress
) -> Iterator[tuple[int, list[Facts]]]:
    """Run the job and report its progress."""
    tracker = spark.sparkContext.statusTracker()
    decoder = msgspec.msgpack.Decoder(list[Facts])
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(collect)
        while not future.done():
            active = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            progress(sum(info.numCompletedTasks for info in active if info is not None), total)
            time.sleep(POLL_S)  # only the interval of the progress display
        progress(total, total)
        return iter([(i, decoder.decode(packed)) for i, packed in future.result()])
