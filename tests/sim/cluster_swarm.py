"""The faults of a run with several brokers: each meets what a single one does, and there is more to go wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from sim import swarm
from sim.cluster import STORE
from sim.cluster_faults import CLUSTER_FAULTS
from sim.faults import WHICHEVER, Fault

ACROSS = ("cut", "reset", "slow link")
"""Faults of a client's network; half of them are about one broker, the others about all."""


def draw(rng: Random, roles: Mapping[str, str], brokers: Sequence[str], until_ms: int, *, fsync: bool) -> list[Fault]:
    """The faults of one run in order of time; sometimes none. `roles` of the clients, by their names."""
    faults = [_placed(rng, fault, brokers) for fault in swarm.draw(rng, roles, WHICHEVER, until_ms, fsync=fsync)]
    if rng.random() < 0.08:
        return faults
    share = rng.choice((0.15, 0.3, 0.5))
    for name, kind in CLUSTER_FAULTS.items():
        if rng.random() >= share or (kind.needs_fsync and not fsync):
            continue
        mean_ms = rng.uniform(*kind.every_ms)
        at_ms = rng.expovariate(1 / mean_ms)
        while at_ms < until_ms:
            host = STORE if kind.meets == "store" else rng.choice(brokers)
            lasting_ms = swarm.lasting(rng, *kind.lasting_ms)
            args = kind.args(rng, "")
            faults.append(Fault(at_ms=int(at_ms), kind=name, host=host, lasting_ms=lasting_ms, args=args))
            at_ms += lasting_ms + rng.expovariate(1 / mean_ms)
    return sorted(faults, key=lambda fault: fault.at_ms)


def _placed(rng: Random, fault: Fault, brokers: Sequence[str]) -> Fault:
    """What waits for something comes where that is; all else to one of them."""
    if fault.host == WHICHEVER and not fault.waits:
        fault.host = rng.choice(brokers)
    if fault.kind in ACROSS:
        fault.args["broker"] = rng.choice((-1, rng.randrange(len(brokers))))
    return fault
