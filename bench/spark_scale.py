"""How reading and writing grow with partitions and workers: a standalone cluster of one worker, then of two.

`python -m bench.spark_scale {json}` is the driver, a process of its own, which prints one JSON line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.figure import Figure, per_second, ratio
from bench.measure import broker

PARTITIONS = (1, 2, 4)
WORKERS = (1, 2)
VALUE = "lpad(CAST(id AS STRING), 100, '.') AS value"
START_S = 60.0


def spark_scale(directory: Path, records: int, runs: int) -> list[Figure]:
    """Rows of 100 bytes a second; each worker has one core, as the machine has two, and the broker shares them."""
    found: dict[int, dict[str, float]] = {}
    with broker(directory / "data", "fsync") as process:
        for workers in WORKERS:
            with cluster(directory / f"spark-{workers}", workers) as master:
                found[workers] = _driven(master=master, address=process.address, records=records, runs=runs)
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


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[str]:
    """A standalone cluster on loopback; its URL."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "pyspark_semel.standalone"]
    url = "spark://127.0.0.1:17077"
    processes = []
    with (folder / "log").open("wb") as log:
        try:
            words = ["master", "--port=17077", "--web-port=0"]
            processes.append(subprocess.Popen([*command, *words], stdout=log, stderr=log))
            deadline = time.monotonic() + START_S
            while subprocess.run([*command, "check", url], capture_output=True, check=False).returncode:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"no master; see {log.name}")
                time.sleep(0.2)
            for number in range(workers):
                words = ["worker", url, f"--dir={folder / str(number)}"]
                processes.append(subprocess.Popen([*command, *words], stdout=log, stderr=log))
            yield url
        finally:
            for process in reversed(processes):
                process.terminate()
                process.wait()


def _driven(**arguments: Any) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark_scale", json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-3000:])
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


# The driver


def _best_s(act: Any, runs: int) -> float:
    """The shortest of the runs after one to warm up."""
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
