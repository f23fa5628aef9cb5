"""Typed values: a struct is written as JSON and checked when it is read.

`value_serializer` and `value_deserializer` are functions of one argument. msgspec comes with semel.
"""

import asyncio
import os

import msgspec
from semel import Consumer, Producer

SERVER = os.environ.get("SEMEL_BOOTSTRAP_SERVER", "localhost:9092")


class Flight(msgspec.Struct):
    number: str
    delay_minutes: int


def to_flight(data: bytes | None) -> Flight | None:
    return None if data is None else msgspec.json.decode(data, type=Flight)


async def main() -> None:
    async with Producer(bootstrap_servers=SERVER, value_serializer=msgspec.json.encode) as producer:
        await producer.send_and_wait("delays", Flight("UA 1545", 11))
        await producer.send_and_wait("delays", Flight("DL 461", -6))
    total = 0
    async with Consumer(
        "delays", bootstrap_servers=SERVER, value_deserializer=to_flight, auto_offset_reset="earliest"
    ) as consumer:
        for _ in range(2):
            flight = (await consumer.getone()).value
            total += flight.delay_minutes
            print(f"{flight.number}: {flight.delay_minutes:+d} minutes")
    print(f"together {total:+d} minutes")


asyncio.run(main())
