"""A round on three brokers, as data drawn from a seed: settings, workers and faults. PURE."""

from __future__ import annotations

from random import Random
from typing import Any

from faults.plan import GAP_S, ROUND_S, TOPICS, PlannedFault, RoundPlan, draw_pipelines, draw_workers
from faults.worker import WorkerPlan

BROKERS = 3
LEASE_S = 2.0
SERIAL = (
    "kill-broker",
    "kill-all",
    "terminate-broker",
    "pause-broker",
    "restart-etcd",
    "pause-etcd",
    "rolling-restart",
)
"""Faults that the next one waits for; the others overlap."""
NEEDS_NAMESPACES = ("cut", "isolate", "cut-clients")
ROLES = ("leader", "leader", "transactions", "group", "controller", "anybody")


def draw_cluster(seed: int, *, namespaces: bool, duration_s: float | None = None) -> RoundPlan:
    """The round of a seed. `namespaces`: whether the network can be cut on this machine."""
    rng = Random(f"{seed} cluster")
    duration_s = rng.uniform(*ROUND_S) if duration_s is None else duration_s
    workers = draw_workers(rng)
    kinds = [kind for kind in KINDS if rng.random() < 0.5 and (namespaces or kind not in NEEDS_NAMESPACES)]
    settings = {
        "durability": rng.choice(("fsync", "os")),
        "transaction.version": rng.choice(("1", "2", "2")),
        "broker.session.timeout.ms": str(int(LEASE_S * 1000)),
        "replica.lag.time.max.ms": rng.choice(("2000", "10000")),
        "leader.imbalance.check.interval.seconds": rng.choice(("5", "300")),
        "group.min.session.timeout.ms": "100",
        "group.initial.rebalance.delay.ms": "200",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "transaction.state.log.num.partitions": "4",
        "offsets.topic.num.partitions": "4",
        "log.segment.bytes": rng.choice(("16384", "262144", "1073741824")),
        "log.index.interval.bytes": rng.choice(("64", "4096")),
    }
    return RoundPlan(
        seed=seed,
        duration_s=duration_s,
        settings=settings,
        workers=workers,
        topics=TOPICS,
        pipelines=draw_pipelines(workers),
        faults=list(_faults(rng, kinds or ["kill-broker"], workers, duration_s)),
        brokers=BROKERS,
    )


def _faults(rng: Random, kinds: list[str], workers: list[WorkerPlan], duration_s: float) -> Any:
    at_s = 2.0
    while at_s < duration_s:
        after_s = rng.uniform(*GAP_S)
        fault = PlannedFault(kind=(kind := rng.choice(kinds)), after_s=after_s, args=KINDS[kind](rng, workers))
        yield fault
        at_s += after_s + (TAKES_S.get(kind, 0.0) + fault.args.get("for_s", 0.0) if kind in SERIAL else 0.0)


TAKES_S = {"rolling-restart": 15.0, "kill-all": 3.0, "kill-broker": 1.0, "terminate-broker": 2.0}
"""The approximate time of a fault, besides the time that is drawn for it."""


def _away_s(rng: Random) -> float:
    """The time before a restart: none, shorter than the lease, or longer."""
    return rng.choice((0.0, rng.uniform(0.2, LEASE_S), rng.uniform(LEASE_S, 2 * LEASE_S)))


def _pause_s(rng: Random) -> float:
    """The length of a pause: short, about one lease, or two to three leases."""
    return rng.choice((rng.uniform(0.1, 1), rng.uniform(0.8, 1.3) * LEASE_S, rng.uniform(2, 3) * LEASE_S))


def _target(rng: Random) -> dict[str, Any]:
    """A broker, chosen by its role when the fault happens. `number` chooses if several brokers have the role."""
    return {"office": rng.choice(ROLES), "number": rng.randrange(1 << 16)}


def _ends(rng: Random) -> list[str]:
    """The two services between which the network is cut."""
    return rng.sample(["etcd", *(f"broker-{number}" for number in range(1, BROKERS + 1))], 2)


KINDS: dict[str, Any] = {
    "kill-broker": lambda rng, workers: {**_target(rng), "for_s": _away_s(rng)},
    "kill-all": lambda rng, workers: {"for_s": rng.uniform(0, 1)},
    "terminate-broker": lambda rng, workers: {**_target(rng), "for_s": _away_s(rng)},
    "pause-broker": lambda rng, workers: {**_target(rng), "for_s": _pause_s(rng)},
    "restart-etcd": lambda rng, workers: {"clean": rng.random() < 0.5, "for_s": _away_s(rng)},
    "pause-etcd": lambda rng, workers: {"for_s": _pause_s(rng)},
    "rolling-restart": lambda rng, workers: {},
    "cut": lambda rng, workers: {"ends": _ends(rng), "one_way": rng.random() < 0.4, "for_s": _pause_s(rng)},
    "isolate": lambda rng, workers: {**_target(rng), "for_s": _pause_s(rng)},
    "cut-clients": lambda rng, workers: {
        **_target(rng), "way": rng.choice(("requests", "answers", "both")), "for_s": _pause_s(rng)
    },
    "kill-worker": lambda rng, workers: {"whom": rng.choice(workers).name},
    "pause-worker": lambda rng, workers: {
        "whom": rng.choice(workers).name, "for_s": _pause_s(rng), "replaced": rng.random() < 0.5
    },
}  # fmt: skip
"""Each kind of fault, and how its arguments are drawn."""
