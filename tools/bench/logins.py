"""Logins with SASL: how many a second one connection at a time, and what a storm of them does to another producer."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.sasl_login import PASSWORD, ScramLogin, log_in
from broker.wire import Wire, batch
from semel_broker.security.offline_users import create_user
from semel_protocol.scram import salted_password
from support.processes import BrokerProcess

from tools.bench.figure import Figure, at_most, per_second
from tools.bench.measure import broker, cpu_s

LOGINS = 1_000
IN_PROGRESS = 200
"""Connections that log in at once; above 256 of one address the broker refuses further ones."""
USER = "alice"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
PRODUCE_S = 4.0
BESIDE_RATIO = 2.0
STORMS = 20
"""One storm is over in a fraction of a second: the percentile is that of the produces beside all of them."""


def logins(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure logins a second, and the 99th percentile of a produce with and without 1,000 logins beside it."""
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
                storm, before = Storm(process, mechanism), cpu_s(process)
                rates.append(storm.run())
                storm.close()
                costs.append((cpu_s(process) - before) / LOGINS * 1000)
            figures += [
                per_second(f"logins with {mechanism}", statistics.median(rates)),
                at_most("  broker CPU for each", statistics.median(costs), "ms"),
            ]
        alone = _p99_ms(process, "")
        figures.append(at_most("produce p99 of another client, no logins", alone, "ms"))
        for mechanism in MECHANISMS:
            beside = _p99_ms(process, mechanism)
            what = f"  while {LOGINS:,} logins with {mechanism} arrive"
            figures.append(at_most(what, beside, "ms", BESIDE_RATIO * alone, digits=2))
    return figures


class Storm:
    """1,000 logins by another process, which has started and waits for the signal to begin.

    It has the lowest priority (SCHED_IDLE): clients that log in are on other machines, and do not take the producer's
    processor.
    """

    def __init__(self, process: BrokerProcess, mechanism: str) -> None:
        arguments = json.dumps({"port": process.ports["SASL_PLAINTEXT"], "mechanism": mechanism})
        command = [sys.executable, "-m", "tools.bench.logins", arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError("the process that logs in did not start")

    def run(self) -> float:
        """Logins a second."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("begin\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def _p99_ms(process: BrokerProcess, mechanism: str) -> float:
    """The 99th percentile of produces of one record, one after the other, while logins arrive; "": without logins."""
    taken: list[float] = []
    if not mechanism:
        until = time.perf_counter() + PRODUCE_S
        asyncio.run(_produce(process, taken, lambda: time.perf_counter() < until))
    for _ in range(STORMS if mechanism else 0):
        storm = Storm(process, mechanism)
        thread = threading.Thread(target=storm.run)
        asyncio.run(_produce(process, taken, thread.is_alive, thread.start))
        thread.join()
        storm.close()
    return statistics.quantiles(taken, n=100)[98]


async def _produce(
    process: BrokerProcess, taken: list[float], goes_on: Callable[[], bool], begin: Callable[[], None] = lambda: None
) -> None:
    wire = await Wire.connect(process.ports["PLAINTEXT"])
    record = batch(b"v" * 100)
    for _ in range(100):  # the connection and the topic exist before the first produce that counts
        await wire.produce("latency", record)
    begin()
    while goes_on():
        began = time.perf_counter()
        await wire.produce("latency", record)
        taken.append((time.perf_counter() - began) * 1000)
    await wire.close()


async def _log_in_often(port: int, mechanism: str) -> None:
    """The worker: logins of which some are in progress at once, each on a connection of its own."""
    ScramLogin.stretch = staticmethod(functools.cache(salted_password))  # measure the broker, not PBKDF2 of the client
    gate = asyncio.Semaphore(IN_PROGRESS)

    async def one() -> None:
        async with gate:
            wire = await Wire.connect(port)
            answer: Any = await log_in(wire, USER, PASSWORD, mechanism)
            assert answer.error_code == 0, answer
            await wire.close()

    await one()  # computes the client's part of PBKDF2
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(LOGINS)))
    print(LOGINS / (time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    asyncio.run(_log_in_often(**json.loads(sys.argv[1])))
