"""What Spark writes into topics: rows a second in one batch, and what exactly once adds to a small micro-batch."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.figure import Figure, at_most, per_second
from bench.measure import broker

ROWS_PER_S = 500_000
ADDED_MS = 20
VALUE_BYTES = 100
PARTITIONS = 4
BATCHES = 40
"""Micro-batches of each kind that are timed, behind some that warm up."""
WARM_UP = 10
ARROW_ROWS = 10_000
"""Spark's own size of an Arrow batch."""
BATCH_BYTES = 256 * 1024


def spark_write(directory: Path, records: int, runs: int) -> list[Figure]:
    """Records of 100 bytes over 4 partitions, Spark and broker on the same cores."""
    with broker(directory, "fsync", **{"num.partitions": str(PARTITIONS)}) as process:
        done = _in_a_process(address=process.address, folder=str(directory), records=2 * records, runs=max(3, runs))
    return [
        *(
            per_second(f"encode from Arrow, a core, {name}", encoded_per_cpu_s(sizes, keyed))
            for name, sizes, keyed in (
                ("values of one size", [VALUE_BYTES], False),
                ("values of all sizes", range(50, 150), False),
                ("values of all sizes, keys", range(50, 150), True),
            )
        ),
        per_second("Spark: rows written exactly once", done["exactly-once"], ROWS_PER_S),
        per_second("Spark: rows written at least once", done["at-least-once"]),
        at_most("CPU of Spark and its workers per million rows, exactly once", done["cpu exactly-once"], "s"),
        at_most("  at least once", done["cpu at-least-once"], "s"),
        at_most("Spark: a micro-batch at least once", done["micro-batch at-least-once"], "ms", digits=0),
        at_most("  what exactly once adds to it", done["added"], "ms", ADDED_MS, digits=1),
    ]


def encoded_per_cpu_s(sizes: Sequence[int], keyed: bool) -> float:
    """Rows that become batches for four partitions in a second of CPU: the sink without Spark and without a broker."""
    import pyarrow as pa
    from pyspark_semel.sink_batches import Encoder
    from pyspark_semel.sink_schema import SinkSchema

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


def _in_a_process(**arguments: Any) -> dict[str, float]:
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark_write", json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env={**os.environ, "PYTHONPATH": paths},
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-3000:])
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def _measure(address: str, folder: str, records: int, runs: int) -> dict[str, float]:
    from pyspark.sql import SparkSession
    from pyspark_semel import java

    from bench.spark_read import cpu_of_all_s

    java.prepare()
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    result: dict[str, float] = {}
    for delivery in ("exactly-once", "at-least-once"):
        rows = spark.range(0, records, 1, PARTITIONS).selectExpr(
            f"lpad(CAST(id AS STRING), {VALUE_BYTES}, '.') AS value"
        )
        writer = rows.write.format("semel").mode("append").option("kafka.bootstrap.servers", address)
        writer = writer.option("topic", delivery).option("semel.delivery", delivery)
        taken_s, spent_s = [], []
        for _ in range(runs + 1):
            began, before = time.perf_counter(), cpu_of_all_s()
            writer.save()
            taken_s.append(time.perf_counter() - began)
            spent_s.append(cpu_of_all_s() - before)
        result[delivery] = records / statistics.median(taken_s[1:])  # the first one starts Python
        result[f"cpu {delivery}"] = statistics.median(spent_s[1:]) * 1e6 / records
    taken: dict[str, list[float]] = {"at-least-once": [], "exactly-once": []}
    for turn in range(2):
        for delivery, found in taken.items():
            found += _micro_batches(spark, address, f"{folder}/{delivery}-{turn}", delivery)
    result["micro-batch at-least-once"] = statistics.median(taken["at-least-once"])
    result["added"] = statistics.median(taken["exactly-once"]) - result["micro-batch at-least-once"]
    spark.stop()
    return result


def _micro_batches(spark: Any, address: str, checkpoint: str, delivery: str) -> list[float]:
    """What each of many small batches has taken, in ms."""
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
