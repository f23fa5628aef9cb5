"""EDGE: a kstreams application: copies a topic to another in two lives, and counts the copies."""

# mypy: ignore-errors

import asyncio
import sys

from aiokafka import AIOKafkaConsumer
from kstreams import ConsumerRecord, Stream, create_engine
from kstreams.backends.kafka import Kafka

WAIT_S = 30


async def live(servers: list[str], numbers: range) -> None:
    """Send the numbers, and copy them until all are copied."""
    engine = create_engine(title="copy", backend=Kafka(bootstrap_servers=servers))
    copied: set[int] = set()
    done = asyncio.Event()

    async def copy(record: ConsumerRecord, stream: Stream) -> None:
        await engine.send("copies", value=record.value, key=record.key)
        await stream.commit()
        copied.add(int(record.value))
        if copied >= set(numbers):
            done.set()

    settings = {"group_id": "copy", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    engine.add_stream(Stream("numbers", name="copy", func=copy, config=settings))
    await engine.start()
    for number in numbers:
        await engine.send("numbers", value=str(number).encode(), key=str(number % 7))
    await asyncio.wait_for(done.wait(), WAIT_S)
    await engine.stop()
    assert copied == set(numbers), f"records of the first life came again: {sorted(copied - set(numbers))}"


async def main(address: str, count: int) -> None:
    servers = address.split(",")
    await live(servers, range(count // 2))
    await live(servers, range(count // 2, count))
    async with AIOKafkaConsumer("copies", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        found = [int((await asyncio.wait_for(consumer.getone(), WAIT_S)).value) for _ in range(count)]
    assert sorted(found) == list(range(count))
    print(f"{type(consumer).__module__}: all records once")


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
