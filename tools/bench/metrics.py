"""The cost of metrics: the counters with each request and transaction, and a scrape of many topics and groups."""

from __future__ import annotations

import asyncio
import os
import shutil
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
from semel_broker.groups.offsets.model import CommittedOffset, OffsetRecord
from semel_broker.metrics.exporter import Exporter
from semel_broker.node import Node
from semel_broker.world import World
from semel_protocol.api import APIS
from semel_protocol.batch import read_header
from semel_protocol.headers import encode_request_frame
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from semel_storage.disk.memory_disk import MemoryDisk
from support.processes import BrokerProcess

from tools.bench.figure import Figure, at_most
from tools.bench.measure import cpu_s, user_and_system_s

TOPICS = GROUPS = 1_000
REQUESTS, TRANSACTIONS = 1_000, 150
"""Of one round."""
WARM_ROUNDS, ROUNDS, PAIRS = 2, 4, 40
SCRAPE_MS, HELD_MS = 50.0, 5.0
COST = 1.02
SCRAPES = 5
VALGRIND = ("env", "PYTHONHASHSEED=0", "valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
SHORT_LONG = (1, 3)
"""Rounds of the two runs under valgrind."""
VALGRIND_PAIRS = 5
TIMEOUT_S = 60
COUNTED, UNCOUNTED, SLOWED = "semel_broker", "tools.bench.uncounted", "tools.bench.slowed"
"""Modules that run a broker. The last one has counters and runs under valgrind."""


def metrics(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure the broker's CPU with and without counters, in turns, and scrapes.

    Each pair of processes has its own layout of memory, which moves the CPU of either by several percent: only the
    median over many pairs says what the counters cost. `_interval` says how sure that median is, and a control, whose
    two brokers are the same, how far this machine moves it when there is nothing to find. Instructions scatter much
    less; they are counted where there is a valgrind. Those of the kernel are not among them, so what counters add is
    weighed by the share of user time in the broker's CPU.
    """
    figures: list[Figure] = []
    for kind, caller in (("request", _produce), ("transaction", _transactions)):
        costs: dict[str, list[float]] = {}
        for module in (UNCOUNTED, COUNTED):
            with _apart() as processors:
                pairs = [
                    _pair(directory / f"{kind}-{module}-{run}", module, caller, processors, first=run % 2)
                    for run in range(max(PAIRS, runs))
                ]
            costs[module] = [pair.counted_us / pair.other_us for pair in pairs]
            if module == UNCOUNTED:
                user_share = sum(pair.user_s for pair in pairs) / sum(pair.user_s + pair.system_s for pair in pairs)
                counted = statistics.median(pair.counted_us for pair in pairs)
                figures.append(Figure(f"broker CPU per {kind} with counters", counted, f"{counted:.1f} us"))
        figures += [
            at_most("  of that without, median of pairs", statistics.median(costs[UNCOUNTED]), "", COST, digits=3),
            _interval_of("  95 % interval of that median", costs[UNCOUNTED]),
            _interval_of("  the same of two equal brokers", costs[COUNTED]),
        ]
        if shutil.which("valgrind"):
            figures += _instructions(directory / f"{kind}-instructions", kind, caller, user_share)
    whole_ms, held_ms, size = asyncio.run(_scrape())
    return [
        *figures,
        at_most(f"scrape of {TOPICS:,} topics and {GROUPS:,} groups, CPU", whole_ms, "ms", SCRAPE_MS),
        at_most("  longest hold of the event loop", held_ms, "ms", HELD_MS),
        Figure("  size of the page", size, f"{size / 1024:,.0f} KiB"),
    ]


def _interval(values: list[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median, which is the same for every distribution: two of the values.

    The number of values below the true median is binomial with p = 1/2; the normal approximation is enough for 20 or
    more.
    """
    rank = max(0, int(len(values) / 2 - 1.96 * len(values) ** 0.5 / 2))
    ordered = sorted(values)
    return ordered[rank], ordered[-1 - rank]


def _interval_of(name: str, costs: list[float]) -> Figure:
    low, high = _interval(costs)
    return Figure(f"{name}, {len(costs)} pairs", high - low, f"{low:.3f} to {high:.3f}")


@contextmanager
def _apart() -> Iterator[set[int]]:
    """The clients on one processor, the brokers on another: yields the latter.

    Left to the kernel, the broker that started first was 8 percent cheaper, because it shared a processor with the
    client less often.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield {max(before)}
    finally:
        os.sched_setaffinity(0, before)


class Pair(NamedTuple):
    """Medians of the rounds of one pair of processes: CPU of the broker for one call. `user_s`, `system_s`: of all
    rounds of both."""

    counted_us: float
    other_us: float
    user_s: float
    system_s: float


def _instructions(directory: Path, kind: str, caller: Caller, user_share: float) -> list[Figure]:
    """What counters add to the instructions of the broker for one call, and to its CPU by these."""
    pairs = []
    for pair in range(VALGRIND_PAIRS):
        counted, other = (_executed(directory / f"{pair}-{module}", module, caller) for module in (SLOWED, UNCOUNTED))
        pairs.append((counted, other))
    ratios = sorted(counted / other for counted, other in pairs)
    ratio = statistics.median(ratios)
    count = statistics.median(counted for counted, _ in pairs)
    return [
        Figure(f"instructions per {kind} with counters", count, f"{count:,.0f}"),
        Figure(f"  of that without, median of {len(ratios)} pairs", ratio, f"{ratio:.3f}"),
        Figure("  lowest to highest", ratios[-1] - ratios[0], f"{ratios[0]:.3f} to {ratios[-1]:.3f}"),
        Figure("  share of user time in the CPU", user_share, f"{user_share:.2f}"),
        at_most("  CPU of that without, by instructions", 1 + (ratio - 1) * user_share, "", COST, digits=3),
    ]


def _executed(directory: Path, module: str, caller: Caller) -> float:
    """Instructions for one call. A short run is taken off a longer one: both start and stop alike."""
    runs = []
    for rounds in SHORT_LONG:
        process = BrokerProcess(directory / str(rounds), durability="os", **{"num.partitions": "1"})
        process.prefix, process.module = VALGRIND, module
        process.settings["metrics.listener"] = "127.0.0.1:0"
        process.start(TIMEOUT_S)
        with ExitStack() as stack:
            stack.callback(process.stop, TIMEOUT_S)
            call = stack.enter_context(caller(process))
            calls = sum(call() for _ in range(rounds))
        (count,) = (int(line.split()[-1]) for line in process.log if " Collected : " in line)
        runs.append((count, calls))
    (short, short_calls), (long, long_calls) = runs
    return (long - short) / (long_calls - short_calls)


Call = Callable[[], int]
"""Makes the calls of one round; returns how many."""

Caller = Callable[[BrokerProcess], AbstractContextManager[Call]]
"""A client of a broker."""


def _pair(directory: Path, other: str, caller: Caller, processors: set[int], *, first: int) -> Pair:
    """One broker with counters and one that runs the module `other`, measured in turns; `first`: which starts first."""
    us: list[list[float]] = [[], []]
    modules = (COUNTED, other)
    with ExitStack() as stack:
        sides: dict[int, tuple[BrokerProcess, Call]] = {}
        for side in (first, 1 - first):
            process = BrokerProcess(directory / str(side), durability="os", **{"num.partitions": "1"})
            process.module = modules[side]
            process.settings["metrics.listener"] = "127.0.0.1:0"
            process.start()
            stack.callback(process.stop)
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), processors)
            sides[side] = process, stack.enter_context(caller(process))
        before = [user_and_system_s(process) for process, _ in sides.values()]
        for turn in (*(0, 1) * WARM_ROUNDS, *(0, 1, 1, 0) * (ROUNDS // 2)):
            side = turn ^ first
            process, call = sides[side]
            spent_s = cpu_s(process)
            calls = call()
            us[side].append((cpu_s(process) - spent_s) / calls * 1e6)
        after = [user_and_system_s(process) for process, _ in sides.values()]
    user_s, system_s = (sum(each[kind] for each in after) - sum(each[kind] for each in before) for kind in (0, 1))
    counted, plain = (statistics.median(rounds[WARM_ROUNDS:]) for rounds in us)
    return Pair(counted, plain, user_s, system_s)


@contextmanager
def _produce(process: BrokerProcess) -> Iterator[Call]:
    """Produce requests of one record, one after the other."""
    with (
        socket.create_connection(("127.0.0.1", process.port), TIMEOUT_S) as connection,
        connection.makefile("rb") as answers,
    ):
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

    producer = Producer(
        {"bootstrap.servers": process.address, "transactional.id": "bench", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(TIMEOUT_S)

    def calls() -> int:
        for _ in range(TRANSACTIONS):
            producer.begin_transaction()
            producer.produce("bench-transactions", b"x" * 100, partition=0)
            producer.commit_transaction(TIMEOUT_S)
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
            group = Group(f"group-{number}")
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
