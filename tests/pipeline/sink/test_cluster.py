"""The sink on a standalone cluster of two workers: racing attempts, and executors that resume.

The workers have different hosts (127.0.0.1 and 127.0.0.2); otherwise Spark would not run an attempt twice.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pipeline.drivers import FILES, PipelineDriver, QueryFault, environment, faulty_queries
from pipeline.fault_points import arm, wait_for
from support.processes import BrokerProcess
from support.spark import SparkCluster

pytestmark = [pytest.mark.slow, pytest.mark.crash, pytest.mark.timeout(900)]

SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.task.duration.threshold": "5s",
    "spark.executor.memory": "700m",
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "20000",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    hosts = ["127.0.0.1", "127.0.0.2"]
    with SparkCluster(tmp_path / "spark", hosts, cores=4, memory="1500m", environ=environment()) as made:
        yield made


def executor_of(worker: int) -> psutil.Process:
    """The Java process whose Python worker this is: the parent of the daemon that forked it."""
    daemon = psutil.Process(worker).parent()
    assert daemon is not None
    java_process = daemon.parent()
    assert java_process is not None
    assert "CoarseGrainedExecutorBackend" in " ".join(java_process.cmdline())
    return java_process


def test_racing_killed_and_resumed_attempts_leave_every_row_once(
    tmp_path: Path, cluster: SparkCluster, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SETTINGS", " ".join(f"{name}={value}" for name, value in SETTINGS.items()))
    faults = [
        QueryFault("after-prepare", 1, "hold"),  # has written all rows, and so does another attempt
        QueryFault("in-write", 1, "hold"),  # another attempt overtakes it in the middle
        QueryFault("in-write", 1, "exit"),
        QueryFault("after-prepare", 1, "exit"),
    ]
    queries = faulty_queries(tmp_path, broker.address, faults)
    (zombie,) = faulty_queries(tmp_path, broker.address, [QueryFault("in-write", 1, "stop")])
    arm(zombie.case.points, "after-begin", 1, "hold")  # held until the others no longer use both executors
    with PipelineDriver(broker.address, [*queries, zombie], cluster.master) as driver:
        for each in queries:
            assert driver.until_ended(each) == ""
            assert each.arrived
            each.case.check(FILES)
        both = [path.read_text() for path in queries[0].case.points.glob("task@1.*")]
        assert both == ["written"] * 3, "two tasks, one of them twice, and both of its attempts have finished"
        (zombie.case.points / "go").touch()
        worker = wait_for(lambda: zombie.arrived, "the zombie", 400)
        executor = executor_of(worker)
        executor.suspend()  # before it learns that another attempt has won, and kills the worker
        assert driver.until_ended(zombie) == ""
        zombie.case.check(FILES)
        os.kill(worker, signal.SIGCONT)  # continues to write
        said = wait_for(lambda: list(zombie.case.points.glob(f"task@1.{worker}.*")), "the zombie's words")
        assert "ProducerFenced" in wait_for(said[0].read_text, "the zombie's words")
        zombie.case.check(FILES)
        executor.resume()
    for each in [*queries, zombie]:
        each.case.check(FILES)
