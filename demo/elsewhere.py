"""Run the same job on running brokers, for example those of docker-compose.yml.

The demo does not kill brokers; kill them by hand meanwhile. It kills workers and turns one into a zombie.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from semel import Admin, NewTopic
from semel.errors import UnknownTopicOrPartitionError

from demo.bars import Bars
from demo.chaos import PAUSE_S, make_zombie
from demo.client_settings import of_semel
from demo.flights import PARTITIONS, SOURCE, TARGET, airline_of, truth
from demo.processes import DemoBroker, Worker
from demo.report import show_airlines, show_processes, show_topics, verdict
from demo.stream import GROUP, STREAM_S_MIN, audit, read_back, send_all, wait_until_enriched


class ExternalBrokers(DemoBroker):
    """Brokers that the demo does not start or stop."""

    def __init__(self, addresses: str) -> None:
        super().__init__(Path("elsewhere"))
        self._addresses = addresses

    @property
    def address(self) -> str:
        return self._addresses


async def new_topics(brokers: DemoBroker, replicas: int) -> None:
    """Create the two topics of the demo, and delete those of an earlier run."""
    async with Admin(**of_semel(brokers.address)) as admin:
        for name in (SOURCE, TARGET):
            try:
                await admin.delete_topics([name])
            except UnknownTopicOrPartitionError:
                pass  # the first run
        await admin.create_topics([NewTopic(name, PARTITIONS, replicas) for name in (SOURCE, TARGET)])


async def kill_now_and_then(rng: random.Random, workers: list[Worker], kills: int, bars: Bars) -> None:
    for i in range(1, kills + 1):
        await asyncio.sleep(rng.uniform(*PAUSE_S))  # the seed determines the moment
        worker = rng.choice(workers)
        await worker.kill()
        bars.say(f"[red]SIGKILL[/] {i:2}: {worker.transactional_id}")
        await worker.start()


async def run(arguments: argparse.Namespace, logs: Path, console: Console) -> bool:
    right = truth(arguments.rows)
    total = sum(right.values())
    brokers = ExternalBrokers(arguments.bootstrap_server)
    group = f"{GROUP}-{arguments.seed}"
    zombie, *workers = (Worker(brokers.address, group, name, logs) for name in ("enrich-1", "enrich-1", "enrich-2"))
    bars = Bars(console, total, "acknowledged", "enriched", "read back")
    with bars.show:
        bars.say(f"brokers {brokers.address}, seed {arguments.seed}")
        await new_topics(brokers, arguments.replication_factor)
        try:
            fenced = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(send_all(brokers, arguments.rows, total, STREAM_S_MIN, bars, fenced))
                await zombie.start()
                await workers[1].start()
                await make_zombie(zombie, workers[0], bars.say)
                fenced.set()
                await kill_now_and_then(random.Random(arguments.seed), workers, arguments.kills, bars)
            await wait_until_enriched(brokers, sending.result(), workers, bars, group)
            source = audit(await read_back(brokers, SOURCE, "read_committed", None), total)
            values = await read_back(brokers, TARGET, "read_committed", bars)
            uncommitted = len(await read_back(brokers, TARGET, "read_uncommitted", None))
        finally:
            for worker in (zombie, *workers):
                await worker.stop()
    counted: dict[str, int] = {}
    for value in values:
        counted[airline_of(value)] = counted.get(airline_of(value), 0) + 1
    committed = audit(values, total)
    show_topics(console, source, committed, uncommitted)
    show_processes(console, 0, workers, zombie)
    show_airlines(console, counted, right)
    return verdict(console, source, committed, bool(zombie.fenced), counted == right)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.elsewhere", description=__doc__)
    parser.add_argument("--bootstrap-server", required=True, help="brokers as HOST:PORT,HOST:PORT,...")
    parser.add_argument("--replication-factor", type=int, default=3, help="replicas of the topics (default: 3)")
    parser.add_argument("--rows", type=int, help="only the first ROWS flights (default: all 336,776)")
    parser.add_argument("--kills", type=int, default=5, help="SIGKILLs of workers (default: 5)")
    parser.add_argument("--seed", type=int, help="seed of the kills (default: random, and printed)")
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = random.SystemRandom().randrange(10_000)
    with tempfile.TemporaryDirectory(prefix="semel-demo-") as temporary:
        exact = asyncio.run(run(arguments, Path(temporary), Console()))
    sys.exit(0 if exact else 1)


if __name__ == "__main__":
    main()
