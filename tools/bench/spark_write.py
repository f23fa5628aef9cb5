"""Measures Spark's writes into topics: rows per second of one batch, and the cost of exactly once per micro-batch."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark_semel import java
from pyspark_semel.sink.batches import Encoder
from pyspark_semel.sink.schema import SinkSchema

from tools.bench.figure import Figure, at_most, per_second, ratio
from tools.bench.measure import broker, measured_by
from tools.bench.spark_read import cpu_of_all_s

ROWS_PER_S = 500_000
ADDED_MS = 20
VALUE_BYTES = 100
PARTITIONS = 4
BATCHES = 40
"""The measured micro-batches of each kind, after the warm-up."""
WARM_UP = 10
ARROW_ROWS = 10_000
"""Spark's default size of an Arrow batch."""
BATCH_BYTES = 256 * 1024


def spark_write(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure records of 100 bytes over 4 partitions, with Spark and the broker on the same cores."""
    with broker(directory, "fsync", **{"num.partitions": str(PARTITIONS)}) as process:
        done = measured_by(
            "tools.bench.spark_write",
            address=process.address,
            folder=str(directory),
            records=2 * records,
            runs=max(3, runs),
        )
    return [
        *(
            per_second(f"encode from Arrow, a core, {name}", encoded_per_cpu_s(sizes, keyed))
            for name, sizes, keyed in (
                ("values of one size", [VALUE_BYTES], False),
                ("values of all sizes", range(50, 150), False),
                ("values of all sizes, keys", range(50, 150), True),
            )
        ),
        per_second("Spark: rows handed to a sink that drops them (the ceiling)", done["ceiling"]),
        per_second("Spark: rows written exactly once", done["exactly-once"], ROWS_PER_S),
        per_second("Spark: rows written at least once", done["at-least-once"]),
        ratio("  exactly once, of the ceiling's", done["exactly-once"] / done["ceiling"]),
        at_most("CPU of Spark and its workers per million rows, dropped", done["cpu ceiling"], "s"),
        at_most("  exactly once", done["cpu exactly-once"], "s"),
        at_most("  at least once", done["cpu at-least-once"], "s"),
        at_most("Spark: a micro-batch at least once", done["micro-batch at-least-once"], "ms", digits=0),
        at_most("  what exactly once adds to it", done["added"], "ms", ADDED_MS, digits=1),
    ]


def encoded_per_cpu_s(sizes: Sequence[int], keyed: bool) -> float:
    """Return the rows encoded for four partitions per second of CPU time: the sink without Spark and broker."""
    values = pa.array([b"v" * sizes[row % len(sizes)] for row in range(ARROW_ROWS)], pa.binary())
    keys = pa.array([b"key %d" % row for row in range(ARROW_ROWS)], pa.binary())
    rows = pa.record_batch({"value": values, "key": keys})
    encoder = Encoder(SinkSchema(0, 1 if keyed else None), "t", BATCH_BYTES, 0)
    rates = []
    for _ in range(50):
        began = time.process_time()
        encoder.encode(rows, lambda topics: dict.fromkeys(topics, PARTITIONS))
        rates.append(ARROW_ROWS / (time.process_time() - began))
    return statistics.median(rates)


class Dropping(DataSource):
    """Counts rows and drops them: the ceiling of Spark's interface to Python."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return DroppingWriter()


class DroppingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        assert sum(rows.num_rows for rows in iterator)
        return WriterCommitMessage()


def _measure(address: str, folder: str, records: int, runs: int) -> dict[str, float]:
    java.prepare()
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Dropping)
    value = f"lpad(CAST(id AS STRING), {VALUE_BYTES}, '.') AS value"
    rows = spark.range(0, records, 1, PARTITIONS).selectExpr(value)
    writers = {"ceiling": rows.write.format("dropping").mode("append")}
    for delivery in ("exactly-once", "at-least-once"):
        writer = rows.write.format("semel").mode("append").option("kafka.bootstrap.servers", address)
        writers[delivery] = writer.option("topic", delivery).option("semel.delivery", delivery)
    taken_s: dict[str, list[float]] = {name: [] for name in writers}
    spent_s: dict[str, list[float]] = {name: [] for name in writers}
    for _ in range(runs + 1):
        for name, writer in writers.items():
            began, before = time.perf_counter(), cpu_of_all_s()
            writer.save()
            taken_s[name].append(time.perf_counter() - began)
            spent_s[name].append(cpu_of_all_s() - before)
    result: dict[str, float] = {}
    for name in writers:  # the first run starts Python
        result[name] = records / statistics.median(taken_s[name][1:])
        result[f"cpu {name}"] = statistics.median(spent_s[name][1:]) * 1e6 / records
    taken: dict[str, list[float]] = {"at-least-once": [], "exactly-once": []}
    for turn in range(2):
        for delivery, found in taken.items():
            found += _micro_batches(spark, address, f"{folder}/{delivery}-{turn}", delivery)
    result["micro-batch at-least-once"] = statistics.median(taken["at-least-once"])
    result["added"] = statistics.median(taken["exactly-once"]) - result["micro-batch at-least-once"]
    spark.stop()
    return result


def _micro_batches(spark: Any, address: str, checkpoint: str, delivery: str) -> list[float]:
    """Return the duration of each of many small batches, in ms."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).option("numPartitions", 2).load()
    writer = rows.selectExpr("CAST(value AS STRING) AS value").writeStream.format("semel")
    options = {
        "kafka.bootstrap.servers": address,
        "topic": "small",
        "semel.delivery": delivery,
        "semel.sink.id": checkpoint,
        "checkpointLocation": checkpoint,
    }
    query = writer.options(**options).start()
    taken: dict[int, float] = {}
    while len(taken) < WARM_UP + BATCHES:
        time.sleep(0.5)
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
        taken |= {each["batchId"]: each["durationMs"]["addBatch"] for each in query.recentProgress}
    query.stop()
    return [taken[batch] for batch in sorted(taken)[WARM_UP:]]


if __name__ == "__main__":
    print(json.dumps(_measure(**json.loads(sys.argv[1]))))
