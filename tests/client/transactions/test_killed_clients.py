"""Applications killed by SIGKILL during transactions, as processes: committed records are read exactly once."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from client.consuming import until
from client.transactions.test_transactions_with_broker import read
from semel import Admin, NewTopic, Producer
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(120)]

VALUES = 60
KILLS = 5
APPLICATION = """
import asyncio, sys
from semel import Consumer, Producer, TopicPartition

async def main(at):
    consumer = Consumer(
        "in", bootstrap_servers=at, group_id="g", enable_auto_commit=False, auto_offset_reset="earliest",
        isolation_level="read_committed", group_instance_id="one", session_timeout_ms=6000,
    )
    async with consumer, Producer(bootstrap_servers=at, transactional_id="app") as producer:
        while True:
            for place, records in (await consumer.getmany(timeout_ms=200, max_records=3)).items():
                async with producer.transaction():
                    for record in records:
                        await producer.send("out", b"<" + record.value + b">", partition=0)
                    await producer.flush()
                    print("sent", flush=True)
                    offsets = {place: records[-1].offset + 1}
                    await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())

asyncio.run(main(sys.argv[1]))
"""


async def application(at: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", APPLICATION, at, stdout=asyncio.subprocess.PIPE, env={**os.environ}
    )


async def committed_offset(admin: Admin) -> int:
    return sum(row.offset for row in (await admin.list_consumer_group_offsets("g")).values())


async def test_each_input_has_one_output_however_often_the_application_is_killed(
    semel_broker: EphemeralBroker, tmp_path: Path
) -> None:
    at = semel_broker.bootstrap_servers
    async with Admin(bootstrap_servers=at) as admin:
        await admin.create_topics([NewTopic("in"), NewTopic("out")])
        async with Producer(bootstrap_servers=at) as feeder:
            for number in range(VALUES):
                await feeder.send("in", b"%d" % number, partition=0)
        for kill in range(KILLS):
            process = await application(at)
            assert process.stdout is not None
            for _ in range(kill % 3 + 1):
                assert await process.stdout.readline() == b"sent\n"
            process.kill()  # between its records and its offsets, or amid the commit
            await process.wait()
        process = await application(at)

        async def is_done() -> bool:
            return await committed_offset(admin) == VALUES

        await until(is_done, 60)
        process.kill()
        await process.wait()
    assert await read(semel_broker.port, "out", VALUES) == [b"<%d>" % number for number in range(VALUES)]
