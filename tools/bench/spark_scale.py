"""Measures reads and writes by partitions and workers: a standalone cluster of one worker, then of two.

`python -m tools.bench.spark_scale {json}` is the driver in its own process, which prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from support.spark import SparkCluster

from tools.bench.figure import Figure, per_second, ratio
from tools.bench.measure import broker, measured_by

PARTITIONS = (1, 2, 4)
WORKERS = (1, 2)
VALUE = "lpad(CAST(id AS STRING), 100, '.') AS value"


def spark_scale(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure rows of 100 bytes per second. Each worker has one of the machine's two cores; the broker shares them."""
    found: dict[int, dict[str, float]] = {}
    with broker(directory / "data", "fsync") as process:
        for workers in WORKERS:
            with SparkCluster(directory / f"spark-{workers}", ["127.0.0.1"] * workers) as cluster:
                found[workers] = measured_by(
                    "tools.bench.spark_scale",
                    master=cluster.master,
                    address=process.address,
                    records=records,
                    runs=runs,
                )
    figures = [
        per_second(
            f"{what}, {partitions} partitions, {workers} workers of a core", found[workers][f"{what} {partitions}"]
        )
        for what in ("read", "written exactly once")
        for partitions in PARTITIONS
        for workers in WORKERS
    ]
    most = PARTITIONS[-1]
    grown = {what: found[2][f"{what} {most}"] / found[1][f"{what} {most}"] for what in ("read", "written exactly once")}
    return [*figures, *(ratio(f"{what}, {most} partitions, two workers against one", by) for what, by in grown.items())]


# The driver


def _best_s(act: Any, runs: int) -> float:
    """Return the shortest of the runs after one warm-up run."""
    act()
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        act()
        taken.append(time.perf_counter() - began)
    return min(taken)


async def _create(address: str, topics: dict[str, int]) -> None:
    from semel import Admin, NewTopic

    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(name, count) for name, count in topics.items()])


def main() -> None:
    from pyspark_semel.event_loop import run
    from pyspark_semel.pipeline.session import session

    given = json.loads(sys.argv[1])
    address, records = given["address"], given["records"]
    mark = f"{time.time_ns()}"
    run(_create(address, {f"p{count}-{mark}": count for count in PARTITIONS}))
    result = {}
    with session("scale", given["master"]) as spark:
        for count in PARTITIONS:
            topic = f"p{count}-{mark}"
            rows = spark.range(0, records, 1, count).selectExpr(VALUE)
            sink = rows.write.format("semel").mode("append").option("kafka.bootstrap.servers", address)
            result[f"written exactly once {count}"] = records / _best_s(sink.option("topic", topic).save, given["runs"])
            read = (
                spark.read.format("semel").option("kafka.bootstrap.servers", address).option("subscribe", topic).load()
            )
            stored, nowhere = records * (given["runs"] + 1), read.write.format("noop").mode("overwrite")
            result[f"read {count}"] = stored / _best_s(nowhere.save, given["runs"])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
