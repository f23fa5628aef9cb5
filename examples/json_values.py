"""Typed values: a struct is written as JSON and checked when it is read.

A type checker knows that `producer` sends flights and that `record.value` is one.
"""

import asyncio
import os

import msgspec
from semel import Consumer, Producer
from semel.serializers import JsonDeserializer, JsonSerializer

SERVER = os.environ.get("SEMEL_BOOTSTRAP_SERVER", "localhost:9092")


class Flight(msgspec.Struct):
    number: str
    delay_minutes: int


async def main() -> None:
    async with Producer(bootstrap_servers=SERVER, value_serializer=JsonSerializer[Flight]()) as producer:
        await producer.send_and_wait("delays", Flight("UA 1545", 11))
        await producer.send_and_wait("delays", Flight("DL 461", -6))
    total = 0
    async with Consumer(
        "delays",
        bootstrap_servers=SERVER,
        value_deserializer=JsonDeserializer(Flight),
        auto_offset_reset="earliest",
    ) as consumer:
        for _ in range(2):
            flight = (await consumer.getone()).value
            total += flight.delay_minutes
            print(f"{flight.number}: {flight.delay_minutes:+d} minutes")
    print(f"together {total:+d} minutes")


asyncio.run(main())
