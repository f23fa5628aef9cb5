"""Measures clusters: the cost of replication, the time without a leader, and the cost of idle partitions."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

from support.three import EtcdAndThreeBrokers, three

from tools.bench.figure import Figure, at_most, per_second, ratio
from tools.bench.measure import broker, cpu_s, rss_mib, work

REPLICATED_RATIO = 0.4
LEASES_MS = (6_000, 2_000)
OVER_LEASE_S = 1
RESTART_P99_S = 1
IDLE_PARTITIONS = 1_000
IDLE_SHARE = 0.05
IDLE_S = 20
SETTLE_S = 5
LEADERS = 1_000
LEADERS_S = 5
PROBE_S = 0.02
"""The interval of a probe's records; their acknowledgements show when a leader was available."""


def replicated(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure idempotent produce with three replicas, acks=all, at least two in sync, and on a single broker."""
    some = min(records, 500_000)
    alone, together = [], []
    for run in range(runs):
        with broker(directory / f"alone-{run}", **{"num.partitions": "3"}) as process:
            done = work("librdkafka_produce", address=process.address, records=some, partitions=3)
            alone.append(done["records_per_s"])
        with three(directory / f"three-{run}") as cluster:
            cluster.create("bench", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
            done = work("librdkafka_produce", address=cluster.addresses, records=some, partitions=3)
            together.append(done["records_per_s"])
    single, replicas = statistics.median(alone), statistics.median(together)
    return [
        per_second("produce to a single broker (fsync), 3 partitions", single),
        per_second("produce to three brokers, 3 replicas, acks=all", replicas),
        ratio("  of the single broker's", replicas / single, REPLICATED_RATIO),
    ]


def failover(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure a killed leader under load, with the default and a short session timeout, and a clean restart of a
    leader.
    """
    figures = []
    for lease_ms in LEASES_MS:
        gaps = []
        for run in range(runs):
            with three(directory / f"{lease_ms}-{run}", **{"broker.session.timeout.ms": str(lease_ms)}) as cluster:
                cluster.create("probe", [[2, 1, 3]])
                found = probe(cluster, cluster.brokers[2].kill, lease_ms / 1000 + 6)
                gaps.append(found["gap_s"])
        figures.append(
            at_most(
                f"no writable leader after SIGKILL of it, session timeout {lease_ms / 1000:g} s",
                statistics.median(gaps),
                "s",
                lease_ms / 1000 + OVER_LEASE_S,
            )
        )
    with three(directory / "restart") as cluster:
        cluster.create("probe", [[2, 1, 3]])

        def restart() -> None:
            cluster.brokers[2].stop()
            cluster.brokers[2].start()

        found = probe(cluster, restart, 8)
    name = "produce latency while a leader is restarted in good order, p99"
    figures.append(at_most(name, found["p99_s"], "s", RESTART_P99_S))
    figures.append(at_most("  the longest", found["max_s"], "s"))
    return figures


def probe(cluster: EtcdAndThreeBrokers, disturb: Callable[[], object], after_s: float) -> dict[str, float]:
    """Send one record every `PROBE_S` and call `disturb` meanwhile; return the effect on the producer."""
    timer = threading.Timer(3, disturb)
    timer.start()
    found = work("probe", address=cluster.addresses, topic="probe", seconds=3 + after_s, every_s=PROBE_S)
    timer.join()
    return found


def idle(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure brokers with many idle replicated partitions."""
    with three(directory) as cluster:
        cluster.create("idle", [[1 + i % 3, 1 + (i + 1) % 3, 1 + (i + 2) % 3] for i in range(IDLE_PARTITIONS)])
        time.sleep(SETTLE_S)  # work that the creation of the topics leaves
        before = {node_id: cpu_s(process) for node_id, process in cluster.brokers.items()}
        time.sleep(IDLE_S)
        shares = [(cpu_s(process) - before[node_id]) / IDLE_S for node_id, process in cluster.brokers.items()]
        memory = max(rss_mib(process) for process in cluster.brokers.values())
    return [
        at_most(
            f"{IDLE_PARTITIONS:,} partitions with 3 replicas, idle: CPU of the busiest broker",
            100 * max(shares),
            "% of a core",
            100 * IDLE_SHARE,
            1,
        ),
        at_most("  its memory", memory, "MiB", digits=0),
    ]


def many_leaders(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure the failover of a broker that leads many partitions."""
    lease_s = 2.0
    with three(directory, **{"broker.session.timeout.ms": str(int(lease_s * 1000))}) as cluster:
        cluster.create("many", [[2, 1 + i % 2 * 2, 3 - i % 2 * 2] for i in range(LEADERS)])
        cluster.brokers[2].kill()
        took = cluster.wait("many", lambda partition: partition.leader in (1, 3))
    return [
        at_most(f"{LEADERS:,} partitions have a new leader after SIGKILL, session timeout {lease_s:g} s", took, "s"),
        at_most("  beyond the session timeout", max(0.0, took - lease_s), "s", LEADERS_S),
    ]
