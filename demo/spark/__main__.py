"""Stream a year of flights through two Spark queries, and kill the driver, workers and brokers meanwhile.

`enriched` adds names to each flight. `delays` sums delays by airport and day in event-time windows. At the end every
flight and every window must exist exactly once, and the sums must equal those of the file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from rich.console import Console
from semel import Admin, Consumer, NewTopic, Producer, TopicPartition

from demo.bars import Bars
from demo.brokers import DemoBrokers, KillTargets
from demo.command import options, run_command
from demo.deployment import deploy
from demo.flights import SOURCE, row_of
from demo.page import ConsolePage
from demo.processes import end
from demo.report import RowAudit
from demo.spark.arrivals import PARTITIONS, arrivals, clock_values, truth
from demo.spark.driver import JAVA_OPTIONS, Driver
from demo.spark.report import row_of_json, show_delays, show_topics, summed
from demo.stream import read_back

ENRICHED, DELAYS = "flights-enriched", "delays"
SINKS = ("flights-enriched", "flights-delays")
"""The transaction groups of the sinks, as in `pipeline/flights.toml`."""
STREAM_S = 60.0
TIMEOUT_S = 300.0
"""The longest wait without progress."""
PAUSE_S = (0.3, 3.0)
DURING_WRITES = 0.7
"""The share of the kills that wait until a batch is being written."""
WRITE_S = 15.0
TARGETS = ("driver", "worker", "broker")


class Flow:
    """The producer process of the flights, and a reader that counts the results."""

    def __init__(self, served: DemoBrokers, directory: Path, bars: Bars) -> None:
        self._served, self._directory, self._bars = served, directory, bars
        self._process: asyncio.subprocess.Process | None = None
        self.counts = {ENRICHED: 0, DELAYS: 0}

    async def send(self, rows: int | None, stream_s: float, shares: int) -> None:
        """Start the producer process and wait until it ends. Raises RuntimeError if it did not send all flights."""
        command = ["--bootstrap", self._served.address, "--stream-s", str(stream_s), "--shares", str(shares)]
        command += ["--log", str(self._directory / "producer.log")] + (["--rows", str(rows)] if rows else [])
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "demo.spark.producer",
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._bars.at("stored", json.loads(line)["acknowledged"])
        if await self._process.wait():
            raise RuntimeError(f"the producer failed; see {self._directory / 'producer.log'}")

    async def wait_for_write(self) -> None:
        """Return when records of an uncommitted batch have arrived, or after WRITE_S."""
        async with Consumer(bootstrap_servers=self._served.address) as reader:
            places = [TopicPartition(ENRICHED, n) for n in range(PARTITIONS)]
            before = sum((await reader.end_offsets(places)).values())
            deadline = time.monotonic() + WRITE_S
            while time.monotonic() < deadline:
                if sum((await reader.end_offsets(places)).values()) != before:
                    return
                await asyncio.sleep(0.02)

    def allow_next_share(self) -> None:
        """Allow the producer to send the next share of the flights."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(b"\n")

    async def watch(self) -> None:
        """Count the committed records of both results until it is cancelled."""
        async with Consumer(
            ENRICHED,
            DELAYS,
            bootstrap_servers=self._served.address,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as reader:
            while True:
                for place, records in (await reader.getmany(timeout_ms=200)).items():
                    self.counts[place.topic] += len(records)
                self._bars.at("enriched", self.counts[ENRICHED])
                self._bars.at("windows", self.counts[DELAYS])

    async def stop(self) -> None:
        if self._process is not None:
            await end(self._process)


def kill_order(rng: random.Random, kills: int) -> Iterator[str]:
    """Yield the targets of the kills: each round of three has every target once, in random order."""
    drawn: list[str] = []
    for _ in range(kills):
        drawn = drawn or rng.sample(TARGETS, len(TARGETS))
        yield drawn.pop()


async def kill_all(rng: random.Random, kills: int, served: DemoBrokers, driver: Driver, flow: Flow, bars: Bars) -> None:
    """Kill the targets one after the other, each while the driver is working."""
    numbers = count(1)

    def announce(name: str) -> None:
        bars.say(f"[red]SIGKILL[/] {next(numbers)}: {name}")

    for target in kill_order(rng, kills):
        await asyncio.wait_for(driver.working.wait(), TIMEOUT_S)
        await asyncio.sleep(rng.uniform(*PAUSE_S))  # the seed determines the moment
        if rng.random() < DURING_WRITES:
            await flow.wait_for_write()
        if target == "broker":
            await served.kill_one(rng, announce, bars.say)
        elif target == "worker":
            announce(driver.kill_worker(rng) or "no Python worker was running")
        else:
            announce(f"Spark's driver, after {driver.batches} batches")
            await driver.kill()
        flow.allow_next_share()
    await served.wait_until_recovered()
    await asyncio.wait_for(driver.working.wait(), TIMEOUT_S)


async def until(what: str, total: int, progress: dict[str, int], name: str, driver: Driver) -> None:
    """Wait until the progress reaches its total. Raises RuntimeError after TIMEOUT_S without progress."""
    seen, deadline = -1, 0.0
    while progress[name] < total:
        if driver.failed.done():
            driver.failed.result()
        if progress[name] != seen:
            seen, deadline = progress[name], time.monotonic() + TIMEOUT_S
        if time.monotonic() > deadline:
            raise RuntimeError(f"{seen:,} of {total:,} {what}, no progress for {TIMEOUT_S:g} s")
        await asyncio.sleep(0.1)


async def set_clock(served: DemoBrokers, values: list[bytes]) -> None:
    """Send the clock values: only new records advance a watermark."""
    async with Producer(bootstrap_servers=served.address) as producer:
        for partition, value in enumerate(values):
            await producer.send(SOURCE, value, partition=partition)
        await producer.flush()


async def job(arguments: argparse.Namespace, served: DemoBrokers, directory: Path, bars: Bars, windows: int) -> Driver:
    """Run the driver and the kills until the last window is written and the driver has stopped with status 0."""
    flights = arrivals(arguments.rows)
    driver = Driver(served.address, directory, bars.say)
    flow = Flow(served, directory, bars)
    watching = asyncio.create_task(flow.watch())
    try:
        started = time.monotonic()
        await driver.start()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(flow.send(arguments.rows, arguments.stream_s, arguments.kills + 1))
            await asyncio.wait_for(driver.working.wait(), TIMEOUT_S)
            bars.say(f"Spark's first batches are finished {time.monotonic() - started:.1f} s after its start")
            await kill_all(random.Random(arguments.seed), arguments.kills, served, driver, flow, bars)
        total = len(flights)
        await until("flights enriched", total, flow.counts, ENRICHED, driver)
        await until("flights summed up", total, driver.positions, "delays", driver)
        await set_clock(served, clock_values(max(flight.at for flight in flights)))
        await until("windows", windows, flow.counts, DELAYS, driver)
        status = await driver.stop()
        bars.say(f"SIGTERM to the driver: it finished its batches, status {status}")
        if status:
            raise RuntimeError(f"the driver should have ended with status 0, see {directory / 'spark.log'}")
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await flow.stop()
        await driver.stop()
    return driver


async def audited(data_dir: Path, console: Console) -> bool:
    """Run `semel pipeline audit` over the files of the stopped broker."""
    command = [sys.executable, "-m", "pyspark_semel.pipeline", "audit", str(data_dir), "--json"]
    environment = {**os.environ, "JDK_JAVA_OPTIONS": JAVA_OPTIONS}
    with console.status("semel pipeline audit: every batch in the broker's files"):
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env=environment
        )
        report = json.loads((await process.communicate())[0])
    partitions = report["partitions"]
    sums = [sum(each[name] for each in partitions) for name in ("batches", "commits", "aborts")]
    unended = sum(len(each["open"]) for each in partitions)
    breaches = sum(sum(each["breaches"][0].values()) for each in partitions)
    console.print(
        "semel pipeline audit: {:,} batches, {:,} markers of commits and {:,} of aborts, ".format(*sums)
        + f"{unended} transactions left open, {breaches} breaches.",
        highlight=False,
    )
    return bool(report["is_sound"]) and not unended


