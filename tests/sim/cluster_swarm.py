"""Draws the faults of a run with several brokers: those of a single broker for each, and those between brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from sim import swarm
from sim.cluster import STORE
from sim.cluster_faults import CLUSTER_FAULTS
from sim.faults import WHICHEVER, Fault
from sim.holds import API_KEYS_OF

AIMED = {
    "kill some": 3,
    "power loss of some": 6,
    "kill by turns": 3,
    "power loss by turns": 4,
    "cut peers": 3,
    "store down": 2,
    "store paused": 1,
}
"""Kinds that may wait for a request or a moment, with their weights."""
AIMED_SHARE = 0.5
ACROSS = ("cut", "reset", "slow link")
"""Faults in the network of a client. Half of them are about one broker, the others about all."""


def draw(rng: Random, roles: Mapping[str, str], brokers: Sequence[str], until_ms: int, *, fsync: bool) -> list[Fault]:
    """The faults of one run in order of time; sometimes none. `roles`: the role of each client host."""
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
    if roles and rng.random() < AIMED_SHARE:
        faults += _draw_aimed(rng, roles, brokers, until_ms, fsync=fsync)
    return sorted(faults, key=lambda fault: fault.at_ms)


def _draw_aimed(
    rng: Random, roles: Mapping[str, str], brokers: Sequence[str], until_ms: int, *, fsync: bool
) -> Iterator[Fault]:
    """Faults of one kind that each wait for a request of a client, or for a moment of a broker."""
    names = [name for name in AIMED if fsync or not CLUSTER_FAULTS[name].needs_fsync]
    (name,) = rng.choices(names, [AIMED[name] for name in names])
    kind = CLUSTER_FAULTS[name]
    mean_ms = rng.uniform(1_000, 8_000)
    at_ms = rng.expovariate(1 / mean_ms)
    while at_ms < until_ms:
        fault = Fault(
            at_ms=int(at_ms),
            kind=name,
            host=STORE if kind.meets == "store" else WHICHEVER,
            lasting_ms=swarm.lasting(rng, *kind.lasting_ms),
            args=kind.args(rng, ""),
            aim_ms=round(rng.choice((0.0, 0.5, 3.0, 10.0, 60.0)) * (0.2 + rng.random()), 3),
        )
        role = roles[rng.choice(list(roles))]
        moments = swarm.MOMENTS_OF.get(role, {})
        if moments and kind.meets != "store" and rng.random() < 0.5:
            (fault.moment,) = rng.choices(list(moments), list(moments.values()))
        else:
            fault.aim = rng.choice(API_KEYS_OF[role])
        yield fault
        at_ms += fault.lasting_ms + rng.expovariate(1 / mean_ms)


def _placed(rng: Random, fault: Fault, brokers: Sequence[str]) -> Fault:
    """Choose a broker for a fault that waits for nothing, and the brokers for a fault in a client's network."""
    if fault.host == WHICHEVER and not fault.waits:
        fault.host = rng.choice(brokers)
    if fault.kind in ACROSS:
        fault.args["broker"] = rng.choice((-1, rng.randrange(len(brokers))))
    return fault
