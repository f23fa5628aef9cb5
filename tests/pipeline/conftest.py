"""The Spark session of the tests: one in this process for the whole run; Python data sources run in its workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline.fault_points import path_for_workers
from pyspark.sql import SparkSession
from pyspark_semel import java
from support.processes import BrokerProcess


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` runs only the Spark tests that are marked `smoke`."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("smoke"):
            item.add_marker(pytest.mark.thorough)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores, no web pages, few shuffle partitions."""
    java.prepare()
    path_for_workers()
    folder: Path = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("semel tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker in a process of its own, for drivers and executors in theirs; a new topic has two partitions."""
    process = BrokerProcess(tmp_path / "data", **{"num.partitions": "2", "durability": "os"}).start()
    yield process
    process.stop()
