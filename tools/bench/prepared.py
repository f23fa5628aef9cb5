"""Prepares data directories with much history by running the broker's components in this process, which is faster than
clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from time import monotonic, time_ns
from typing import NamedTuple

from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.config.loading import load
from semel_broker.coordination.journal import Journal
from semel_broker.node import Node
from semel_broker.partitions.partition import Partition
from semel_broker.txn.model import state
from semel_broker.txn.model.identity import ClientName, ProducerIdentity
from semel_broker.txn.model.metadata import TransactionMetadata
from semel_broker.txn.model.records import row_of
from semel_broker.txn.model.requests import End, Init, TransactionStep
from semel_broker.world import World
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode
from semel_protocol.hashes import coordinator_partition
from semel_protocol.records import Record, build_batch
from semel_storage.disk.os_disk import OsDisk
from semel_storage.internal_topics import TRANSACTION_STATE

Build = Callable[[Node], Awaitable[None]]
CLIENT = ClientName("rdkafka", "127.0.0.1")
TIMEOUT_MS = 60_000
LONG_EVERY = 20
LONG_TRANSACTIONS = 20
"""One in this many transactional ids has as many transactions, the others have one."""
OPEN_EVERY = 50
"""One in this many has an open transaction with a very long timeout, because the timeout sweep is not measured."""
OPEN_TIMEOUT_MS = 900_000
PARTITIONS = [("bench", index) for index in range(4)]
LOOP_EVERY = 1_000


def now_ms() -> int:
    return time_ns() // 1_000_000


def prepare(directory: Path, build: Build, **settings: str) -> None:
    """Start a broker over `directory` in this process, let `build` write into it, and shut it down cleanly."""
    given = {"log.dir": str(directory), "port": "0", "durability": "os", **settings}
    config = load(None, {}, [f"{key}={value}" for key, value in given.items()])
    world = World(now_ms=now_ms, monotonic=monotonic, rng=Random(1), disk=OsDisk())

    async def run() -> None:
        node = await Node.start(config, world)
        try:
            await build(node)
        finally:
            await node.stop()

    asyncio.run(run())


def name_of(number: int) -> str:
    """Return the transactional id of that number."""
    return f"orders-enricher-{number}"


def records_of(number: int) -> Iterator[TransactionMetadata]:
    """Yield the coordinator's records of one transactional id, in order."""
    is_open = number % OPEN_EVERY == 0
    timeout_ms = OPEN_TIMEOUT_MS if is_open else TIMEOUT_MS
    init = Init(transactional_id=name_of(number), timeout_ms=timeout_ms, client=CLIENT)
    txn = _record_after(state.init(None, init, now_ms(), number))
    yield txn
    count = LONG_TRANSACTIONS if number % LONG_EVERY == 0 else 1
    for turn in range(count):
        producer = txn.identity
        partition = PARTITIONS[(number + turn) % len(PARTITIONS)]
        txn = _record_after(state.add_partitions(txn, producer, [partition], now_ms()))
        yield txn
        if is_open and turn == count - 1:
            return
        txn = _record_after(state.end(txn, End(producer=producer, commit=(number + turn) % 10 != 0), now_ms()))
        yield txn
        txn = state.complete(txn, now_ms())
        yield txn


def _record_after(step: TransactionStep) -> TransactionMetadata:
    assert step.then is not None
    return step.then


def transactional_ids(count: int) -> Build:
    """Write the records of `count` transactional ids, in the order that busy producers leave."""

    async def build(node: Node) -> None:
        broker = node.broker
        await broker.topics.create(NewTopic(name="bench", partitions=len(PARTITIONS)))
        topic = await broker.topics.ensure(TRANSACTION_STATE)
        partitions = [broker.topics.partition(TRANSACTION_STATE, index) for index in range(topic.partition_count)]
        journals = [
            Journal(broker.world, partition, passed=ErrorCode.RECORD_LIST_TOO_LARGE) for partition in partitions
        ]
        histories = [records_of(number) for number in range(count)]
        while histories:  # one step of each id at a time: records of an id are far apart
            going = []
            for at, past in enumerate(histories):
                txn = next(past, None)
                if txn is not None:
                    journals[coordinator_partition(txn.transactional_id, len(journals))].append([row_of(txn)])
                    going.append(past)
                if at % LOOP_EVERY == 0:
                    await asyncio.sleep(0)
            histories = going

    return build


class Mix(NamedTuple):
    """The content of a partition: `transactions` of `records` records, every `aborted_every`th aborted (0: none).

    One committed record at the end tells readers that they have reached it.
    """

    topic: str
    transactions: int
    records: int
    aborted_every: int

    def visible(self, isolation: str) -> int:
        """Return the number of records that readers at this isolation level see."""
        hidden = self.transactions // self.aborted_every if isolation == "read_committed" and self.aborted_every else 0
        return (self.transactions - hidden) * self.records + 1


WRITERS = 10
"""The producers of a mix, which take turns with their transactions."""


def mixed(*mixes: Mix, leave_open: bool = False) -> Build:
    """Write a one-partition topic for each mix. `leave_open`: a transaction is open at the end."""

    async def build(node: Node) -> None:
        topics = node.broker.topics
        for mix in mixes:
            await topics.create(NewTopic(name=mix.topic, partitions=1))
            partition = topics.partition(mix.topic, 0)
            writers = [Writer(partition, producer_id) for producer_id in range(WRITERS)]
            for number in range(1, mix.transactions + 1):
                writer = writers[number % WRITERS]
                writer.write(mix.records)
                writer.end(commit=not mix.aborted_every or number % mix.aborted_every != 0)
                if number % LOOP_EVERY == 0:
                    await asyncio.sleep(0)
            writers[0].write(1)
            writers[0].end(commit=True)
            if leave_open:
                writers[0].write(1)

    return build


def idle_producers(count: int) -> Build:
    """Write a partition in which `count` idempotent producers have written one batch each."""

    async def build(node: Node) -> None:
        await node.broker.topics.create(NewTopic(name="producers", partitions=1))
        partition = node.broker.topics.partition("producers", 0)
        for producer_id in range(count):
            Writer(partition, producer_id, is_transactional=False).write(1)
            if producer_id % LOOP_EVERY == 0:
                await asyncio.sleep(0)

    return build


class Writer:
    """An idempotent producer of one partition, without a coordinator: it writes its own markers."""

    def __init__(self, partition: Partition, producer_id: int, *, is_transactional: bool = True) -> None:
        self._partition = partition
        self._is_transactional = is_transactional
        self._producer = ProducerIdentity(producer_id, 0)
        self._sequence = 0

    def write(self, records: int) -> None:
        """Append one batch of `records` records of 100 bytes."""
        batch = bytearray(
            build_batch(
                [Record(0, now_ms(), None, b"x" * 100)] * records,
                producer_id=self._producer.producer_id,
                producer_epoch=0,
                base_sequence=self._sequence,
                is_transactional=self._is_transactional,
            )
        )
        self._partition.append(batch, header=read_header(batch))
        self._sequence += records

    def end(self, *, commit: bool) -> None:
        self._partition.append_marker(self._producer.producer_id, 0, commit, 0)
