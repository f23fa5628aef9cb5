"""Runs measurement workers, and reads the CPU time and memory of a broker process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from support.processes import BrokerProcess

TIMEOUT_S = 900
CPUCLOCK_SCHED = 2
"""Linux: the low bits of the id of a process's CPU clock; see clock_getcpuclockid(3)."""


def work(name: str, /, **arguments: Any) -> dict[str, float]:
    """Run one worker of `bench.clients` in a fresh process. Raises RuntimeError like `measured_by`."""
    return measured_by("tools.bench.clients", name, **arguments)


def measured_by(module: str, /, *words: str, **arguments: Any) -> dict[str, float]:
    """Run `module` as the main program of a process, with `arguments` as JSON after `words`; return its last output
    line.

    Spark's workers below it find the same modules. Raises RuntimeError with the process's standard error.
    """
    command = [sys.executable, "-m", module, *words, json.dumps(arguments)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, env=environ)
    if done.returncode != 0:
        raise RuntimeError(f"{module} {' '.join(words)} {arguments}: {done.stderr[-3000:]}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


@contextmanager
def broker(directory: Path, durability: str = "fsync", **settings: str) -> Iterator[BrokerProcess]:
    """Run a fresh broker; topics are created on first use with one partition."""
    process = BrokerProcess(directory, durability=durability, **{"num.partitions": "1", **settings}).start()
    try:
        yield process
    finally:
        process.stop()


def cpu_s(process: BrokerProcess) -> float:
    """Return the user and system seconds of all threads of the broker so far, from the process's CPU clock.

    The times in /proc count ticks of 10 ms, which says nothing about a round of 20 ms; this clock counts nanoseconds.
    """
    return time.clock_gettime(~process.pid << 3 | CPUCLOCK_SCHED)


def user_and_system_s(process: BrokerProcess) -> tuple[float, float]:
    """Return the user and the system seconds of the broker so far, in ticks of 10 ms: for long times only."""
    times = psutil.Process(process.pid).cpu_times()
    return times.user, times.system


def rss_mib(process: BrokerProcess) -> float:
    """Return the broker's current memory."""
    return float(psutil.Process(process.pid).memory_info().rss) / (1 << 20)


def peak_rss_mib(process: BrokerProcess) -> float:
    """Return the broker's peak memory (VmHWM)."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this kernel does not report VmHWM")
