"""Plans drawn for one safeguard: what it is for hardly ever comes about by chance, so here it is brought about.

Each takes a plan as drawn from its seed, and keeps its workloads; the faults are its own, at times that the seed says.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from sim.cluster import NAMES_OF
from sim.disk import DiskWeather
from sim.faults import Fault
from sim.network import NetworkWeather
from sim.plan import RunPlan

BROKERS = NAMES_OF[3]
ONE, ALL, STORE = 0, 1, 2
"""Whom `cut peers` and `slow peers` are about: one of the others, all of them, the store."""


def calm(plan: RunPlan, faults: Iterator[Fault], **settings: Any) -> RunPlan:
    """The plan in fair weather, with these faults and no others. Settings with `_` for `.`"""
    plan.network, plan.disk, plan.finale = NetworkWeather(), DiskWeather(), "none"
    plan.broker |= {name.replace("_", "."): value for name, value in settings.items()}
    plan.faults = sorted(faults, key=lambda fault: fault.at_ms)
    return plan


def cut(at_ms: float, host: str, whom: int, lasting_ms: float, other: int = 0) -> Fault:
    args = {"whom": whom, "other": other, "ways": 2}
    return Fault(at_ms=int(at_ms), kind="cut peers", host=host, lasting_ms=int(lasting_ms), args=args)


def slow(
    at_ms: float, host: str, whom: int, lasting_ms: float, by_ms: float, other: int = 0, *, answers: bool = True
) -> Fault:
    """What comes to `host`, or else what it sends, takes longer by `by_ms`."""
    args = {"whom": whom, "other": other, "by_ms": by_ms, "answers": int(answers)}
    return Fault(at_ms=int(at_ms), kind="slow peers", host=host, lasting_ms=int(lasting_ms), args=args)


def alone(plan: RunPlan) -> RunPlan:
    """A leader loses sight of both others, and keeps its session."""
    rng = Random(f"alone/{plan.seed}")
    faults = (cut(at_ms, rng.choice(BROKERS), ALL, 4_000) for at_ms in range(1_000, 25_000, 6_000))
    return calm(plan, faults, broker_session_timeout_ms=6_000, replica_lag_time_max_ms=1_000)


def started_anew(plan: RunPlan) -> RunPlan:
    """A follower loses its power, with what the system had not written yet, is back at once, and cannot say so to one
    of its leaders, which remembers what it had."""
    rng = Random(f"started anew/{plan.seed}")

    def faults() -> Iterator[Fault]:
        for at_ms in range(1_000, 33_000, 8_000):
            follower, other = rng.choice(BROKERS), rng.randrange(2)
            at = at_ms + rng.randrange(1_000)
            yield Fault(at_ms=at, kind="power loss", host=follower, lasting_ms=200)
            yield cut(at, follower, ONE, 4_000, other)

    return calm(
        plan, faults(), durability="os", broker_session_timeout_ms=6_000, replica_lag_time_max_ms=3_000,
    )  # fmt: skip


def late_marker(plan: RunPlan) -> RunPlan:
    """Markers are on their way to one broker for a long time, and who has sent them dies meanwhile."""
    rng = Random(f"late marker/{plan.seed}")

    def faults() -> Iterator[Fault]:
        for at_ms in range(500, 33_000, 9_000):
            coordinator, other = rng.choice(BROKERS), rng.randrange(2)
            yield slow(at_ms, coordinator, ONE, 8_000, rng.choice((3_500, 5_000)), other, answers=False)
            yield Fault(
                at_ms=at_ms + rng.randrange(1_500, 2_500),
                kind="kill broker",
                host=coordinator,
                lasting_ms=rng.choice((50, 4_000)),
                moment=rng.choice(("PrepareCommit", "PrepareAbort")),
                aim_ms=round(rng.uniform(5, 60), 3),
            )

    return calm(
        plan,
        faults(),
        transaction_version=1,
        broker_session_timeout_ms=2_000,
        replica_lag_time_max_ms=1_000,
        transaction_state_log_num_partitions=3,
    )


def late_news(plan: RunPlan) -> RunPlan:
    """Now this broker hears of everything late, now that one: of who leads from the store, of records from others."""
    rng = Random(f"late news/{plan.seed}")

    def faults() -> Iterator[Fault]:
        for at_ms in range(500, 40_000, 4_000):
            host = rng.choice(BROKERS)
            yield slow(at_ms, host, STORE, 3_500, rng.choice((400, 1_500, 2_500)))
            if rng.random() < 0.5:
                yield slow(at_ms, host, ONE, 3_000, rng.choice((100, 600, 1_200)), rng.randrange(2))

    return calm(
        plan,
        faults(),
        broker_session_timeout_ms=6_000,
        replica_lag_time_max_ms=10_000,
        leader_imbalance_check_interval_seconds=1,
    )
