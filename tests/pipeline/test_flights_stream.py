"""`pipeline/flights.toml` on a broker: each flight and each window is written once, over restarts."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark_semel.pipeline.command import pipeline
from semel import Admin, Consumer, NewTopic, Producer, TopicPartition
from semel_broker.testing.in_process import EphemeralBroker

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from demo.spark.arrivals import PARTITIONS, arrivals, clock_values, truth  # noqa: E402
from demo.spark.report import row_of_json, summed  # noqa: E402

ROWS = 3_000
TOPICS = ("flights", "flights-enriched", "delays")


async def create(address: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in TOPICS])


async def send(address: str, values: list[bytes]) -> None:
    async with Producer(bootstrap_servers=address) as producer:
        for number, value in enumerate(values):
            await producer.send("flights", value, partition=number % PARTITIONS)
        await producer.flush()


async def committed(address: str, topic: str) -> list[bytes]:
    values: list[bytes] = []
    settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    async with Consumer(bootstrap_servers=address, **settings) as reader:
        places = [TopicPartition(topic, n) for n in range(PARTITIONS)]
        reader.assign(places)
        ends = await reader.end_offsets(places)
        while any([await reader.position(place) < ends[place] for place in places]):
            for records in (await reader.getmany(timeout_ms=200)).values():
                values += [record.value for record in records if record.value is not None]
    return values


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_flight_and_window_is_written_once_over_restarts(
    spark: SparkSession, semel_broker: EphemeralBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)  # the command's session is the one of all tests
    address = semel_broker.bootstrap_servers
    monkeypatch.setenv("BOOTSTRAP", address)
    monkeypatch.setenv("CHECKPOINTS", str(tmp_path))
    monkeypatch.setenv("TRIGGER", "available now")
    asyncio.run(create(address))
    some = arrivals(ROWS)
    values = [each.value for each in some]
    parts = [values[:1000], [*values[1000:], *clock_values(some[-1].at)], []]
    for part in parts:
        asyncio.run(send(address, part))
        done = CliRunner().invoke(pipeline, ["run", str(ROOT / "pipeline" / "flights.toml"), "--progress", "json"])
        assert done.exit_code == 0, done.output
    enriched = asyncio.run(committed(address, "flights-enriched"))
    assert sorted(map(row_of_json, enriched)) == list(range(ROWS))
    delays = summed(asyncio.run(committed(address, "delays")))
    assert delays.repeated == 0
    assert delays.windows == truth(ROWS)
