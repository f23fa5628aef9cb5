"""What metrics cost: the counters with each request and transaction, and a scrape of many topics and groups."""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

from broker.wire import batch, produce_request
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.config.loading import load
from semel_broker.groups.group import Group
from semel_broker.groups.offsets import CommittedOffset, OffsetRecord
from semel_broker.metrics.exporter import Exporter
from semel_broker.node import Node
from semel_broker.world import World
from semel_protocol.api import APIS
from semel_protocol.batch import read_header
from semel_protocol.headers import encode_request_frame
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from semel_storage.disk.memory_disk import MemoryDisk
from support.processes import BrokerProcess

from bench.figure import Figure, at_most
from bench.measure import cpu_s

TOPICS = GROUPS = 1_000
REQUESTS, TRANSACTIONS = 300, 30
"""Of one round."""
WARM_ROUNDS, ROUNDS, PAIRS = 2, 16, 7
SCRAPE_MS, HELD_MS = 50.0, 5.0
COST = 1.02
SCRAPES = 5


def metrics(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measures the broker's CPU with and without counters, in turns, and scrapes.

    Each pair of processes has its own layout of memory, which moves the CPU of either by a few percent: only the median
    over several pairs says what the counters cost.
    """
    figures: list[Figure] = []
    for kind, caller in (("request", _produce), ("transaction", _transactions)):
        pairs = [_pair(directory / f"{kind}-{run}", caller) for run in range(max(PAIRS, runs))]
        counted = statistics.median(pair.counted_us for pair in pairs)
        costs = [pair.counted_us / pair.plain_us for pair in pairs]
        rate = statistics.median(pair.counted_rate / pair.plain_rate for pair in pairs)
        low, _, high = statistics.quantiles(costs, n=4)
        figures += [
            Figure(f"broker CPU per {kind} with counters", counted, f"{counted:.1f} us"),
            at_most("  of that without, median of pairs", statistics.median(costs), "", COST, digits=3),
            Figure("  middle half of the pairs", high - low, f"{low:.3f} to {high:.3f}"),
            Figure("  rate of that without", rate, f"{rate:.3f}"),
        ]
    whole_ms, held_ms, size = asyncio.run(_scrape())
    return [
        *figures,
        at_most(f"scrape of {TOPICS:,} topics and {GROUPS:,} groups, CPU", whole_ms, "ms", SCRAPE_MS),
        at_most("  longest hold of the event loop", held_ms, "ms", HELD_MS),
        Figure("  size of the page", size, f"{size / 1024:,.0f} KiB"),
    ]


class Pair(NamedTuple):
    """Medians of the rounds of one pair of processes: CPU of the broker for one call, and calls per second."""

    counted_us: float
    plain_us: float
    counted_rate: float
    plain_rate: float


Call = Callable[[], int]
"""Makes the calls of one round; returns how many."""


def _pair(directory: Path, caller: Callable[[BrokerProcess], AbstractContextManager[Call]]) -> Pair:
    """One broker with counters and one without, measured in turns."""
    us: list[list[float]] = [[], []]
    rates: list[list[float]] = [[], []]
    with ExitStack() as stack:
        sides = []
        for module in ("semel_broker", "bench.uncounted"):
            process = BrokerProcess(directory / module, durability="os", **{"num.partitions": "1"})
            process.module = module
            process.settings["metrics.listener"] = "127.0.0.1:0"
            process.start()
            stack.callback(process.stop)
            sides.append((process, stack.enter_context(caller(process))))
        for side in (*(0, 1) * WARM_ROUNDS, *(0, 1, 1, 0) * (ROUNDS // 2)):
            process, call = sides[side]
            spent_s, began = cpu_s(process), time.perf_counter()
            calls = call()
            rates[side].append(calls / (time.perf_counter() - began))
            us[side].append((cpu_s(process) - spent_s) / calls * 1e6)
    middle = [statistics.median(rounds[WARM_ROUNDS:]) for rounds in (*us, *rates)]
    return Pair(*middle)


@contextmanager
def _produce(process: BrokerProcess) -> Iterator[Call]:
    """Produce requests of one record, one after the other."""
    with socket.create_connection(("127.0.0.1", process.port), 10) as connection, connection.makefile("rb") as answers:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def call(frame: bytes) -> None:
            connection.sendall(frame)
            answers.read(int.from_bytes(answers.read(4), "big"))

        metadata = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
        call(b"".join(encode_request_frame(APIS[3], 7, 1, "bench", metadata)))
        frame = b"".join(encode_request_frame(APIS[0], 9, 1, "bench", produce_request("t", batch(b"x" * 100))))

        def calls() -> int:
            for _ in range(REQUESTS):
                call(frame)
            return REQUESTS

        yield calls


@contextmanager
def _transactions(process: BrokerProcess) -> Iterator[Call]:
    """Transactions of one record."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": process.address, "transactional.id": "bench", "linger.ms": 0})
    producer.init_transactions(30)

    def calls() -> int:
        for _ in range(TRANSACTIONS):
            producer.begin_transaction()
            producer.produce("bench-transactions", b"x" * 100, partition=0)
            producer.commit_transaction(30)
        return TRANSACTIONS

    yield calls


async def _scrape() -> tuple[float, float, int]:
    """Milliseconds of CPU of a scrape and of its longest slice, and the bytes of the page."""
    disk = MemoryDisk()
    world = World(now_ms=lambda: time.time_ns() // 1_000_000, monotonic=time.monotonic, rng=Random(1), disk=disk)
    node = await Node.start(load(overrides=["log.dir=data", "port=0", "durability=os"]), world)
    try:
        records = batch(b"x")
        for number in range(TOPICS):
            await node.broker.topics.create(NewTopic(name=f"topic-{number}", partitions=1, replication_factor=1))
            partition = node.broker.topics.partition(f"topic-{number}", 0)
            partition.append(records, header=read_header(records))
        shard = await node.broker.groups.shard("any")
        for number in range(GROUPS):
            group = Group(group_id=f"group-{number}")
            group.offsets.apply(OffsetRecord(f"topic-{number % TOPICS}", 0, CommittedOffset(0)))
            shard.groups[group.group_id] = group
        exporter = Exporter(node)
        await exporter.text()
        whole, held, size = [], [], 0
        for _ in range(SCRAPES):
            longest, began = 0.0, time.thread_time()
            at, text = began, asyncio.create_task(exporter.text())
            while not text.done():
                await asyncio.sleep(0)
                now = time.thread_time()
                longest, at = max(longest, now - at), now
            whole.append((time.thread_time() - began) * 1000)
            held.append(longest * 1000)
            size = len(text.result())
        return statistics.median(whole), statistics.median(held), size
    finally:
        await node.stop()
