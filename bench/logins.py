"""Logins with SASL: how many a second one connection at a time, and what a storm of them does to another producer."""

from __future__ import annotations

import asyncio
import functools
import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from broker.sasl_login import PASSWORD, ScramLogin, log_in
from broker.wire import Wire, batch
from semel_broker.security.offline_users import create_user
from semel_protocol.scram import salted_password
from support.processes import BrokerProcess

from bench.figure import Figure, at_most, per_second
from bench.measure import broker, cpu_s

LOGINS = 1_000
IN_PROGRESS = 200
"""Connections that log in at once; above 256 of one address the broker refuses further ones."""
USER = "alice"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
PRODUCE_S = 4.0


def logins(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measures logins a second, and the 99th percentile of a produce with and without 1,000 logins beside it."""
    asyncio.run(create_user(str(directory), USER, PASSWORD))
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.plain.without.tls.enable": "true",
    }
    figures: list[Figure] = []
    with broker(directory, durability="os", **settings) as process:
        for mechanism in MECHANISMS:
            rates, costs = [], []
            for _ in range(runs):
                before = cpu_s(process)
                rates.append(_storm(process, mechanism)["per_s"])
                costs.append((cpu_s(process) - before) / LOGINS * 1000)
            figures += [
                per_second(f"logins with {mechanism}", statistics.median(rates)),
                at_most("  broker CPU for each", statistics.median(costs), "ms"),
            ]
        alone = statistics.median(_p99_ms(process, "") for _ in range(runs))
        figures.append(at_most("produce p99 of another client, no logins", alone, "ms"))
        for mechanism in MECHANISMS:
            beside = statistics.median(_p99_ms(process, mechanism) for _ in range(runs))
            figures.append(at_most(f"  while {LOGINS:,} logins with {mechanism} arrive", beside, "ms"))
    return figures


def _storm(process: BrokerProcess, mechanism: str) -> dict[str, float]:
    """1,000 logins by another process."""
    arguments = json.dumps({"port": process.ports["SASL_PLAINTEXT"], "mechanism": mechanism})
    done = subprocess.run([sys.executable, "-m", "bench.logins", arguments], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _p99_ms(process: BrokerProcess, mechanism: str) -> float:
    """The 99th percentile of produces of one record, one after the other, while logins run; "" for none."""
    storm = threading.Thread(target=_storm, args=(process, mechanism)) if mechanism else None

    async def produce() -> list[float]:
        wire = await Wire.connect(process.ports["PLAINTEXT"])
        record, taken = batch(b"v" * 100), []
        await wire.produce("latency", record)
        await asyncio.sleep(0.1)
        if storm is not None:
            storm.start()
        until = time.perf_counter() + PRODUCE_S
        while time.perf_counter() < until if storm is None else storm.is_alive():
            began = time.perf_counter()
            await wire.produce("latency", record)
            taken.append((time.perf_counter() - began) * 1000)
        await wire.close()
        return taken

    taken = asyncio.run(produce())
    if storm is not None:
        storm.join()
    return statistics.quantiles(taken, n=100)[98]


async def _log_in_often(port: int, mechanism: str) -> dict[str, float]:
    """The worker: logins of which some are in progress at once, each on a connection of its own."""
    ScramLogin.stretch = staticmethod(functools.cache(salted_password))  # measure the broker, not PBKDF2 of the client
    gate = asyncio.Semaphore(IN_PROGRESS)

    async def one() -> None:
        async with gate:
            wire = await Wire.connect(port)
            answer: Any = await log_in(wire, USER, PASSWORD, mechanism)
            assert answer.error_code == 0, answer
            await wire.close()

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(LOGINS)))
    return {"per_s": LOGINS / (time.perf_counter() - began)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_log_in_often(**json.loads(sys.argv[1])))))
