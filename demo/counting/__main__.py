"""Start a broker or three, stream the flights, kill a broker twice, count in a group of two, compare with the file."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import time
from pathlib import Path

from rich.console import Console
from semel import Admin, Consumer, NewTopic, Producer, RecordMetadata, TopicPartition

from demo.bars import Bars
from demo.brokers import Brokers, Watched
from demo.command import end_with, options
from demo.counting.processes import Counter
from demo.counting.report import show
from demo.counting.totals import Total, parse, truth
from demo.deployment import deploy
from demo.flights import PARTITIONS, SOURCE, flights
from demo.report import Audit

COUNTERS = 2
GROUP = "delays"
PATIENCE_S = 120


async def send_all(brokers: Brokers, limit: int | None, kill_at: list[int], rng: random.Random, bars: Bars) -> int:
    """Streams every flight; a broker dies at the rows in `kill_at`. Returns how many were sent and acknowledged."""
    acknowledged = 0

    def done(future: asyncio.Future[RecordMetadata]) -> None:
        nonlocal acknowledged
        future.result()  # a lost record ends the demo here
        acknowledged += 1

    restarts: list[asyncio.Task[None]] = []
    sent = 0
    async with Producer(bootstrap_servers=brokers.address, linger_ms=5, compression_type="lz4") as producer:
        for flight in flights(limit):
            if kill_at and flight.row == kill_at[0]:
                kill_at.pop(0)
                restarts.append(asyncio.create_task(strike(brokers, rng, bars, flight.row)))
            future = await producer.send(SOURCE, flight.value, flight.key)
            future.add_done_callback(done)
            sent += 1
            if sent % 500 == 0:
                bars.at("sent", sent)
                bars.at("acknowledged", acknowledged)
                await asyncio.sleep(0)
        bars.at("sent", sent)
        await producer.flush()
    bars.at("acknowledged", acknowledged)
    await asyncio.gather(*restarts)
    if acknowledged != sent:
        raise RuntimeError(f"{sent} sent, {acknowledged} acknowledged")
    return sent


async def strike(brokers: Brokers, rng: random.Random, bars: Bars, row: int) -> None:
    def tell(who: str) -> None:
        bars.say(f"[red]SIGKILL[/] of {'the ' * (who == 'broker')}{who}, after row {row:,} was handed to the producer")

    await brokers.strike(rng, tell, bars.say)
    await brokers.settled()


async def wait_until_counted(counters: list[Counter], end_offsets: dict[int, int], bars: Bars) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        reached = {partition: offset for counter in counters for partition, offset in counter.reached.items()}
        bars.at("counted", sum(reached.values()))
        if reached == end_offsets:
            return
        if any(counter.failed for counter in counters):
            raise RuntimeError("a counter died")
        if time.monotonic() > deadline:
            raise RuntimeError(f"counted up to {reached}, expected {end_offsets}, after {PATIENCE_S} s")
        await asyncio.sleep(0.05)


async def ends(brokers: Brokers) -> dict[int, int]:
    async with Consumer(bootstrap_servers=brokers.address) as consumer:
        places = [TopicPartition(SOURCE, p) for p in range(PARTITIONS)]
        return {tp.partition: offset for tp, offset in (await consumer.end_offsets(places)).items()}


async def read_back(brokers: Brokers, sent: int, bars: Bars) -> Audit:
    audit = Audit(sent)
    expected = sum((await ends(brokers)).values())
    async with Consumer(SOURCE, bootstrap_servers=brokers.address, auto_offset_reset="earliest") as consumer:
        while audit.stored < expected:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    audit.saw(parse(record.value)[0])
            bars.at("read back", audit.stored)
    return audit


def collect(directory: Path) -> dict[str, Total]:
    totals: dict[str, Total] = {}
    for path in sorted(directory.glob("*.json")):
        for carrier, (count, delay) in json.loads(path.read_text())["totals"].items():
            before = totals.get(carrier, Total())
            totals[carrier] = Total(before.flights + count, before.delay_min + delay)
    return totals


async def run(arguments: argparse.Namespace, directory: Path, console: Console) -> bool:
    right = truth(arguments.rows)
    total = sum(t.flights for t in right.values())
    rng = random.Random(arguments.seed)
    span = total // (arguments.kills + 1)
    kill_at = [span * (i + 1) + rng.randrange(-span // 4, span // 4 + 1) for i in range(arguments.kills)]
    tallies = directory / "tallies"
    tallies.mkdir(parents=True)
    logging.basicConfig(filename=directory / "client.log", format="%(asctime)s %(name)s %(message)s")
    served = deploy(arguments.brokers, directory, Watched([SOURCE], (GROUP,)))
    counters: list[Counter] = []
    bars = Bars(console, total, "sent", "acknowledged", "counted", "read back")
    with bars.show:
        bars.say(f"seed {arguments.seed}: the same seed draws the same kills")
        try:
            bars.say(await served.start())
            async with Admin(bootstrap_servers=served.address) as admin:
                await admin.create_topics([NewTopic(SOURCE, PARTITIONS, served.replicas)])
            counters = [Counter(served.address, GROUP, tallies) for _ in range(COUNTERS)]
            for counter in counters:
                await counter.start()
            sent = await send_all(served, arguments.rows, kill_at, rng, bars)
            await wait_until_counted(counters, await ends(served), bars)
            audit = await read_back(served, sent, bars)
        finally:
            for counter in counters:
                await counter.stop()
            await served.stop()
    is_sound = served.is_sound(console, [SOURCE])
    return show(console, audit, collect(tallies), right, served.kills) and is_sound


def main() -> None:
    end_with(run, options("python -m demo.counting", __doc__, kills=2, of="brokers"))


if __name__ == "__main__":
    main()
