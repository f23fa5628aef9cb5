"""Stream the flights, enrich them in transactions, kill everything on the way, compare with the file."""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
from pathlib import Path
from typing import Literal

from rich.console import Console
from semel import Admin, Consumer, NewTopic, Producer, RecordMetadata, TopicPartition

from demo.bars import Bars
from demo.brokers import Brokers, Watched, brokers
from demo.chaos import Chaos, make_zombie
from demo.command import end_with, options
from demo.flights import PARTITIONS, SOURCE, TARGET, airline_of, flights, row_of, truth
from demo.processes import Worker
from demo.report import Audit, show_airlines, show_processes, show_topics, verdict

Isolation = Literal["read_committed", "read_uncommitted"]

GROUP = "enrich"
WORKERS = 2
PATIENCE_S = 180
PACE_ROWS = 2_000
PACES_MIN = 50
STREAM_S_MIN = 10
"""However few flights are asked for: they arrive over this time, so that whoever is killed or woken has work to do."""
HELD_BACK = 0.75
"""What comes after this part of the flights waits until the zombie has been fenced: it needs something to write."""
STRIKE_S = 5
"""What a kill takes on three brokers, about: half of them are of brokers, from whom others have to take over."""


async def send_all(
    brokers: Brokers, limit: int | None, total: int, stream_s: float, bars: Bars, fenced: asyncio.Event
) -> int:
    """Streams every flight as a live source would, and waits until each is acknowledged. Returns how many.

    The last of them wait for `fenced`.
    """
    pace_rows = max(1, min(PACE_ROWS, total // PACES_MIN))
    acknowledged = 0

    def done(future: asyncio.Future[RecordMetadata]) -> None:
        nonlocal acknowledged
        future.result()  # a lost record ends the demo here
        acknowledged += 1

    sent = 0
    async with Producer(bootstrap_servers=brokers.address, linger_ms=5, compression_type="lz4") as producer:
        for flight in flights(limit):
            if sent == int(HELD_BACK * total):
                await producer.flush()
                bars.at("acknowledged", acknowledged)
                await fenced.wait()
            future = await producer.send(SOURCE, flight.value, flight.key, partition=flight.row % PARTITIONS)
            future.add_done_callback(done)
            sent += 1
            if sent % pace_rows == 0:
                bars.at("acknowledged", acknowledged)
                await asyncio.sleep(
                    stream_s * pace_rows / total
                )  # flights arrive over time, so that the kills meet work
        await producer.flush()
    bars.at("acknowledged", acknowledged)
    if acknowledged != sent:
        raise RuntimeError(f"{sent} sent, {acknowledged} acknowledged")
    return sent


async def wait_until_enriched(
    brokers: Brokers, total: int, workers: list[Worker], bars: Bars, group: str = GROUP
) -> None:
    """Until the group has committed the end of every partition of the source."""
    deadline = time.monotonic() + PATIENCE_S
    places = [TopicPartition(SOURCE, p) for p in range(PARTITIONS)]
    async with Admin(bootstrap_servers=brokers.address) as admin:
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
                raise RuntimeError(f"{reached} of {total} records enriched after {PATIENCE_S} s")
            await asyncio.sleep(0.1)


async def read_back(
    brokers: Brokers, topic: str, isolation: Isolation, bars: Bars | None, partitions: int = PARTITIONS
) -> list[bytes]:
    """Every value of a topic from its first offset, as a reader of this isolation level sees it."""
    values: list[bytes] = []
    async with Consumer(
        bootstrap_servers=brokers.address, auto_offset_reset="earliest", isolation_level=isolation
    ) as reader:
        places = [TopicPartition(topic, p) for p in range(partitions)]
        ends = await reader.end_offsets(places)
        reader.assign(places)
        while any([await reader.position(tp) < ends[tp] for tp in places]):
            for records in (await reader.getmany(timeout_ms=500)).values():
                values += [record.value for record in records if record.value is not None]
            if bars is not None:
                bars.at("read back", len(values))
    return values


def audit(values: list[bytes], sent: int) -> Audit:
    found = Audit(sent)
    for value in values:
        found.saw(row_of(value))
    return found


async def run(arguments: argparse.Namespace, directory: Path, console: Console) -> bool:
    right = truth(arguments.rows)
    total = sum(right.values())
    stream_s = STREAM_S_MIN if arguments.brokers == 1 else max(STREAM_S_MIN, arguments.kills * STRIKE_S)
    rng = random.Random(arguments.seed)
    logs = directory / "logs"
    logs.mkdir(parents=True)
    logging.basicConfig(filename=logs / "client.log", format="%(asctime)s %(name)s %(message)s")
    served = brokers(arguments.brokers, directory, Watched([SOURCE, TARGET], (GROUP,), ("enrich-1", "enrich-2")))
    running: list[Worker] = []
    bars = Bars(console, total, "acknowledged", "enriched", "read back")
    with bars.show:
        bars.say(f"seed {arguments.seed}: the same seed draws the same kills")
        try:
            bars.say(await served.start())
            async with Admin(bootstrap_servers=served.address) as admin:
                await admin.create_topics([NewTopic(name, PARTITIONS, served.replicas) for name in (SOURCE, TARGET)])
            names = ("enrich-1", "enrich-1", "enrich-2")
            zombie, *workers = running = [Worker(served.address, GROUP, name, logs) for name in names]
            fenced = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(send_all(served, arguments.rows, total, stream_s, bars, fenced))
                await zombie.start()
                await workers[1].start()
                await make_zombie(zombie, workers[0], bars.say)
                fenced.set()
                chaos = Chaos(rng, served, workers, bars.say)
                await chaos.run(arguments.kills)
            await wait_until_enriched(served, sending.result(), workers, bars)
            source = audit(await read_back(served, SOURCE, "read_committed", None), total)
            values = await read_back(served, TARGET, "read_committed", bars)
            uncommitted = len(await read_back(served, TARGET, "read_uncommitted", None))
        finally:
            for worker in running:
                await worker.stop()
            await served.stop()
    counted: dict[str, int] = {}
    for value in values:
        counted[airline_of(value)] = counted.get(airline_of(value), 0) + 1
    committed = audit(values, total)
    show_topics(console, source, committed, uncommitted)
    show_processes(console, served.kills, workers, zombie)
    show_airlines(console, counted, right)
    is_sound = served.is_sound(console, [SOURCE, TARGET])
    return verdict(console, source, committed, bool(zombie.fenced), counted == right and is_sound)


def main() -> None:
    end_with(run, options("python -m demo", __doc__, kills=10, of="brokers and workers"))


if __name__ == "__main__":
    main()
