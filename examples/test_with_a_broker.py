"""A test of an application with a real broker: in a checkout, `pip install '.[broker]' pytest`, then `pytest examples`.

The fixture `semel_broker` comes with semel. Each test gets an empty broker of its own, ready in milliseconds.
"""

from __future__ import annotations

import asyncio
from typing import Any

from semel import Consumer, Producer


async def sell(server: str, what: bytes) -> None:
    """The application."""
    async with Producer(bootstrap_servers=server, transactional_id="till") as producer, producer.transaction():
        await producer.send("orders", what)
        await producer.send("stock", what)


async def read(server: str, topic: str) -> list[bytes | None]:
    async with Consumer(
        topic, bootstrap_servers=server, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        found = await consumer.getmany(timeout_ms=2_000)
    return [record.value for records in found.values() for record in records]


def test_an_order_is_in_both_topics(semel_broker: Any) -> None:
    asyncio.run(sell(semel_broker.bootstrap_servers, b"one kettle"))
    for topic in ("orders", "stock"):
        assert asyncio.run(read(semel_broker.bootstrap_servers, topic)) == [b"one kettle"]


def test_an_order_survives_a_killed_broker(semel_broker: Any) -> None:
    asyncio.run(sell(semel_broker.bootstrap_servers, b"one kettle"))
    semel_broker.kill()
    semel_broker.start()
    assert asyncio.run(read(semel_broker.bootstrap_servers, "orders")) == [b"one kettle"]
