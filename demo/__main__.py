"""Stream flights, enrich them in transactions, kill brokers and workers meanwhile, and compare the result with the
file.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
from pathlib import Path

from rich.console import Console
from semel import Admin, NewTopic

from demo.bars import Bars
from demo.brokers import KillTargets
from demo.chaos import Chaos, make_zombie
from demo.client_settings import of_semel
from demo.command import options, run_command
from demo.deployment import deploy
from demo.flights import PARTITIONS, SOURCE, TARGET, airline_of, truth
from demo.page import ConsolePage
from demo.processes import Worker
from demo.report import show_airlines, show_processes, show_topics, verdict
from demo.stream import GROUP, STREAM_S_MIN, audit, read_back, send_all, wait_until_enriched

KILL_S = 5
"""The approximate time of one kill on three brokers. Half of the kills hit brokers, whose roles others must take over.
"""


async def run(arguments: argparse.Namespace, directory: Path, console: Console) -> bool:
    right = truth(arguments.rows)
    total = sum(right.values())
    stream_s = STREAM_S_MIN if arguments.brokers == 1 else max(STREAM_S_MIN, arguments.kills * KILL_S)
    rng = random.Random(arguments.seed)
    logs = directory / "logs"
    logs.mkdir(parents=True)
    logging.basicConfig(filename=logs / "client.log", format="%(asctime)s %(name)s %(message)s")
    targets = KillTargets([SOURCE, TARGET], (GROUP,), ("enrich-1", "enrich-2"))
    served = deploy(arguments.brokers, directory, targets, secure=arguments.secure)
    page = ConsolePage(arguments.console, logs / "console.log")
    running: list[Worker] = []
    bars = Bars(console, total, "acknowledged", "enriched", "read back")
    with bars.show:
        bars.say(f"seed {arguments.seed}: the same seed draws the same kills")
        try:
            bars.say(await served.start())
            page.open(served.address, bars.say, TARGET)
            async with Admin(**of_semel(served.address)) as admin:
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
            await page.close()
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
    run_command(run, options("python -m demo", __doc__, kills=10, of="brokers and workers"))


if __name__ == "__main__":
    main()
