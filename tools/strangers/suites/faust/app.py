"""EDGE: the Faust application: `app.py fill|count|read ...`, run with the Python that has Faust."""

# mypy: ignore-errors

from __future__ import annotations

import asyncio
import json
import sys

import faust
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

KEYS = 7
PARTITIONS = 2
QUIET_S = 20


async def fill(address: str, topic: str, into: str, replicas: int, first: int, count: int) -> None:
    """Write numbered records with a few different keys; idempotent."""
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    there = await admin.list_topics()
    await admin.create_topics([NewTopic(name, PARTITIONS, replicas) for name in (topic, into) if name not in there])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True)
    await producer.start()
    for number in range(first, first + count):
        key = f"key-{number % KEYS}"
        await producer.send(topic, key=key.encode(), value=json.dumps({"key": key, "number": number}).encode())
    await producer.stop()


def count(address: str, topic: str, into: str, replicas: int, folder: str) -> None:
    """Count the records of each key in a table, and write each with its count; run until it is killed."""
    app = faust.App(
        "strangers",
        broker=";".join(f"kafka://{each}" for each in address.split(",")),
        processing_guarantee="exactly_once",
        store="memory://",
        datadir=folder,
        topic_replication_factor=replicas,
        topic_partitions=PARTITIONS,
        topic_disable_leader=True,
        broker_session_timeout=10.0,
        broker_heartbeat_interval=2.0,
        consumer_auto_offset_reset="earliest",
        web_enabled=False,
    )
    source = app.topic(topic, key_serializer="raw", value_serializer="json")
    target = app.topic(into, key_serializer="raw", value_serializer="json")
    table = app.Table("counts", default=int, partitions=PARTITIONS)

    @app.agent(source)
    async def counted(stream):
        async for value in stream:
            key = value["key"]
            table[key] += 1
            await target.send(key=key.encode(), value={"number": value["number"], "seen": table[key]})

    faust.Worker(app, loglevel="info").execute_from_commandline()


async def read(address: str, topic: str) -> None:
    """Print all committed records as JSON lines [key, value]; end when no more arrive for a while."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=address, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    while True:
        try:
            record = await asyncio.wait_for(consumer.getone(), QUIET_S)
        except TimeoutError:
            break
        print(json.dumps([record.key.decode(), json.loads(record.value)]))
    await consumer.stop()


if __name__ == "__main__":
    do, *words = sys.argv[1:]
    numbers = [int(word) if word.isdigit() else word for word in words]
    if do == "count":
        sys.argv = [sys.argv[0], "worker"]
        count(*numbers)
    else:
        asyncio.run({"fill": fill, "read": read}[do](*numbers))
