"""Stream flights to one or three brokers, kill a broker twice, count in a consumer group of two, and compare with the
file.
"""

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
from demo.brokers import DemoBrokers, KillTargets
from demo.client_settings import of_semel
from demo.command import options, run_command
from demo.counting.processes import Counter
from demo.counting.report import show
from demo.counting.totals import Total, parse, truth
from demo.deployment import deploy
from demo.flights import PARTITIONS, SOURCE, flights
from demo.page import ConsolePage
from demo.report import RowAudit

COUNTERS = 2
GROUP = "delays"
TIMEOUT_S = 120


async def send_all(brokers: DemoBrokers, limit: int | None, kill_at: list[int], rng: random.Random, bars: Bars) -> int:
    """Send every flight; a broker is killed at the rows in `kill_at`. Returns how many were sent and acknowledged."""
    acknowledged = 0

    def done(future: asyncio.Future[RecordMetadata]) -> None:
        nonlocal acknowledged
        future.result()  # a lost record ends the demo here
        acknowledged += 1

    restarts: list[asyncio.Task[None]] = []
    sent = 0
    async with Producer(**of_semel(brokers.address), linger_ms=5, compression_type="lz4") as producer:
        for flight in flights(limit):
            if kill_at and flight.row == kill_at[0]:
                kill_at.pop(0)
                restarts.append(asyncio.create_task(kill_one(brokers, rng, bars, flight.row)))
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


async def kill_one(brokers: DemoBrokers, rng: random.Random, bars: Bars, row: int) -> None:
    def announce(name: str) -> None:
        bars.say(
            f"[red]SIGKILL[/] of {'the ' * (name == 'broker')}{name}, after row {row:,} was passed to the producer"
        )

    await brokers.kill_one(rng, announce, bars.say)
    await brokers.wait_until_recovered()


async def wait_until_counted(counters: list[Counter], end_offsets: dict[int, int], bars: Bars) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        reached = {partition: offset for counter in counters for partition, offset in counter.reached.items()}
        bars.at("counted", sum(reached.values()))
        if reached == end_offsets:
            return
        if any(counter.failed for counter in counters):
            raise RuntimeError("a counter ended; see counter.log")
        if time.monotonic() > deadline:
            raise RuntimeError(f"counted up to {reached}, expected {end_offsets}, after {TIMEOUT_S} s")
        await asyncio.sleep(0.05)


async def ends(brokers: DemoBrokers) -> dict[int, int]:
    async with Consumer(**of_semel(brokers.address)) as consumer:
        places = [TopicPartition(SOURCE, p) for p in range(PARTITIONS)]
        return {tp.partition: offset for tp, offset in (await consumer.end_offsets(places)).items()}


async def read_back(brokers: DemoBrokers, sent: int, bars: Bars) -> RowAudit:
    audit = RowAudit(sent)
    expected = sum((await ends(brokers)).values())
    async with Consumer(SOURCE, **of_semel(brokers.address), auto_offset_reset="earliest") as consumer:
        while audit.stored < expected:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    audit.add(parse(record.value)[0])
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
    served = deploy(arguments.brokers, directory, KillTargets([SOURCE], (GROUP,)), secure=arguments.secure)
    page = ConsolePage(arguments.console, directory / "console.log")
    counters: list[Counter] = []
    bars = Bars(console, total, "sent", "acknowledged", "counted", "read back")
    with bars.show:
        bars.say(f"seed {arguments.seed}: the same seed draws the same kills")
        try:
            bars.say(await served.start())
            page.open(served.address, bars.say, SOURCE)
            async with Admin(**of_semel(served.address)) as admin:
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
            await page.close()
            await served.stop()
    is_sound = served.is_sound(console, [SOURCE])
    return show(console, audit, collect(tallies), right, served.kills) and is_sound


def main() -> None:
    run_command(run, options("python -m demo.counting", __doc__, kills=2, of="brokers"))


if __name__ == "__main__":
    main()
