"""Measures the unit costs behind docs/scale.md: the parts of the cost of 100 brokers and 100,000 partitions.

Pure functions are measured in CPU time of this process, etcd in wall clock time.
"""

from __future__ import annotations

import asyncio
import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import msgspec
from semel_broker.cluster import elections, records
from semel_broker.cluster.elections import BrokerStates
from semel_broker.cluster.etcd.store import EtcdStore
from semel_broker.cluster.image import Image
from semel_broker.cluster.records import BrokerAdmission, BrokerRecord, PartitionState, TopicRecord
from semel_broker.cluster.store import CHANGES_MAX, Listing, Put, StoreEntry
from semel_broker.cluster.topic_plan import text_of_id
from semel_broker.world import World
from semel_storage.disk.os_disk import OsDisk
from support.etcd import EtcdProcess

from tools.bench.figure import Figure, at_most

BROKERS = 100
TOPICS = 1_000
PARTITIONS = 100
REPLICAS = 3
ETCD_TRANSACTIONS = 300


def scale(directory: Path, records_count: int, runs: int) -> list[Figure]:
    """Measure the image of a large cluster, the death of a broker in it, and etcd transactions."""
    entries = large()
    total = TOPICS * PARTITIONS
    tracemalloc.start()
    image = Image()
    listing = Listing(tuple(entries), 1)
    before = tracemalloc.get_traced_memory()[0]
    image.replace(listing)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    fresh = Image()
    read_ms = cpu_ms(lambda: fresh.replace(listing))
    state = PartitionState(2, 1, [2, 3])
    place = next(iter(image.partitions())).place
    change = StoreEntry(records.partition_key(*place), msgspec.json.encode(state), 2)
    change_us = 1000 * cpu_ms(lambda: [image.apply([change], 2) for _ in range(10_000)]) / 10_000
    image.apply([StoreEntry(f"{records.ADMISSIONS}1", msgspec.json.encode(BrokerAdmission(-1)), 3)], 3)
    standing = BrokerStates.of(image)
    steps: list[object] = []
    death_ms = cpu_ms(lambda: steps.extend(elections.unsettled(image.partitions(), standing)))
    single_ms, full_ms = asyncio.run(etcd_transactions(directory))
    return [
        Figure("partitions, brokers", total, f"{total:,} on {BROKERS}"),
        Figure("what the store holds of them", sum(len(each.value) for each in entries), f"{_mib(entries):.1f} MiB"),
        at_most("an image of them in memory", held / total, "bytes a partition", digits=0),
        at_most("reading all of it at the start", read_ms, "ms CPU"),
        at_most("one change, in each broker", change_us, "µs CPU"),
        at_most(f"a death that concerns {len(steps):,} partitions: deciding", death_ms, "ms CPU"),
        at_most("etcd (no sync): a transaction of one change", single_ms, "ms"),
        at_most(f"etcd (no sync): a transaction of {CHANGES_MAX} changes", full_ms, "ms"),
    ]


def large() -> list[StoreEntry]:
    """Return the store entries of a cluster of that size; every partition has had a change of leader."""
    rng = random.Random(1)
    found = []
    for node_id in range(1, BROKERS + 1):
        record = BrokerRecord(
            node_id=node_id, incarnation="x" * 22, directory_id="y" * 22, host=f"broker-{node_id}", port=9092
        )
        found.append(StoreEntry(records.broker_key(node_id), msgspec.json.encode(record), 1))
        found.append(StoreEntry(f"{records.ADMISSIONS}{node_id}", msgspec.json.encode(BrokerAdmission(1)), 1))
    for number in range(TOPICS):
        topic_id = text_of_id(rng.randbytes(16))
        replicas = [rng.sample(range(1, BROKERS + 1), REPLICAS) for _ in range(PARTITIONS)]
        topic = TopicRecord(f"topic-{number:04}", topic_id, replicas, {})
        found.append(StoreEntry(records.topic_key(topic.name), msgspec.json.encode(topic), 1))
        for index, ids in enumerate(replicas):
            state = PartitionState(ids[1], 1, ids)
            found.append(StoreEntry(records.partition_key(topic_id, index), msgspec.json.encode(state), 1))
    return found


async def etcd_transactions(directory: Path) -> tuple[float, float]:
    """Return the milliseconds of a transaction with one change, and of a full one, run one after the other."""
    directory.mkdir(parents=True, exist_ok=True)
    etcd = EtcdProcess(directory / "etcd").start()
    world = World(now_ms=lambda: int(time.time() * 1000), monotonic=time.monotonic, rng=random.Random(1), disk=OsDisk())
    store = EtcdStore([etcd.url], namespace="scale", world=world)
    value = msgspec.json.encode(PartitionState(1, 1, [1, 2, 3]))
    try:
        found = []
        for size in (1, CHANGES_MAX):
            started = time.perf_counter()
            for _ in range(ETCD_TRANSACTIONS):
                await store.transact([], [Put(records.partition_key("x" * 22, index), value) for index in range(size)])
            found.append(1000 * (time.perf_counter() - started) / ETCD_TRANSACTIONS)
    finally:
        await store.close()
        etcd.kill()
    return found[0], found[1]


def cpu_ms(work: Callable[[], object]) -> float:
    before = time.process_time()
    work()
    return 1000 * (time.process_time() - before)


def _mib(entries: list[StoreEntry]) -> float:
    return sum(len(entry.key) + len(entry.value) for entry in entries) / (1 << 20)
