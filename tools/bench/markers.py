"""Measures the markers of one transaction for partitions that three other brokers lead, each with three replicas."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from functools import partial
from pathlib import Path

import msgspec
from semel_broker.cluster.etcd.store import EtcdStore
from semel_broker.cluster.records import BROKERS, BrokerRecord
from semel_broker.peer_handlers import PEER_VERSIONS
from semel_broker.replication.peer import PeerConnection
from semel_broker.world import World
from semel_protocol.api import APIS
from semel_protocol.api_key import ApiKey
from semel_protocol.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
)
from semel_storage.disk.os_disk import OsDisk
from support.three import NAME, NODES, EtcdAndThreeBrokers, three

from tools.bench.figure import Figure, at_most

TOPIC = "markers"
MARKER_MS = 3
TIMES = 500
WARM_UP = 50


def markers(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure from sending a marker to each of three leaders until all have committed it. This process is the
    coordinator.
    """
    figures = []
    for durability in ("os", "fsync"):
        with three(directory / durability, durability=durability) as cluster:
            cluster.create(TOPIC, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
            took = asyncio.run(_ask(cluster))
        name = f"a marker to three leaders elsewhere, 3 replicas each, {durability}, p50"
        figures.append(at_most(name, statistics.median(took), "ms", MARKER_MS))
        figures.append(at_most("  p99", took[int(len(took) * 0.99)], "ms"))
    return figures


async def _ask(cluster: EtcdAndThreeBrokers) -> list[float]:
    loop = asyncio.get_running_loop()
    leaders = []
    for record in await _registered(cluster):
        _, connection = await loop.create_connection(
            partial(PeerConnection, str(record.node_id), "bench", loop),
            record.peer_host,
            record.peer_port,
        )
        leaders.append((record.node_id - 1, connection))  # broker 1 leads partition 0, and so on
    assert len(leaders) == len(NODES), f"{len(leaders)} brokers are registered"
    took = []
    version = PEER_VERSIONS[ApiKey.WRITE_TXN_MARKERS][1]
    for number in range(WARM_UP + TIMES):
        begun = time.perf_counter()
        answers = [
            connection.send(APIS[ApiKey.WRITE_TXN_MARKERS], version, _marker(number, partition), 10_000)
            for partition, connection in leaders
        ]
        for answer in await asyncio.gather(*answers):
            code = answer.markers[0].topics[0].partitions[0].error_code
            assert not code, f"the marker was refused with {code}"
        if number >= WARM_UP:
            took.append((time.perf_counter() - begun) * 1000)
    for _, connection in leaders:
        connection.close("done")
    return sorted(took)


def _marker(producer_id: int, partition: int) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequestMarker(
                producer_id=producer_id,
                producer_epoch=0,
                transaction_result=True,
                topics=[WriteTxnMarkersRequestTopic(name=TOPIC, partition_indexes=[partition])],
                coordinator_epoch=0,
            )
        ]
    )


async def _registered(cluster: EtcdAndThreeBrokers) -> list[BrokerRecord]:
    world = World(now_ms=lambda: int(time.time() * 1000), monotonic=time.monotonic, rng=random.Random(1), disk=OsDisk())
    store = EtcdStore([cluster.etcd.url], namespace=NAME, world=world)
    try:
        decode = msgspec.json.Decoder(BrokerRecord).decode
        return [decode(entry.value) for entry in (await store.list(BROKERS)).entries]
    finally:
        await store.close()
