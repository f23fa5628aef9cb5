"""A reading task without Spark: kept connections, forks, and missing records."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark_semel.event_loop import run
from pyspark_semel.source.connection import reader_of
from pyspark_semel.source.offsets import OffsetRange
from pyspark_semel.source.options import SourceOptions, source_options
from pyspark_semel.source.read import DataLossError, read_range
from semel import Admin, NewTopic, Producer, RecordsToDelete, TopicPartition
from semel.errors import KafkaConnectionError
from semel_broker.testing.in_process import EphemeralBroker


def options(broker: EphemeralBroker, **more: str) -> SourceOptions:
    return source_options({"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "t", **more})


@pytest.fixture
def filled(semel_broker: EphemeralBroker) -> EphemeralBroker:
    """A hundred records, ten per batch."""

    async def fill() -> None:
        async with Admin(bootstrap_servers=semel_broker.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("t", 1)])
        async with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
            for begin in range(0, 100, 10):
                batch = producer.create_batch()
                for n in range(begin, begin + 10):
                    batch.append(key=None, value=b"%d" % n, timestamp=1000)
                await (await producer.send_batch(batch, "t", partition=0))

    asyncio.run(fill())
    return semel_broker


def values(options: SourceOptions, start: int, end: int) -> list[int]:
    found = list(read_range(options, OffsetRange("t", 0, start, end)))
    return [int(value) for batch in found for value in batch["value"].to_pylist()]


def test_an_address_without_a_broker_is_reported_with_the_option_for_a_longer_wait() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    given = {"kafka.bootstrap.servers": address, "subscribe": "t", "kafka.bootstrap.timeout.ms": "50"}
    with pytest.raises(KafkaConnectionError) as error:
        reader_of(source_options(given).client)
    said = str(error.value)
    assert "none of bootstrap_servers answered within 50 ms" in said
    assert address in said
    assert said.endswith("raise kafka.bootstrap.timeout.ms")


def test_a_range_gives_exactly_its_records(filled: EphemeralBroker) -> None:
    assert values(options(filled), 0, 100) == list(range(100))
    assert values(options(filled), 15, 33) == list(range(15, 33))
    assert values(options(filled), 7, 7) == []


def test_no_partition_gives_no_rows(filled: EphemeralBroker) -> None:
    assert list(read_range(options(filled), InputPartition(None))) == []


def test_tasks_of_a_process_share_a_connection_and_other_settings_have_their_own(filled: EphemeralBroker) -> None:
    one = reader_of(options(filled).client)
    assert reader_of(options(filled, startingOffsets="earliest").client) is one
    assert reader_of(options(filled, **{"kafka.client.id": "me"}).client) is not one


def test_a_task_that_stops_early_leaves_the_connection_to_the_next(filled: EphemeralBroker) -> None:
    small = options(filled, **{"kafka.max.partition.fetch.bytes": "300"})
    found = read_range(small, OffsetRange("t", 0, 0, 100))
    assert isinstance(next(found), pa.RecordBatch)
    found.close()  # type: ignore[attr-defined]  # a generator
    assert values(small, 0, 100) == list(range(100))


def test_a_lost_connection_is_reopened(filled: EphemeralBroker) -> None:
    assert values(options(filled), 0, 50) == list(range(50))
    filled.restart()
    assert values(options(filled), 50, 100) == list(range(50, 100))


def deleted_before(broker: EphemeralBroker, offset: int) -> None:
    async def delete() -> None:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.delete_records({TopicPartition("t", 0): RecordsToDelete(offset)})

    run(delete())


def test_missing_records_are_an_error_or_skipped(filled: EphemeralBroker) -> None:
    deleted_before(filled, 45)
    with pytest.raises(DataLossError, match=r"records from t-0\[3:60\] are gone: .*t-0 holds offsets 45 to 100; 3 is"):
        values(options(filled), 3, 60)
    careless = options(filled, failOnDataLoss="false")
    assert values(careless, 3, 60) == list(range(45, 60))
    assert values(careless, 3, 40) == []
    assert values(options(filled), 45, 100) == list(range(45, 100))


def test_a_missing_topic_is_an_error_or_skipped(filled: EphemeralBroker) -> None:
    quick: dict[str, Any] = {"kafka.retry.backoff.ms": "5", "kafka.retry.backoff.max.ms": "20"}

    async def delete() -> None:
        async with Admin(bootstrap_servers=filled.bootstrap_servers) as admin:
            await admin.delete_topics(["t"])

    run(delete())
    with pytest.raises(DataLossError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        values(options(filled, **quick), 0, 10)
    assert values(options(filled, **quick, failOnDataLoss="false"), 0, 10) == []


FORKING = """
import os, sys
from pyspark_semel.source.offsets import OffsetRange
from pyspark_semel.source.options import source_options
from pyspark_semel.source.read import read_range

options = source_options({"kafka.bootstrap.servers": sys.argv[1], "subscribe": "t"})

def count():
    return sum(batch.num_rows for batch in read_range(options, OffsetRange("t", 0, 0, 100)))

assert count() == 100
children = []
for _ in range(2):
    child = os.fork()
    if not child:
        os._exit(count())
    children.append(child)
assert count() == 100
for child in children:
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_forked_workers_open_their_own_connections(filled: EphemeralBroker) -> None:
    """Spark forks its workers off a daemon that may have read already."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING, filled.bootstrap_servers], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["100", "100"], done.stderr
