"""EDGE: `make soak`: a broker process under changing work. Exit status 1 if memory, files, tasks or disk keep growing.

Producers, transactional ids, groups and topics are new in each round, and all that they leave expires after
EXPIRE_MINUTES. Each minute a line says what the process holds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from support.processes import BrokerProcess

from soak.gauge import TOLERANCES, GaugeSample, inspected, judge, sample
from soak.inspected_broker import FRAMES, SOCKET
from soak.work import SoakWorkload

console = Console(highlight=False, soft_wrap=True)
PROBLEMS = ('"event":"unexpected_error"', "Traceback (most recent call last)", '"level":"error"')
SHOWN = 12


class InspectedBroker(BrokerProcess):
    module = "soak.inspected_broker"


def settings(expire_s: float) -> dict[str, str]:
    """Settings with which all state of clients expires after `expire_s`; the sweeps run four times as often.

    Offsets expire after whole minutes. Few internal partitions and small segments: each is compacted within the soak.
    """
    expire_ms, check_ms = str(int(expire_s * 1000)), str(int(expire_s * 250))
    return {
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "6000",
        "log.retention.ms": expire_ms,
        "log.retention.check.interval.ms": check_ms,
        "log.roll.ms": check_ms,
        "log.cleaner.backoff.ms": "5000",
        "log.cleaner.delete.retention.ms": expire_ms,
        "producer.id.expiration.ms": expire_ms,
        "producer.id.expiration.check.interval.ms": check_ms,
        "offsets.retention.minutes": str(max(1, round(expire_s / 60))),
        "offsets.retention.check.interval.ms": check_ms,
        "offsets.topic.num.partitions": "4",
        "offsets.topic.segment.bytes": str(256 << 10),
        "transactional.id.expiration.ms": expire_ms,
        "transaction.remove.expired.transaction.cleanup.interval.ms": check_ms,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.segment.bytes": str(256 << 10),
    }


async def main(arguments: argparse.Namespace) -> int:
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    directory = Path(tempfile.mkdtemp(prefix="semel-soak-"))
    os.environ[SOCKET] = str(directory / "inspect")
    if arguments.frames:
        os.environ[FRAMES] = str(arguments.frames)
    broker = InspectedBroker(directory / "data", **settings(arguments.expire_minutes * 60))
    await asyncio.to_thread(broker.start, 30)
    console.print(f"seed {seed}; {arguments.minutes:g} minutes; everything expires after {arguments.expire_minutes:g}")
    try:
        problems = await Soak(broker, directory, seed, arguments).run()
        status = await asyncio.to_thread(broker.stop)
        problems += [f"SIGTERM: exit status {status}"] if status else []
        problems += [f"the broker logged: {line}" for line in broker.log if any(sign in line for sign in PROBLEMS)]
    finally:
        await asyncio.to_thread(broker.kill)
    for problem in problems:
        console.print(problem, style="red", markup=False)
    console.print("[red]does not level off[/]" if problems else "[green]levels off[/]")
    if problems:
        (directory / "broker.log").write_text("\n".join(broker.log) + "\n")
        console.print(f"data and log are in {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if problems else 0


class Soak:
    def __init__(self, broker: BrokerProcess, directory: Path, seed: int, arguments: argparse.Namespace) -> None:
        self._broker, self._directory, self._arguments = broker, directory, arguments
        self._work = SoakWorkload(broker.address, seed, arguments.pause)
        self._samples: list[GaugeSample] = []
        self._objects: Counter[str] = Counter()

    async def run(self) -> list[str]:
        """Run rounds and sample until the time is over. Returns the problems."""
        await self._work.prepare()
        stop = asyncio.Event()
        work = asyncio.create_task(self._work.run(stop))
        looks = max(6, round(self._arguments.minutes * 60 / self._arguments.every))
        began = time.monotonic()
        for look in range(1, looks + 1):
            wait = began + self._arguments.minutes * 60 * look / looks - time.monotonic()
            done, _ = await asyncio.wait((work,), timeout=max(0.0, wait))
            if done:
                break  # a round failed
            await self._look((time.monotonic() - began) / 60)
        stop.set()
        (outcome,) = await asyncio.gather(work, return_exceptions=True)
        if isinstance(outcome, BaseExceptionGroup):
            return [f"a round failed: {type(error).__name__}: {error}" for error in outcome.exceptions]
        console.print(", ".join(f"{count} {kind}" for kind, count in sorted(self._work.counts.items())))
        return judge(self._samples)

    async def _look(self, minute: float) -> None:
        found = await asyncio.to_thread(inspected, self._directory / "inspect")
        taken = sample(self._broker.pid, self._directory / "data", found["tasks"])
        self._samples.append(taken)
        console.print(f"{minute:6.1f} min  " + "  ".join(f"{name} {getattr(taken, name):.6g}" for name in TOLERANCES))
        if self._arguments.objects:
            self._tell_objects(found)

    def _tell_objects(self, found: dict[str, Any]) -> None:
        """The types whose number has grown most since the last look, and the largest allocations."""
        objects = Counter(found["objects"])
        grown = [(kind, count - self._objects[kind]) for kind, count in objects.items()]
        grown = sorted(((kind, more) for kind, more in grown if more > 0), key=lambda each: -each[1])[:SHOWN]
        console.print("    " + ", ".join(f"{kind} +{more} = {objects[kind]}" for kind, more in grown), markup=False)
        self._objects = objects
        for size, count, place in found.get("allocations", [])[:SHOWN]:
            console.print(f"    {size >> 10} KiB in {count}: {place}", markup=False)
        (self._directory / "last-look.json").write_text(json.dumps(found, indent=1))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=45.0, help="length of the soak (default: 45)")
    parser.add_argument("--expire-minutes", type=float, default=5.0, help="life of what clients leave (default: 5)")
    parser.add_argument("--every", type=float, default=60.0, help="seconds between two lines (default: 60)")
    parser.add_argument("--pause", type=float, default=0.5, help="mean pause after a round, in s (default: 0.5)")
    parser.add_argument("--seed", type=int, help="seed of the work (default: a random one)")
    parser.add_argument("--objects", action="store_true", help="print which types of objects have grown")
    parser.add_argument("--frames", type=int, default=0, help="print the largest allocations, with so many frames")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(parse_arguments())))
