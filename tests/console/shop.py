"""A small shop on a broker: transactions that commit, abort, are fenced, are open and hang; groups; hostile names."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from semel import Admin, Consumer, NewTopic, Producer, TopicPartition
from semel.structs import OffsetAndMetadata
from semel_broker.node import Node
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.batch import read_header
from semel_protocol.records import Record, build_batch

if TYPE_CHECKING:  # it needs pytest
    from support.against import OutsideBroker

HOSTILE = "<img src=x onerror='window.pwned=1'><script>window.pwned=1</script>"
"""A text that a page must not interpret as markup."""
HANGING_ID = 7_168_087_661_524_026_344
"""JavaScript would round it, so the API has its digits as a text."""


async def open_shop(address: str) -> None:
    """Topics, committed and aborted transactions, one that is fenced, a group, and texts that look like markup."""
    async with Admin(bootstrap_servers=address) as admin:
        await admin.create_topics([NewTopic("orders", 2), NewTopic("payments", 1), NewTopic("notes", 1)])
    async with (
        Producer(bootstrap_servers=address, transactional_id="shop", client_id="shop-1") as shop,
        Producer(bootstrap_servers=address, transactional_id="till", client_id="till-1") as till,
    ):
        for number in range(8):
            await sell(shop, number, commit=number != 5)
            await sell(till, number, commit=number not in (2, 3))
    await _fence(address)
    await _write_notes(address)
    await _read_half(address)


async def sell(producer: Producer, number: int, *, commit: bool) -> None:
    await producer.begin_transaction()
    for line in range(1 + number % 3):
        value = b'{"order": %d, "line": %d, "article": "tea", "price": 4.5}' % (number, line)
        await producer.send_and_wait("orders", value, key=b"customer-%d" % number, partition=0)
    await producer.send_and_wait("payments", b"paid", partition=0)
    await (producer.commit_transaction() if commit else producer.abort_transaction())


async def _fence(address: str) -> None:
    """A second instance of `dispatch` fences the first, whose transaction is open."""
    first = Producer(bootstrap_servers=address, transactional_id="dispatch", client_id="dispatch-old")
    await first.start()
    await sell(first, 3, commit=True)
    await first.begin_transaction()
    await first.send_and_wait("orders", b"half a parcel", partition=0)
    async with Producer(bootstrap_servers=address, transactional_id="dispatch", client_id="dispatch-new") as second:
        await sell(second, 4, commit=True)
    await asyncio.wait([asyncio.ensure_future(_stop(first))])


async def _stop(producer: Producer) -> None:
    try:
        await producer.stop()
    except Exception:
        return  # it is fenced


async def _write_notes(address: str) -> None:
    async with Producer(bootstrap_servers=address, transactional_id=HOSTILE, client_id=HOSTILE) as producer:
        await producer.begin_transaction()
        headers = [(HOSTILE, HOSTILE.encode()), ("trace", None)]
        await producer.send_and_wait("notes", HOSTILE.encode(), key=HOSTILE.encode(), partition=0, headers=headers)
        await producer.send_and_wait("notes", bytes(range(256)), key=None, partition=0)
        await producer.send_and_wait("notes", b"x" * 20_000, partition=0)
        await producer.commit_transaction()
    async with Producer(bootstrap_servers=address) as plain:
        await plain.send_and_wait("notes", None, key=b"gone", partition=0)
        await plain.send_and_wait("notes", "\N{RIGHT-TO-LEFT OVERRIDE}evil \N{SNOWMAN}".encode(), partition=0)


async def _read_half(address: str) -> None:
    async with Admin(bootstrap_servers=address) as admin:
        await admin.alter_consumer_group_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(4)})
        await admin.alter_consumer_group_offsets(HOSTILE, {TopicPartition("notes", 0): OffsetAndMetadata(0, HOSTILE)})


async def keep_open(address: str) -> Producer:
    """A producer whose transaction in orders-0 is open."""
    producer = Producer(bootstrap_servers=address, transactional_id="returns", client_id="returns-1")
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait("orders", b"a return", partition=0)
    return producer


async def read_some(address: str, group: str) -> Consumer:
    """A member of a group that has read."""
    consumer = Consumer(
        "orders", bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", client_id="reader-1"
    )
    await consumer.start()
    await consumer.getone()
    await consumer.commit()
    return consumer


def hang(broker: EphemeralBroker | OutsideBroker, topic: str = "orders") -> None:
    """A record of a transaction that no coordinator knows, as a broker without verification would take it."""
    records = [Record(0, int(time.time() * 1000), None, b"lost")]
    batch = build_batch(records, producer_id=HANGING_ID, producer_epoch=0, base_sequence=0, is_transactional=True)

    if not isinstance(broker, EphemeralBroker):
        broker.hang(topic, batch)
        return

    async def append(node: Node) -> None:
        node.broker.topics.partition(topic, 0).append(batch, header=read_header(batch))

    broker.call(append)


def crowd(broker: EphemeralBroker, topic: str, count: int, producers: int = 8) -> None:
    """`count` transactions of one record, written to the log directly; each 20th is aborted."""

    async def append(node: Node) -> None:
        partition = node.broker.topics.partition(topic, 0)
        for number in range(count):
            producer_id = 9_000 + number % producers
            batch = build_batch(
                [Record(0, int(time.time() * 1000), None, b"v")],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=number // producers,
                is_transactional=True,
            )
            partition.append(batch, header=read_header(batch))
            partition.append_marker(producer_id, 0, commit=number % 20 != 7, coordinator_epoch=0)

    broker.call(append)
