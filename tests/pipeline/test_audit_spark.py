"""The audit on Spark: the data directory of a real broker, while it runs, after SIGKILL, and with a bit flipped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark_semel.audit import job
from pyspark_semel.pipeline.command import pipeline
from semel import Admin, NewTopic, Producer
from semel_storage.check.checks import Check
from semel_storage.check.report import as_json
from support.processes import BrokerProcess

SEGMENT_BYTES = 16_384


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with committed, aborted and open transactions over many small segments."""
    process = BrokerProcess(tmp_path_factory.mktemp("audit") / "data").start()
    try:
        asyncio.run(fill(process.address))
        yield process
    finally:
        process.stop()


async def fill(address: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        settings = {"segment.bytes": str(SEGMENT_BYTES)}
        await admin.create_topics([NewTopic("t", 2, 1, topic_configs=settings)])
    async with Producer(bootstrap_servers=address, transactional_id="a") as producer:
        for n in range(40):
            await producer.begin_transaction()
            for i in range(20):
                await producer.send("t", b"%d" % i * 50, partition=i % 2)
            await producer.flush()
            await (producer.abort_transaction() if n % 4 == 0 else producer.commit_transaction())


async def test_a_running_broker_is_sound_and_an_open_transaction_is_listed(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    async with Producer(bootstrap_servers=broker.address, transactional_id="b") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"open", partition=1)
        found = await asyncio.to_thread(job.audit, spark, broker.data_dir)
        await producer.abort_transaction()
    assert found.is_sound, as_json(found)
    topic = [each for each in found.partitions if each.topic == "t"]
    assert [(each.partition, len(each.open)) for each in topic] == [(0, 0), (1, 1)]
    assert topic[1].last_stable_offset == topic[1].end_offset - 1
    assert sum(each.records for each in topic) == 801
    assert sum(each.commits for each in topic) == 60
    assert sum(each.aborts for each in topic) == 20
    assert all(each.segments > 2 for each in topic)


def test_a_killed_broker_is_sound_until_a_bit_flips(spark: SparkSession, broker: BrokerProcess) -> None:
    broker.kill()
    seen: list[tuple[int, int]] = []
    found = job.audit(spark, broker.data_dir, ("t",), progress=lambda done, total: seen.append((done, total)))
    assert found.is_sound, as_json(found)
    assert seen[-1][0] == seen[-1][1] > 0
    segment = sorted((broker.data_dir / "t-0").glob("*.log"))[1]
    data = bytearray(segment.read_bytes())
    data[100] ^= 4
    segment.write_bytes(data)
    found = job.audit(spark, broker.data_dir)
    assert [dict(each.breaches.counts) for each in found.partitions if each.breaches.counts] == [{Check.CRC: 1}]
    assert str(segment) in found.partitions[-2].breaches.noted[0].what


@pytest.mark.parametrize(
    ("words", "status", "told"), [((), 3, "1 breaches."), (("--topic", "u"), 1, "holds none of u")]
)
def test_the_command_prints_its_result_and_sets_the_status(
    spark: SparkSession,
    broker: BrokerProcess,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    status: int,
    told: str,
) -> None:
    monkeypatch.setattr(spark, "stop", lambda: None)  # the command's session is the one of all tests
    done = CliRunner().invoke(pipeline, ["audit", str(broker.data_dir), *words])
    assert done.exit_code == status, done.output
    assert told in done.output
