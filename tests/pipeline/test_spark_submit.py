"""`spark-submit` with a packed environment, onto a standalone cluster whose own Python has no semel."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

import pytest
from pipeline.queries import committed
from pyspark_semel import java
from pyspark_semel.standalone import spark_home
from semel import Admin
from support.packed_environment import pack
from support.processes import BrokerProcess
from support.spark import SparkCluster

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 1_000
OWN_PYTHON = str(Path(sys.base_prefix) / "bin" / "python3")
"""The interpreter without the packages of this environment."""

JOB = """
import json
import sys

from pyspark.sql import SparkSession

address, checkpoint = sys.argv[1:]
servers = {"kafka.bootstrap.servers": address}
spark = SparkSession.builder.appName("packed").getOrCreate()


def places(_):
    import pyspark_semel

    yield sys.executable, pyspark_semel.__file__


where = spark.sparkContext.parallelize(range(8), 8).mapPartitions(places).distinct().collect()
rows = spark.range(0, ROWS, 1, 4).selectExpr("CAST(id AS STRING) AS value")
rows.write.format("semel").mode("append").options(topic="batch", **servers).save()
read = spark.read.format("semel").options(subscribe="batch", **servers).load()
stream = spark.readStream.format("semel").options(subscribe="batch", startingOffsets="earliest", **servers).load()
sink = {"topic": "stream", "semel.sink.id": "stream", "checkpointLocation": checkpoint}
query = stream.select("value").writeStream.format("semel").options(**sink, **servers)
query.trigger(availableNow=True).start().awaitTermination()
print(json.dumps({"read": read.count(), "where": where}))
spark.stop()
""".replace("ROWS", str(ROWS))


@pytest.fixture
def bare() -> dict[str, str]:
    """The environment of the cluster's processes: no path of this one."""
    return {
        "PATH": f"{Path(OWN_PYTHON).parent}:/usr/bin:/bin",
        "HOME": os.environ.get("HOME", "/"),
        "JAVA_HOME": str(java.prepare({"PATH": os.environ["PATH"]})),
        "SPARK_HOME": str(spark_home()),
    }


def submit(folder: Path, master: str, environ: dict[str, str], archive: Path, *words: str) -> str:
    """Run the job as a user would: the driver's copy of the environment lies in the folder of the call."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "environment", filter="fully_trusted")
    (folder / "job.py").write_text(JOB)
    command = [
        *(Path(environ["SPARK_HOME"]) / "bin" / "spark-submit", "--master", master),
        *("--archives", f"{archive}#environment", "--executor-memory", "700m"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
        *("--conf", "spark.ui.enabled=false", "job.py", *words),
    ]
    environ = {**environ, "PYSPARK_PYTHON": "./environment/bin/python"}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout


async def listed(address: str) -> list[str]:
    async with Admin(bootstrap_servers=address) as admin:
        return [each.name for each in await admin.describe_transaction_groups()]


def test_a_packed_environment_is_all_that_executors_need(
    tmp_path: Path, broker: BrokerProcess, bare: dict[str, str]
) -> None:
    for name in ("semel", "pyspark_semel", "pyarrow"):
        alone = subprocess.run(["python3", "-c", f"import {name}"], env=bare, capture_output=True, check=False)
        assert b"No module named" in alone.stderr, f"the cluster's Python has {name}: this test would show nothing"
    archive = pack(tmp_path)
    with SparkCluster(tmp_path / "spark", ["127.0.0.1", "127.0.0.2"], cores=2, memory="800m", bare=bare) as cluster:
        said = submit(tmp_path, cluster.master, bare, archive, broker.address, str(tmp_path / "checkpoint"))
    found = json.loads(said.splitlines()[-1])
    assert found["read"] == ROWS
    work = {f"worker-{number}" for number in (0, 1)}
    for executable, package in found["where"]:
        assert "/environment/" in package, (executable, package)
        assert any(f"/{name}/" in package for name in work), (executable, package)
    expected = Counter(b"%d" % number for number in range(ROWS))
    for topic in ("batch", "stream"):
        assert Counter(record.value for record in committed(broker.address, topic)) == expected
    assert asyncio.run(listed(broker.address)) == ["stream"]
