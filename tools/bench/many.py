"""Measures many transactional ids and many aborted transactions: their effect on start, fetch and other partitions."""

from __future__ import annotations

import socket
import statistics
import time
from pathlib import Path
from random import Random
from typing import TypeVar

from semel_protocol.api import APIS
from semel_protocol.headers import encode_request_frame, response_body_at
from semel_protocol.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel_protocol.schema import Message
from support.processes import BrokerProcess

from tools.bench.figure import Figure, at_most
from tools.bench.isolation import RATIO
from tools.bench.measure import broker, cpu_s, rss_mib, work
from tools.bench.prepared import Mix, idle_producers, mixed, name_of, prepare, transactional_ids

IDS = 100_000
IDS_START_S = 3
BESIDE_RATIO = 1.2
FETCHES = 200
FETCH_BYTES = 64 << 10
M = TypeVar("M", bound=Message)


class RawClient:
    """A raw client that sends one request at a time."""

    def __init__(self, process: BrokerProcess) -> None:
        self._socket = socket.create_connection(("127.0.0.1", process.port), 120)

    def request(self, key: int, version: int, request: Message, answer: type[M]) -> M:
        api = APIS[key]
        self._socket.sendall(b"".join(encode_request_frame(api, version, 1, "bench", request)))
        frame = self._take(int.from_bytes(self._take(4), "big"))
        message = api.response_codec(version).decode(frame, response_body_at(api, version, frame))
        assert isinstance(message, answer)
        return message

    def _take(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return bytes(data)

    def fetch(self, topic: str, offset: int, isolation: int) -> FetchResponse:
        wanted = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=isolation,
            topics=[FetchRequestTopic(topic=topic, partitions=[wanted])],
        )
        return self.request(1, 11, request, FetchResponse)


def many_ids(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure a start with 100,000 transactional ids and about 680,000 records, up to an answered InitProducerId."""
    prepare(directory / "ids", transactional_ids(IDS))
    prepare(directory / "producers", idle_producers(IDS))
    figures = []
    process = BrokerProcess(directory / "ids", durability="fsync")
    bare = BrokerProcess(directory / "bare", durability="fsync").start()
    rss = rss_mib(bare)
    bare.stop()
    for how in ("a clean end", "SIGKILL"):
        taken, spent = [], []
        for run in range(runs + 1):
            began = time.perf_counter()
            _init(process.start(timeout_s=120), name_of(run))
            if run:  # the first run needs no restart
                taken.append(time.perf_counter() - began)
                spent.append(cpu_s(process))
            memory = rss_mib(process)
            process.kill() if how == "SIGKILL" else process.stop()
        name = f"start with {IDS:,} transactional ids after {how}, to a producer initialised"
        figures.append(at_most(name, statistics.median(taken), "s", IDS_START_S))
        figures.append(at_most("  of it CPU", statistics.median(spent), "s"))
    figures.append(at_most("  memory for each of them", (memory - rss) * 1024 / IDS, "KiB"))
    process = BrokerProcess(directory / "producers", durability="fsync")
    taken, spent = [], []
    for run in range(runs + 1):
        began = time.perf_counter()
        process.start(timeout_s=120)
        if run:
            taken.append(time.perf_counter() - began)
            spent.append(cpu_s(process))
        process.kill()
    name = f"start with {IDS:,} producers in one partition, after SIGKILL"
    figures += [at_most(name, statistics.median(taken), "s"), at_most("  of it CPU", statistics.median(spent), "s")]
    return figures


def _init(process: BrokerProcess, transactional_id: str) -> None:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    answer = RawClient(process).request(22, 4, request, InitProducerIdResponse)
    assert answer.error_code == 0, answer
    assert answer.producer_epoch > 0, "this id should have earlier transactions"


def many_aborted(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure a partition with --records aborted one-record transactions and one open transaction at its end.

    The figures are its readers, the readers of other partitions, and a start. Other partitions are compared with a
    broker without aborted transactions.
    """
    mix = Mix("aborted", records, 1, 1)
    prepare(directory / "with", mixed(mix, leave_open=True))
    process = BrokerProcess(directory / "with", durability="fsync", **{"num.partitions": "1"}).start(timeout_s=120)
    figures = _fetches(process, mix)
    memory = {"with": rss_mib(process)}
    spent: dict[str, list[float]] = {"with": [], "without": []}
    with broker(directory / "without") as other:
        memory["without"] = rss_mib(other)
        for run in range(2 * runs + 1):
            for name, each in (("with", process), ("without", other)):
                before = cpu_s(each)
                work("librdkafka_produce", address=each.address, records=200_000, topic=f"beside-{run}")
                work("librdkafka_consume", address=each.address, records=200_000, topic=f"beside-{run}")
                if run:
                    spent[name].append(cpu_s(each) - before)
    beside = statistics.median(spent["with"]) / statistics.median(spent["without"])
    met = beside <= BESIDE_RATIO
    shown = f"{beside:.2f}x"
    figures.append(Figure("broker CPU, produce and fetch of other partitions", beside, shown, "<= 1.2x", met))
    figures.append(at_most("memory because of them", memory["with"] - memory["without"], "MiB"))
    taken = []
    for _ in range(runs):
        process.kill()
        began = time.perf_counter()
        process.start(timeout_s=120)
        taken.append(time.perf_counter() - began)
    process.stop()
    return [*figures, at_most("start after SIGKILL", statistics.median(taken), "s", 2)]


def _fetches(process: BrokerProcess, mix: Mix) -> list[Figure]:
    """Measure fetches of 64 KiB, each over about 260 transactions: a sequential reader, and random offsets."""
    end = 2 * mix.transactions
    client, random = RawClient(process), Random(5)
    ranges = {"in the middle": (end * 4 // 10, end * 6 // 10), "at the end": (end - 20, end)}
    figures = []
    for where, (low, high) in ranges.items():
        costs = {0: 0.0, 1: 0.0}
        for _ in range(5):
            for isolation in costs:
                before = cpu_s(process)
                for _ in range(FETCHES):
                    client.fetch(mix.topic, random.randrange(low, high), isolation)
                costs[isolation] += cpu_s(process) - before
        cost_us, ratio = costs[1] / 5 / FETCHES * 1e6, costs[1] / costs[0]
        shown = f"{cost_us:.0f} us CPU, {ratio:.2f}x of read_uncommitted"
        most = RATIO if where == "at the end" else None
        met = ratio <= most if most else None
        aim = f"<= {most}x" if most else ""
        figures.append(Figure(f"read_committed fetch {where} of {mix.transactions:,} aborted", ratio, shown, aim, met))
    return figures
