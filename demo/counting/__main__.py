"""Start a broker, stream the flights, kill the broker twice, count in a group of two, compare with the file."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from semel import Admin, Consumer, NewTopic, Producer, RecordMetadata, TopicPartition

from demo.bars import Bars
from demo.counting.processes import Counter
from demo.counting.report import show
from demo.counting.totals import Total, parse, truth
from demo.flights import PARTITIONS, SOURCE, flights
from demo.processes import Broker
from demo.report import Audit

COUNTERS = 2
GROUP = "delays"
DOWN_S = 0.5
PATIENCE_S = 120


async def send_all(broker: Broker, limit: int | None, kill_at: list[int], bars: Bars) -> int:
    """Streams every flight; the broker dies at the rows in `kill_at`. Returns how many were sent and acknowledged."""
    acknowledged = 0

    def done(future: asyncio.Future[RecordMetadata]) -> None:
        nonlocal acknowledged
        future.result()  # a lost record ends the demo here
        acknowledged += 1

    restarts: list[asyncio.Task[None]] = []
    sent = 0
    async with Producer(bootstrap_servers=broker.address, linger_ms=5, compression_type="lz4") as producer:
        for flight in flights(limit):
            if kill_at and flight.row == kill_at[0]:
                kill_at.pop(0)
                restarts.append(asyncio.create_task(kill_and_restart(broker, bars, flight.row)))
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


async def kill_and_restart(broker: Broker, bars: Bars, row: int) -> None:
    async with broker.changing:
        await broker.kill()
        bars.say(f"[red]SIGKILL[/] of the broker after row {row:,} was handed to the producer; back in {DOWN_S} s")
        await asyncio.sleep(DOWN_S)  # how long it stays down
        started = time.monotonic()
        await broker.start()
        bars.say(f"[green]restarted[/] on the same data, ready after {time.monotonic() - started:.2f} s")


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


async def ends(broker: Broker) -> dict[int, int]:
    async with Consumer(bootstrap_servers=broker.address) as consumer:
        places = [TopicPartition(SOURCE, p) for p in range(PARTITIONS)]
        return {tp.partition: offset for tp, offset in (await consumer.end_offsets(places)).items()}


async def read_back(broker: Broker, sent: int, bars: Bars) -> Audit:
    audit = Audit(sent)
    expected = sum((await ends(broker)).values())
    async with Consumer(SOURCE, bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
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
    broker = Broker(directory / "broker")
    counters: list[Counter] = []
    bars = Bars(console, total, "sent", "acknowledged", "counted", "read back")
    with bars.show:
        try:
            await broker.start()
            bars.say(f"broker on {broker.address}, data in {broker.directory}")
            async with Admin(bootstrap_servers=broker.address) as admin:
                await admin.create_topics([NewTopic(SOURCE, PARTITIONS, 1)])
            counters = [Counter(broker.address, GROUP, tallies) for _ in range(COUNTERS)]
            for counter in counters:
                await counter.start()
            sent = await send_all(broker, arguments.rows, kill_at, bars)
            await wait_until_counted(counters, await ends(broker), bars)
            audit = await read_back(broker, sent, bars)
        finally:
            for counter in counters:
                await counter.stop()
            await broker.stop()
    return show(console, audit, collect(tallies), right, broker.kills)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.counting", description=__doc__)
    parser.add_argument("--rows", type=int, help="only the first ROWS flights (default: all 336,776)")
    parser.add_argument("--kills", type=int, default=2, help="how often the broker is killed (default: 2)")
    parser.add_argument("--seed", type=int, default=2013, help="draws the moments of the kills (default: 2013)")
    parser.add_argument("--data-dir", type=Path, help="keep broker data and log here (default: a temporary folder)")
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="semel-demo-") as temporary:
        directory = arguments.data_dir or Path(temporary) / "demo"
        if directory.exists() and any(directory.iterdir()):
            parser.error(f"{directory} is not empty; name a new folder")
        exact = asyncio.run(run(arguments, directory, console))
    sys.exit(0 if exact else 1)


if __name__ == "__main__":
    main()
