"""Measures the effect of abusive clients on others: the longest wait of a bystander, and the broker's memory and CPU
time.

The broker, the bystander and all attackers together are one process each. Everything runs on loopback, with a bound on
count and time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from support.processes import BrokerProcess

from tools.bench.attackers import ATTACKS
from tools.bench.figure import Figure, at_most
from tools.bench.measure import broker, cpu_s, measured_by, rss_mib

SETTINGS = {"auto.create.topics.enable": "false", "log.cleaner.backoff.ms": "600000"}
WAIT_S = 2.0
MEMORY_MIB = 800.0
"""The memory bounds of requests (512 MiB) and responses (256 MiB), and a margin."""
SETTLED_S = 1.0
POLL_S = 0.02


def attacks(directory: Path, records: int, runs: int) -> list[Figure]:
    """Run each attack on a fresh broker, and once no attack for comparison."""
    found = []
    for number, name in enumerate(ATTACKS):
        with broker(directory / str(number), **SETTINGS) as process:
            measured_by("tools.bench.attackers", "prepare", address=process.address)
            found += attacked(name, process)
    return found


def attacked(name: str, process: BrokerProcess) -> list[Figure]:
    """Return the figures of one attack."""
    before_mib, before_s = rss_mib(process), cpu_s(process)
    most_mib = before_mib
    with running("bystander", address=process.address) as bystander:
        time.sleep(SETTLED_S)
        with running("attack", address=process.address, name=name) as attackers:
            while attackers.poll() is None:
                most_mib = max(most_mib, rss_mib(process))
                time.sleep(POLL_S)
            assert attackers.returncode == 0, attackers.stderr and attackers.stderr.read()
        time.sleep(SETTLED_S)
        most_mib = max(most_mib, rss_mib(process))
        out, err = bystander.communicate("stop\n", timeout=600)
        assert bystander.returncode == 0, err
    waited = json.loads(out.splitlines()[-1])
    return [
        at_most(f"{name}: longest wait of {waited['count']} requests", waited["longest_s"], "s", WAIT_S),
        at_most("  the broker's memory, above what it was", most_mib - before_mib, "MiB", MEMORY_MIB, digits=0),
        at_most("  the broker's CPU time", cpu_s(process) - before_s, "s", digits=1),
    ]


@contextmanager
def running(what: str, **arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a process of `bench.attackers`, and kill it at the end if it still runs."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-m", "tools.bench.attackers", what, json.dumps(arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                psutil.Process(process.pid).kill()
