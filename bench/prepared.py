"""Data directories with a long past, written by the broker's own parts in this process: quicker than clients could."""

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
from semel_broker.txn.model.requests import End, Init, Step
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
"""Every so many transactional ids have as many transactions behind them, the others one."""
OPEN_EVERY = 50
"""Every so many have one open, with no end of its time in sight: the sweep is not what is measured."""
OPEN_TIMEOUT_MS = 900_000
PARTITIONS = [("bench", index) for index in range(4)]
LOOP_EVERY = 1_000


def now_ms() -> int:
    return time_ns() // 1_000_000


def prepare(directory: Path, build: Build, **settings: str) -> None:
    """Start a broker over `directory` in this process, have `build` write into it, and shut it down cleanly."""
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
    """The transactional id of that number."""
    return f"orders-enricher-{number}"


def past_of(number: int) -> Iterator[TransactionMetadata]:
    """What the coordinator has stored of one transactional id, record by record, as it decided it then."""
    is_open = number % OPEN_EVERY == 0
    timeout_ms = OPEN_TIMEOUT_MS if is_open else TIMEOUT_MS
    init = Init(transactional_id=name_of(number), timeout_ms=timeout_ms, client=CLIENT)
    txn = _stored(state.init(None, init, now_ms(), number))
    yield txn
    count = LONG_TRANSACTIONS if number % LONG_EVERY == 0 else 1
    for turn in range(count):
        producer = txn.identity
        partition = PARTITIONS[(number + turn) % len(PARTITIONS)]
        txn = _stored(state.add_partitions(txn, producer, [partition], now_ms()))
        yield txn
        if is_open and turn == count - 1:
            return
        txn = _stored(state.end(txn, End(producer=producer, commit=(number + turn) % 10 != 0), now_ms()))
        yield txn
        txn = state.complete(txn, now_ms())
        yield txn


def _stored(step: Step) -> TransactionMetadata:
    assert step.then is not None
    return step.then


def transactional_ids(count: int) -> Build:
    """`count` transactional ids with their past, in the order in which busy producers would have left it."""

    async def build(node: Node) -> None:
        broker = node.broker
        await broker.topics.create(NewTopic(name="bench", partitions=len(PARTITIONS)))
        topic = await broker.topics.ensure(TRANSACTION_STATE)
        partitions = [broker.topics.partition(TRANSACTION_STATE, index) for index in range(topic.partition_count)]
        journals = [
            Journal(broker.world, partition, passed=ErrorCode.RECORD_LIST_TOO_LARGE) for partition in partitions
        ]
        pasts = [past_of(number) for number in range(count)]
        while pasts:  # one step of each at a time: the records of an id lie far from each other
            going = []
            for at, past in enumerate(pasts):
                txn = next(past, None)
                if txn is not None:
                    journals[coordinator_partition(txn.transactional_id, len(journals))].append([row_of(txn)])
                    going.append(past)
                if at % LOOP_EVERY == 0:
                    await asyncio.sleep(0)
            pasts = going

    return build


class Mix(NamedTuple):
    """What a partition holds: `transactions` of `records` records each, of which every `aborted_every`th is aborted
    (0: none), and one committed record at the end, by which readers know that they are there."""

    topic: str
    transactions: int
    records: int
    aborted_every: int

    def visible(self, isolation: str) -> int:
        """Records that readers of this isolation level get to see."""
        hidden = self.transactions // self.aborted_every if isolation == "read_committed" and self.aborted_every else 0
        return (self.transactions - hidden) * self.records + 1


WRITERS = 10
"""Producers of a mix; their transactions follow one another."""


def mixed(*mixes: Mix, leave_open: bool = False) -> Build:
    """A topic of one partition for each mix. `leave_open`: a transaction is open at the end."""

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
    """A partition in which so many idempotent producers have written one batch each."""

    async def build(node: Node) -> None:
        await node.broker.topics.create(NewTopic(name="producers", partitions=1))
        partition = node.broker.topics.partition("producers", 0)
        for producer_id in range(count):
            Writer(partition, producer_id, is_transactional=False).write(1)
            if producer_id % LOOP_EVERY == 0:
                await asyncio.sleep(0)

    return build


class Writer:
    """An idempotent producer of one partition; past the coordinator, so that it writes its markers itself."""

    def __init__(self, partition: Partition, producer_id: int, *, is_transactional: bool = True) -> None:
        self._partition = partition
        self._is_transactional = is_transactional
        self._producer = ProducerIdentity(producer_id, 0)
        self._sequence = 0

    def write(self, records: int) -> None:
        """One batch of so many records of 100 bytes."""
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
