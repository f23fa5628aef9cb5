"""The sections of single-broker figures. Each section starts its processes and compares within the same run."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from semel_protocol.api import APIS
from semel_protocol.headers import encode_request_frame
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from support.processes import BrokerProcess

from tools.bench.figure import Figure, at_most, per_second, ratio
from tools.bench.measure import broker, cpu_s, peak_rss_mib, work

PRODUCE_OS_RATIO = 0.95
PRODUCE_FSYNC_RATIO = 0.9
CPU_S_PER_MILLION = 0.5
RSS_MIB = 120
CONSUME_PER_S = 1_500_000
ROUND_TRIP_MS = {"os": 0.5, "fsync": 1.0}
START_S = 0.5
RECOVERY_S = 2
OWN_PRODUCE_RATIO = 1.5
OWN_CONSUME_RATIO = 1.0


def median_of(runs: int, measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(runs))


def answers(process: BrokerProcess) -> None:
    """Send one ApiVersions request and read its response."""
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    with socket.create_connection(("127.0.0.1", process.port), 5) as connection:
        connection.sendall(b"".join(encode_request_frame(APIS[18], 3, 1, "bench", request)))
        assert connection.recv(4096), "the broker closed the connection"


def timed_start(process: BrokerProcess) -> float:
    started = time.perf_counter()
    process.start(timeout_s=120)
    answers(process)
    return time.perf_counter() - started


def start(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure from starting the process (interpreter included) to the first answered ApiVersions."""
    taken = []
    for run in range(max(runs, 3)):
        process = BrokerProcess(directory / str(run))
        taken.append(timed_start(process))
        process.stop()
    return [at_most("start to first answered ApiVersions", statistics.median(taken), "s", START_S)]


def produce(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure idempotent produce by librdkafka; its own mock broker (C, in memory, no disk) is the ceiling."""
    rates: dict[str, list[float]] = {"mock": [], "os": [], "fsync": []}
    cpu, rss = [], []
    for run in range(runs):
        rates["mock"].append(work("librdkafka_produce", address=None, records=records)["records_per_s"])
        for durability in ("os", "fsync"):
            with broker(directory / f"{durability}-{run}", durability) as process:
                before = cpu_s(process)
                done = work("librdkafka_produce", address=process.address, records=records)
                rates[durability].append(done["records_per_s"])
                if durability == "fsync":
                    cpu.append((cpu_s(process) - before) * 1e6 / records)
                    rss.append(peak_rss_mib(process))
    mock, os_rate, fsync_rate = (statistics.median(rates[name]) for name in ("mock", "os", "fsync"))
    return [
        per_second("produce, librdkafka's mock broker", mock),
        per_second("produce, durability=os", os_rate),
        ratio("  of the mock's", os_rate / mock, PRODUCE_OS_RATIO),
        per_second("produce, durability=fsync", fsync_rate),
        ratio("  of the mock's", fsync_rate / mock, PRODUCE_FSYNC_RATIO),
        at_most("broker CPU per million records (fsync)", statistics.median(cpu), "s", CPU_S_PER_MILLION),
        at_most("broker peak RSS after it (fsync)", max(rss), "MiB", RSS_MIB, digits=0),
    ]


def consume(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure consume by confluent-kafka (librdkafka), from the first offset of one partition, with connecting."""
    records *= 2
    with broker(directory) as process:
        work("librdkafka_produce", address=process.address, records=records)
        before = cpu_s(process)
        value = median_of(
            runs, lambda: work("librdkafka_consume", address=process.address, records=records)["records_per_s"]
        )
        spent = (cpu_s(process) - before) / runs * 1e6 / records
    return [
        per_second("consume, confluent-kafka", value, CONSUME_PER_S),
        at_most("broker CPU per million records read", spent, "s"),
    ]


def round_trip(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure a single record from produce to its arrival at a consumer of the same process."""
    figures = []
    for durability in ("os", "fsync"):
        with broker(directory / durability, durability) as process:
            done = work("librdkafka_round_trip", address=process.address, times=2000)
        name = f"produce-to-consume round trip, {durability}"
        figures.append(at_most(f"{name}, p50", done["p50_ms"], "ms", ROUND_TRIP_MS[durability]))
        figures.append(at_most(f"{name}, p99", done["p99_ms"], "ms"))
    return figures


def recovery(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure a log of 1 GiB after SIGKILL, from starting the process to the first answer."""
    size = 1 << 30
    per_run = 2_000_000
    process = BrokerProcess(directory, **{"num.partitions": "1", "log.segment.bytes": str(size)}).start()
    log = directory / "bench-0"
    while sum(path.stat().st_size for path in log.glob("*.log")) < size if log.exists() else True:
        work("librdkafka_produce", address=process.address, records=per_run)
    stored = sum(path.stat().st_size for path in log.glob("*.log")) / (1 << 30)
    process.kill()
    taken = timed_start(process)
    process.stop()
    return [at_most(f"start after SIGKILL with a log of {stored:.1f} GiB", taken, "s", RECOVERY_S)]


def client(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure semel's asyncio client against aiokafka (record code in C), in Python loops, with one broker each."""
    rates: dict[str, dict[str, list[float]]] = {"produce": {}, "consume": {}}
    some = min(records, 500_000)
    for run in range(runs):
        for module in ("aiokafka", "semel.aiokafka"):
            with broker(directory / f"{module}-{run}") as process:
                for name in ("produce", "consume"):
                    done = work(f"asyncio_{name}", module=module, address=process.address, records=some)
                    rates[name].setdefault(module, []).append(done["records_per_s"])
    figures = []
    for name, least in (("produce", OWN_PRODUCE_RATIO), ("consume", OWN_CONSUME_RATIO)):
        theirs, ours = (statistics.median(rates[name][module]) for module in ("aiokafka", "semel.aiokafka"))
        figures.append(per_second(f"{name}, aiokafka", theirs))
        figures.append(per_second(f"{name}, semel", ours))
        figures.append(ratio("  of aiokafka's", ours / theirs, least))
    return figures
