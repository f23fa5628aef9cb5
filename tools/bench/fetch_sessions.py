"""Fetch sessions (KIP-227): a consumer of 1,000 partitions of which ten are busy, with a session and without.

First with requests that are made here, then with semel's own consumer on brokers with and without room for sessions.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from broker.wire import Wire, batch, produce_request
from semel.consumer import Consumer
from semel_protocol.api import API_OF
from semel_protocol.headers import encode_request_frame, response_body_at
from semel_protocol.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from support.processes import BrokerProcess

from tools.bench.figure import Figure, at_most, ratio
from tools.bench.measure import broker, cpu_s

PARTITIONS, BUSY, POLLS = 1_000, 10, 200
VERSION = 11
BYTES_RATIO = 10
SLOTS = {False: "0", True: "1000"}
"""max.incremental.fetch.session.cache.slots of brokers without sessions and with."""
FETCH = API_OF[FetchRequest]


def fetch_sessions(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure bytes of a poll and the broker's CPU for it. Both kinds of polls take turns on one broker."""
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with broker(directory / "data", "os") as process:
        for run in range(runs):
            for has_session, costs in found.items():
                poller = Poller(process, f"t-{run}-{has_session}", has_session=has_session)
                costs.append(asyncio.run(poller.measured()))
    figures = []
    for at, (name, unit) in enumerate((("bytes of a poll, both ways", "KiB"), ("broker CPU of a poll", "ms"))):
        full, session = (statistics.median(cost[at] for cost in found[each]) for each in (False, True))
        figures += [
            at_most(f"{name}, without a session", full, unit),
            at_most(f"{name}, with a session", session, unit),
            ratio("  less by", full / session, BYTES_RATIO if at == 0 else None),
        ]
    return [*figures, *_of_the_consumer(directory, runs)]


def _of_the_consumer(directory: Path, runs: int) -> list[Figure]:
    """Measure semel's own consumer. The time of its process includes the producer of the records."""
    found: dict[bool, list[tuple[float, float, float]]] = {False: [], True: []}
    for run in range(runs):
        for has_session, costs in found.items():
            place = directory / f"consumer-{run}-{has_session}"
            settings = {"max.incremental.fetch.session.cache.slots": SLOTS[has_session]}
            with broker(place, "os", **settings, **{"metrics.listener": "127.0.0.1:0"}) as process:
                costs.append(asyncio.run(_consumed(process)))
    figures = []
    units = (("bytes of a poll, both ways", "KiB"), ("broker CPU of a round", "ms"), ("client CPU of a round", "ms"))
    for at, (name, unit) in enumerate(units):
        full, session = (statistics.median(cost[at] for cost in found[each]) for each in (False, True))
        figures += [
            at_most(f"semel's consumer: {name}, without a session", full, unit),
            at_most(f"semel's consumer: {name}, with a session", session, unit),
            ratio("  less by", full / session, BYTES_RATIO if at == 0 else None),
        ]
    return figures


async def _consumed(process: BrokerProcess) -> tuple[float, float, float]:
    """(KiB of a poll, ms of broker CPU, ms of client CPU); a round is a new record in each busy partition."""
    writer = await Wire.connect(process.port)
    await writer.create_topic("t", PARTITIONS)
    async with Consumer("t", bootstrap_servers=process.address, auto_offset_reset="earliest") as consumer:
        await _round(writer, consumer)
        polls, size = _fetched(process)
        spent, own = cpu_s(process), time.process_time()
        for _ in range(POLLS):
            await _round(writer, consumer)
        spent, own = cpu_s(process) - spent, time.process_time() - own
        polls_now, size_now = _fetched(process)
    await writer.close()
    return (size_now - size) / (polls_now - polls) / 1024, spent / POLLS * 1000, own / POLLS * 1000


async def _round(writer: Wire, consumer: Consumer) -> None:
    for index in range(BUSY):
        writer.send(produce_request("t", batch(b"v" * 100), partition=index))
    for _ in range(BUSY):
        await writer.receive()
    taken = 0
    while taken < BUSY:
        taken += sum(map(len, (await consumer.getmany(timeout_ms=1000)).values()))


def _fetched(process: BrokerProcess) -> tuple[float, float]:
    """(number, bytes both ways) of the fetches so far, by the broker's metrics."""
    ready = next(line for line in process.log if '"ready"' in line)
    with urllib.request.urlopen(f"http://127.0.0.1:{json.loads(ready)['metrics_port']}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    found = {
        name: sum(
            float(line.split()[-1])
            for line in lines
            if line.startswith(f"{name}{{") and 'source="client"' in line and 'api="Fetch"' in line
        )
        for name in ("semel_requests_total", "semel_request_bytes_total", "semel_response_bytes_total")
    }
    requests, *sizes = found.values()
    return requests, sum(sizes)


class Poller:
    """A consumer of all partitions of a topic. It sends what a client has to send, and no more."""

    def __init__(self, process: BrokerProcess, topic: str, *, has_session: bool) -> None:
        self._process, self._topic, self._has_session = process, topic, has_session
        self._offsets = dict.fromkeys(range(PARTITIONS), 0)
        self._session_id, self._epoch = 0, 0 if has_session else -1
        self._moved: Iterable[int] = list(self._offsets)

    async def measured(self) -> tuple[float, float]:
        """(KiB, ms of CPU) of a poll: the busy partitions have a new record each time."""
        writer, reader = await Wire.connect(self._process.port), await Wire.connect(self._process.port)
        await writer.create_topic(self._topic, PARTITIONS)
        size, spent_s = 0, 0.0
        await self._poll(reader)  # with a session, too, the first fetch is full
        for _ in range(POLLS):
            for index in range(BUSY):
                await writer.call(produce_request(self._topic, batch(b"v" * 100), partition=index))
            before = cpu_s(self._process)
            size += await self._poll(reader)
            spent_s += cpu_s(self._process) - before
        await writer.close()
        await reader.close()
        return size / POLLS / 1024, spent_s / POLLS * 1000

    async def _poll(self, wire: Wire) -> int:
        """One fetch; the bytes of request and response."""
        request = self._request()
        sent = sum(map(len, encode_request_frame(FETCH, VERSION, 1, "wire", request)))
        number = wire.send(request, VERSION)
        frame = await wire.receive_frame()
        wire.forget(number)
        response = FETCH.decode_response(frame, VERSION, response_body_at(FETCH, VERSION, frame))
        self._take(response)
        return sent + len(frame) + 4

    def _request(self) -> FetchRequest:
        changed = self._moved if self._has_session else self._offsets
        rows = [
            FetchRequestPartition(partition=index, fetch_offset=self._offsets[index], partition_max_bytes=1 << 20)
            for index in changed
        ]
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            isolation_level=0,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[FetchRequestTopic(topic=self._topic, partitions=rows)],
        )

    def _take(self, response: FetchResponse) -> None:
        rows = [row for topic in response.responses for row in topic.partitions]
        self._moved = [row.partition_index for row in rows if row.records]
        for index in self._moved:
            self._offsets[index] += 1
        if self._has_session:
            self._session_id, self._epoch = response.session_id, self._epoch + 1
