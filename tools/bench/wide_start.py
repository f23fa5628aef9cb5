"""Measures the start of a broker with 10,000 written partitions, after a clean stop and after SIGKILL, and the stop.

`python -m tools.bench.wide_start` prints the time from the start of the process until it listens, and that of each end.
The first SIGKILL comes right after the first records of all partitions. CPU times tell more where others use the
machine.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from semel_protocol.api import APIS
from support.processes import BrokerProcess
from support.wide_requests import WRITTEN, Wide, WideRequest

from tools.bench.many import RawClient
from tools.bench.measure import cpu_s, rss_mib

STOP_S = 120
ENDS = ("SIGKILL", "a clean stop", "a clean stop", "SIGKILL")


def send(process: BrokerProcess, wide: Wide, asked: WideRequest) -> None:
    answer = RawClient(process).request(asked.key, asked.version, asked.make(wide), APIS[asked.key].response)
    asked.check(answer)


def started(process: BrokerProcess, name: str, size: int) -> None:
    began_s = time.perf_counter()
    process.start(timeout_s=STOP_S)
    took_s = time.perf_counter() - began_s
    print(f"{name:28} {size:7,} {took_s:7.2f} s {cpu_s(process):7.2f} s CPU {rss_mib(process):7.0f} MiB", flush=True)


def measure(directory: Path, size: int, durability: str) -> None:
    """Print a line for each start."""
    process = BrokerProcess(directory, durability=durability)
    started(process, "a new data directory", size)
    wide = Wide(size, int(time.time() * 1000))
    for asked in WRITTEN:
        send(process, wide, asked)
    for how in ENDS:
        end(process, how)
        started(process, f"start after {how}", size)
    for asked in WRITTEN[1:]:
        send(process, wide, asked)
    end(process, "a clean stop after a record in each partition")


def end(process: BrokerProcess, how: str) -> None:
    began_s, children_began_s = time.perf_counter(), children_cpu_s()
    before_s = cpu_s(process)
    process.kill() if how == "SIGKILL" else process.stop(STOP_S)
    spent_s = children_cpu_s() - children_began_s - before_s
    print(f"  {how}: {time.perf_counter() - began_s:.2f} s, {max(0.0, spent_s):.2f} s CPU", flush=True)


def children_cpu_s() -> float:
    """CPU seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--durability", default="fsync")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        measure(Path(directory) / "data", given.size, given.durability)


if __name__ == "__main__":
    main()
