"""EDGE: the audit as a job of Spark: stretches of segments go out to the workers, their facts come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pyspark_semel.audit.data_dir import Stretch, aborted_in_index, read, stretches
from pyspark_semel.audit.partition_story import Partition, tell
from pyspark_semel.audit.stretch_facts import Facts, look

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS_PER_CORE = 4
POLL_S = 0.1
Progress = Callable[[int, int], None]
"""Tasks done, tasks in all."""


class Audit(NamedTuple):
    """`seconds`: of the job, without the start of Spark."""

    partitions: list[Partition]
    seconds: float

    @property
    def is_sound(self) -> bool:
        return not any(each.breaches.counts for each in self.partitions)


def audit(
    spark: SparkSession,
    data_dir: Path,
    topics: tuple[str, ...] = (),
    compacted: tuple[str, ...] = (),
    progress: Progress = lambda done, total: None,
) -> Audit:
    """Look at every batch of a data directory. Raises NoDataError."""
    started = time.monotonic()
    parts = stretches(data_dir, topics, compacted)
    tasks = shared_out(parts, spark.sparkContext.defaultParallelism * TASKS_PER_CORE)
    rows = spark.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(_look_at)
    found: dict[int, list[Facts]] = dict(_run(spark, rows.collect, len(tasks), progress))
    partitions = []
    for (topic, number), each in groupby(range(len(parts)), key=lambda i: (parts[i].topic, parts[i].partition)):
        mine = list(each)
        pieces = [facts for i in mine for facts in found[i]]
        index = aborted_in_index(Path(parts[mine[0]].path).parent)
        partitions.append(tell(topic, number, pieces, parts[mine[0]].is_compacted, index))
    return Audit(partitions, time.monotonic() - started)


def shared_out(parts: list[Stretch], count: int) -> list[list[tuple[int, Stretch]]]:
    """Tasks of about equal bytes, the longest stretches first; each stretch with its place in the log."""
    tasks: list[list[tuple[int, Stretch]]] = [[] for _ in range(min(count, len(parts)))]
    sizes = [0] * len(tasks)
    for i in sorted(range(len(parts)), key=lambda i: parts[i].start - parts[i].end):
        least = sizes.index(min(sizes))
        tasks[least].append((i, parts[i]))
        sizes[least] += parts[i].end - parts[i].start
    return tasks


def _look_at(tasks: Iterable[list[tuple[int, Stretch]]]) -> Iterator[tuple[int, bytes]]:
    """In a worker. What comes back is packed: Spark would pickle each number by itself."""
    for task in tasks:
        for i, stretch in task:
            yield i, msgspec.msgpack.encode(look(stretch, read))


def _run(
    spark: SparkSession, collect: Callable[[], list[tuple[int, bytes]]], total: int, progress: Progress
) -> Iterator[tuple[int, list[Facts]]]:
    """Carry the job out, and tell meanwhile how far it is."""
    tracker = spark.sparkContext.statusTracker()
    decoder = msgspec.msgpack.Decoder(list[Facts])
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(collect)
        while not future.done():
            active = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            progress(sum(info.numCompletedTasks for info in active if info is not None), total)
            time.sleep(POLL_S)  # a picture of progress, not a wait for something
        progress(total, total)
        return iter([(i, decoder.decode(packed)) for i, packed in future.result()])