async def uncommitted(served: DemoBrokers, topic: str) -> int:
    return len(await read_back(served, topic, "read_uncommitted", None, PARTITIONS))


async def run(arguments: argparse.Namespace, directory: Path, console: Console) -> bool:
    right = truth(arguments.rows)
    total = sum(each.flights for each in right.values())
    logging.basicConfig(filename=directory / "client.log", format="%(asctime)s %(name)s %(message)s")
    targets = KillTargets([SOURCE, DELAYS, ENRICHED], transaction_groups=SINKS)
    served = deploy(arguments.brokers, directory, targets)
    page = ConsolePage(arguments.console, directory / "console.log")
    bars = Bars(console, total, "stored", "enriched")
    bars.add("windows", len(right))
    with bars.show:
        bars.say(f"seed {arguments.seed}: the same seed draws the same kills")
        try:
            bars.say(await served.start())
            page.open(served.address, bars.say, ENRICHED)
            async with Admin(bootstrap_servers=served.address) as admin:
                topics = (SOURCE, ENRICHED, DELAYS)
                await admin.create_topics([NewTopic(name, PARTITIONS, served.replicas) for name in topics])
            driver = await job(arguments, served, directory, bars, len(right))
            bars.say("reading everything back")
            source, enriched = RowAudit(total), RowAudit(total)
            for value in await read_back(served, SOURCE, "read_committed", None, PARTITIONS):
                if not value.startswith(b"-"):
                    source.add(row_of(value))
            for value in await read_back(served, ENRICHED, "read_committed", None, PARTITIONS):
                enriched.add(row_of_json(value))
            delays = await read_back(served, DELAYS, "read_committed", None, PARTITIONS)
            leftovers = {
                ENRICHED: await uncommitted(served, ENRICHED) - enriched.stored,
                DELAYS: await uncommitted(served, DELAYS) - len(delays),
            }
        finally:
            await page.close()
            await served.stop()
    found = summed(delays)
    show_topics(console, [(SOURCE, source), (ENRICHED, enriched)], leftovers)
    is_right = show_delays(console, found, right)
    console.print(
        f"SIGKILLs: {driver.kills} of the driver, {driver.worker_kills} of Python workers, {served.kills} of brokers. "
        f"{driver.batches:,} batches reported; {driver.late_rows:,} rows too late for their window; "
        f"{leftovers[DELAYS]:,} aborted leftovers in {DELAYS}.",
        highlight=False,
    )
    is_sound = served.is_sound(console, [SOURCE, ENRICHED, DELAYS]) and await audited(served.data_dir, console)
    exact = source.exact and enriched.exact and is_right and is_sound
    console.print("[bold green]Every figure is exact.[/]" if exact else "[bold red]Not exact: see the tables.[/]")
    return exact


def main() -> None:
    parser = options("make demo", __doc__, kills=6, of="driver, workers, brokers", secure=False)
    parser.add_argument(
        "--stream-s", type=float, default=STREAM_S, help="duration of the stream in seconds (default: 60)"
    )
    run_command(run, parser)


if __name__ == "__main__":
    main()
