"""The Producer against semel's own broker: the stored records, also after restarts and kills."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvloop
from broker.harness import Harness
from client.reading import stored
from semel import Producer
from semel.errors import InvalidTopicError, MessageSizeTooLargeError
from support.processes import BrokerProcess
from support.tiers import tiered


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_records_are_stored_as_they_were_sent(broker: Harness, bootstrap: str, codec: Any) -> None:
    async with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        for number in range(200):
            headers = [("h", b"v"), ("n", None)] if number % 3 == 0 else None
            key = None if number % 2 else b"k"
            await producer.send("t", b"%d" % number, key=key, partition=0, timestamp_ms=1000 + number, headers=headers)
        await producer.send("t", None, key=b"tombstone", partition=0, timestamp_ms=5)
    records = await stored(broker.port, "t", 0)
    assert [record.offset for record in records] == list(range(201))
    assert [record.value for record in records] == [b"%d" % number for number in range(200)] + [None]
    assert [record.timestamp for record in records] == [1000 + number for number in range(200)] + [5]
    assert records[0].headers == (("h", b"v"), ("n", None))
    assert (records[0].key, records[1].key, records[200].key) == (b"k", None, b"tombstone")


@pytest.mark.proves("order-over-retries")
async def test_a_broker_restarted_in_mid_produce_holds_each_value_once_and_in_order(broker: Harness) -> None:
    port = broker.port
    broker.settings["port"] = str(port)
    async with Producer(bootstrap_servers=f"127.0.0.1:{port}", max_batch_size=2000) as producer:
        futures = []
        for number in range(6000):
            futures.append(await producer.send("t", b"%d" % number, partition=0))
            if number in (2000, 4000):
                await asyncio.sleep(0.01)
                await broker.restart()
        rows = await asyncio.gather(*futures)
    assert [row.offset for row in rows] == list(range(6000))
    assert [record.value for record in await stored(port, "t", 0)] == [b"%d" % number for number in range(6000)]


@pytest.mark.real_time
@pytest.mark.parametrize("durability", tiered(["os", "fsync"], lambda durability: durability == "fsync"))
async def test_a_killed_broker_causes_no_loss_and_no_duplicate(tmp_path: Path, durability: str) -> None:
    broker = BrokerProcess(tmp_path / "data", durability=durability)
    await asyncio.to_thread(broker.start)
    try:
        async with Producer(bootstrap_servers=broker.address, max_batch_size=4000) as producer:
            futures = []
            for number in range(30_000):
                futures.append(await producer.send("t", b"%d" % number, key=b"%d" % (number % 4)))
                if number in (10_000, 20_000):
                    await futures[number - 5_000]  # the broker is up: back again, the second time
                    await asyncio.to_thread(broker.kill_and_restart, 0.1)
            rows = await asyncio.gather(*futures)
        partitions = sorted({row.partition for row in rows})
        for partition in partitions:
            mine = [b"%d" % number for number, row in enumerate(rows) if row.partition == partition]
            assert [record.value for record in await stored(broker.port, "t", partition)] == mine
    finally:
        await asyncio.to_thread(broker.stop)


async def test_a_topic_with_an_illegal_name_is_refused(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        with pytest.raises(InvalidTopicError, match="Topic names"):
            await producer.send("a/b", b"v")


async def test_a_record_above_the_topics_limit_is_refused_with_what_to_do(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, max_request_size=4 << 20) as producer:
        with pytest.raises(MessageSizeTooLargeError, match=r"max\.message\.bytes"):
            await producer.send_and_wait("t", bytes(2 << 20))
        await producer.send_and_wait("t", b"small")


async def test_many_tasks_may_share_one_producer(broker: Harness, bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, max_batch_size=1000) as producer:

        async def writer(number: int) -> None:
            for value in range(50):
                await producer.send_and_wait("t", b"%d-%d" % (number, value), key=b"%d" % number, partition=0)

        await asyncio.gather(*[writer(number) for number in range(20)])
    records = await stored(broker.port, "t", 0)
    for number in range(20):
        assert [record.value for record in records if record.key == b"%d" % number] == [
            b"%d-%d" % (number, value) for value in range(50)
        ]


def test_the_producer_runs_on_uvloop_as_well(tmp_path: Path) -> None:
    async def run() -> None:
        broker = Harness(tmp_path / "data")
        await broker.start()
        async with Producer(bootstrap_servers=f"127.0.0.1:{broker.port}", max_batch_size=500) as producer:
            rows = await asyncio.gather(*[await producer.send("t", b"%d" % number) for number in range(1000)])
        assert sorted(row.offset for row in rows if row.partition == 0) == list(range(len(rows)))
        await broker.stop()

    uvloop.run(run())
