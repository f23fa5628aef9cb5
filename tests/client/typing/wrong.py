"""Mistakes that type checkers find. Each `type: ignore` marks one; the checkers report those that are not needed.

It is not run.
"""

from __future__ import annotations

from semel import Consumer, Producer


def to_bytes(number: int) -> bytes:
    return b""


def to_number(data: bytes | None) -> int:
    return 0


async def mistakes() -> None:
    Producer("localhost:9092")  # type: ignore
    Producer(lingerms=5)  # type: ignore
    Producer(acks=2)  # type: ignore
    Producer(compression_type="zip")  # type: ignore
    Producer(value_serializer="json")  # type: ignore
    Producer(value_serializer=to_number)  # type: ignore
    Consumer("t", auto_offset_reset="first")  # type: ignore
    Consumer("t", value_deserializer=to_bytes)  # type: ignore
    Consumer(7)  # type: ignore

    plain = Producer()
    await plain.send("t", "text")  # type: ignore
    await plain.send("t", b"", key=7)  # type: ignore
    numbers = Producer(value_serializer=to_bytes)
    await numbers.send("t", b"7")  # type: ignore
    await numbers.send_and_wait("t", "7")  # type: ignore
    numbers.create_batch().append(value="7")  # type: ignore
    strict: Producer[bytes | None, str] = numbers  # type: ignore

    consumer = Consumer("t", value_deserializer=to_number)
    (await consumer.getone()).value.upper()  # type: ignore
    (await consumer.getone()).key.decode()  # type: ignore
    texts: Consumer[bytes | None, str] = consumer  # type: ignore
    del strict, texts
