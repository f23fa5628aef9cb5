"""Sends the flights, waits until the workers have enriched them, and reads topics back: stages that demos share."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from semel import Admin, Consumer, Producer, RecordMetadata, TopicPartition

from demo.bars import Bars
from demo.brokers import DemoBrokers
from demo.client_settings import of_semel
from demo.flights import PARTITIONS, SOURCE, flights, row_of
from demo.processes import Worker
from demo.report import RowAudit

Isolation = Literal["read_committed", "read_uncommitted"]

GROUP = "enrich"
ENRICH_TIMEOUT_S = 180
BATCH_ROWS_MAX = 2_000
BATCHES_MIN = 50
STREAM_S_MIN = 10
"""The flights arrive over at least this time, so that a process has work to do when it is killed or continued."""
UNHELD_SHARE = 0.75
"""The share of the flights that is sent before the zombie is fenced; the rest waits, so that the zombie has records to
write.
"""


async def send_all(
    brokers: DemoBrokers, limit: int | None, total: int, stream_s: float, bars: Bars, fenced: asyncio.Event
) -> int:
    """Send every flight at a steady rate, and wait until each is acknowledged. Returns the count.

    The flights after UNHELD_SHARE wait for `fenced`.
    """
    batch_rows = max(1, min(BATCH_ROWS_MAX, total // BATCHES_MIN))
    acknowledged = 0

    def done(future: asyncio.Future[RecordMetadata]) -> None:
        nonlocal acknowledged
        future.result()  # a lost record ends the demo here
        acknowledged += 1

    sent = 0
    async with Producer(**of_semel(brokers.address), linger_ms=5, compression_type="lz4") as producer:
        for flight in flights(limit):
            if sent == int(UNHELD_SHARE * total):
                await producer.flush()
                bars.at("acknowledged", acknowledged)
                await fenced.wait()
            future = await producer.send(SOURCE, flight.value, flight.key, partition=flight.row % PARTITIONS)
            future.add_done_callback(done)
            sent += 1
            if sent % batch_rows == 0:
                bars.at("acknowledged", acknowledged)
                await asyncio.sleep(
                    stream_s * batch_rows / total
                )  # flights arrive over time, so that processes have work when they are killed
        await producer.flush()
    bars.at("acknowledged", acknowledged)
    if acknowledged != sent:
        raise RuntimeError(f"{sent} sent, {acknowledged} acknowledged")
    return sent


async def wait_until_enriched(
    brokers: DemoBrokers, total: int, workers: list[Worker], bars: Bars, group: str = GROUP
) -> None:
    """Wait until the group has committed the end of every source partition. Raises RuntimeError if a worker fails or
    at the timeout.
    """
    deadline = time.monotonic() + ENRICH_TIMEOUT_S
    places = [TopicPartition(SOURCE, p) for p in range(PARTITIONS)]
    async with Admin(**of_semel(brokers.address)) as admin:
        while True:
            committed = await admin.list_consumer_group_offsets(group)
            reached = sum(committed[tp].offset for tp in places if tp in committed)
            bars.at("enriched", reached)
            if reached == total:
                return
            for worker in workers:
                if worker.failed:
                    raise RuntimeError(f"{worker.transactional_id} ended: {worker.fenced or 'see its log'}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{reached} of {total} records enriched after {ENRICH_TIMEOUT_S} s")
            await asyncio.sleep(0.1)


async def read_back(
    brokers: DemoBrokers, topic: str, isolation: Isolation, bars: Bars | None, partitions: int = PARTITIONS
) -> list[bytes]:
    """Return every value of a topic from its first offset, at this isolation level."""
    values: list[bytes] = []
    async with Consumer(**of_semel(brokers.address), auto_offset_reset="earliest", isolation_level=isolation) as reader:
        places = [TopicPartition(topic, p) for p in range(partitions)]
        ends = await reader.end_offsets(places)
        reader.assign(places)
        while any([await reader.position(tp) < ends[tp] for tp in places]):
            for records in (await reader.getmany(timeout_ms=500)).values():
                values += [record.value for record in records if record.value is not None]
            if bars is not None:
                bars.at("read back", len(values))
    return values


def audit(values: list[bytes], sent: int) -> RowAudit:
    found = RowAudit(sent)
    for value in values:
        found.add(row_of(value))
    return found
