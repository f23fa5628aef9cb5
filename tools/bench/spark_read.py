"""Measures reads into Spark: records of 100 bytes over four partitions, and the decoder alone.

`python -m tools.bench.spark_read {json}` is the worker: Spark in its own process, which prints one JSON line.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark_semel.columns.decode import COLUMNS, SparkSlice, arrow_batches
from semel_protocol.batch import read_header
from semel_protocol.records import Record, build_batch

from tools.bench.clients import VALUE
from tools.bench.figure import Figure, at_most, per_second, ratio
from tools.bench.measure import broker, cpu_s, measured_by, work

PARTITIONS = 4
READ_PER_S = 1_500_000
CHUNK_BYTES = 4 << 20


def spark_read(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure first the decoder alone on one core, then Spark with two, and the same rows without reading."""
    figures = [
        per_second(f"decode to Arrow, a core, {name}, batches of {rows:,}", decoded_per_cpu_s(sizes, rows))
        for name, sizes in {"values of one size": range(100, 101), "values of all sizes": range(50, 150)}.items()
        for rows in (10_000, 150)
    ]
    records *= 4
    with broker(directory, **{"num.partitions": str(PARTITIONS)}) as process:
        work("librdkafka_produce", address=process.address, records=records, partitions=PARTITIONS)
        before = cpu_s(process)
        done = measured_by("tools.bench.spark_read", address=process.address, runs=runs)
        broker_s = (cpu_s(process) - before) / (runs + 1) * 1e6 / records
    return [
        *figures,
        per_second("Spark, rows ready made (the ceiling)", done["ceiling_per_s"]),
        per_second("Spark, read from four partitions", done["read_per_s"], READ_PER_S),
        ratio("  of the ceiling's", done["read_per_s"] / done["ceiling_per_s"]),
        at_most("CPU of Spark and its workers per million rows read", done["read_cpu_s"], "s"),
        at_most("broker CPU per million rows read", broker_s, "s"),
    ]


def decoded_per_cpu_s(sizes: range, batch_rows: int) -> float:
    """Return the records that `arrow_batches` decodes per second of CPU time; the best of five runs."""
    rng = random.Random(7)
    chunk, places, offset = bytearray(), [], 0
    while len(chunk) < CHUNK_BYTES:
        rows = [Record(n, 1_700_000_000_000 + n // 10, None, bytes(rng.choice(sizes))) for n in range(batch_rows)]
        batch = build_batch([Record(offset + row.offset, *_rest(row)) for row in rows], base_offset=offset)
        places.append((read_header(batch), len(chunk)))
        chunk += batch
        offset += batch_rows
    data, wanted = bytes(chunk), SparkSlice("bench", 0, 0, offset)
    best = float("inf")
    for _ in range(5):
        started = time.process_time()
        for _ in range(5):
            assert sum(rows.num_rows for rows in arrow_batches(data, places, wanted)) == offset
        best = min(best, (time.process_time() - started) / 5)
    return offset / best


def _rest(row: Record) -> tuple[int, bytes | None, bytes | None]:
    return row.timestamp, row.key, row.value


# In Spark's process


class ReadyMade(DataSource):
    """Serves the same columns without reading: the ceiling of Spark's interface to Python."""

    @classmethod
    def name(cls) -> str:
        return "ready_made"

    def schema(self) -> Any:
        from pyspark_semel.source import source

        return source.COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:
        return ReadyMadeReader(int(self.options["records"]))


class ReadyMadeReader(DataSourceReader):
    def __init__(self, records: int) -> None:
        self._records = records

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(n) for n in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        rows = 40_000
        columns = [
            pa.nulls(rows, pa.binary()),
            pa.array([VALUE] * rows),
            pa.array(["bench"] * rows),
            pa.array([partition.value] * rows, pa.int32()),
            pa.array(range(rows)),
            pa.array([0] * rows, pa.timestamp("us", tz="UTC")),
            pa.array([0] * rows, pa.int32()),
        ]
        ready = pa.RecordBatch.from_arrays(columns, schema=COLUMNS)
        for _ in range(self._records // PARTITIONS // rows):
            yield ready


def timed(frame: Any, runs: int) -> tuple[float, float]:
    """Return rows per second into Spark's noop sink, and CPU seconds per million rows, Java and Python together.

    The result is the best of the runs after one warm-up run.
    """
    frame.write.format("noop").mode("overwrite").save()
    count, best_s, least_cpu_s = frame.count(), float("inf"), float("inf")
    for _ in range(runs):
        started, cpu_before = time.perf_counter(), cpu_of_all_s()
        frame.write.format("noop").mode("overwrite").save()
        best_s = min(best_s, time.perf_counter() - started)
        least_cpu_s = min(least_cpu_s, cpu_of_all_s() - cpu_before)
    return count / best_s, least_cpu_s * 1e6 / count


def cpu_of_all_s() -> float:
    """Return the CPU time of this process, of Java, and of Spark's workers, which run many tasks."""
    me = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (me, *me.children(recursive=True)))


def main() -> None:
    from pyspark.sql import SparkSession
    from pyspark_semel import java

    arguments = json.loads(sys.argv[1])
    java.prepare()
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(ReadyMade)
    topic = spark.read.format("semel").option("kafka.bootstrap.servers", arguments["address"])
    read_per_s, read_cpu_s = timed(topic.option("subscribe", "bench").load(), arguments["runs"])
    ready_made = spark.read.format("ready_made").option("records", 8_000_000).load()
    ceiling_per_s, _ = timed(ready_made, arguments["runs"])
    spark.stop()
    print(json.dumps({"read_per_s": read_per_s, "read_cpu_s": read_cpu_s, "ceiling_per_s": ceiling_per_s}))


if __name__ == "__main__":
    main()
