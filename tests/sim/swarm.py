"""Draws the faults of a run from its seed.

Swarm testing: the seed also decides which kinds of faults are on and how often they occur. Runs with two kinds at high
rates find errors that runs with a few faults of each kind do not. In half of the runs some faults wait for a request,
and in half some wait for a moment of the broker. A fault at a random time mostly meets an idle broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from sim.faults import DISK_FAULTS, FAULTS, KINDS, OPENING_FAULTS, RIGHTS_FAULTS, Fault
from sim.holds import API_KEYS_OF
from sim.moments import EPOCH, GENERATION, MARKER, OFFSETS, SERVES, SNAPSHOT, STEPS, SWAP

AIMED = {
    "kill broker": 3,
    "power loss": 4,
    "terminate broker": 1,
    "pause broker": 2,
    "kill amid changes": 3,
    "power loss amid changes": 4,
    "kill client": 4,
    "pause client": 4,
    "cut": 2,
    "reset": 3,
    "failing disk": 1,
    "full disk": 1,
}
"""Kinds that may wait for a request, with their weights. At a random time a fault mostly meets no request in progress.
"""
AT_MOMENTS = {
    "kill broker": 2,
    "power loss": 4,
    "kill amid changes": 4,
    "power loss amid changes": 6,
    "terminate broker": 1,
    "pause broker": 1,
}
"""Kinds that may wait for a moment of the broker, with their weights."""
_DECISIONS = {
    "Empty": 2,
    "Ongoing": 3,
    "PrepareCommit": 5,
    "PrepareAbort": 3,
    "CompleteCommit": 2,
    "CompleteAbort": 1,
    MARKER: 4,
}
MOMENTS_OF: Mapping[str, Mapping[str, int]] = {
    "transactor": _DECISIONS,
    "worker": {**_DECISIONS, GENERATION: 3, OFFSETS: 4},
    "epoch-worker": {**_DECISIONS, EPOCH: 4, OFFSETS: 4},
    "member": {GENERATION: 3, OFFSETS: 3},
    "driver": {**dict.fromkeys(STEPS, 5), "PrepareCommit": 4, "CompleteCommit": 2, MARKER: 4},
    "tasker": _DECISIONS,
    "subscriber": {EPOCH: 5, OFFSETS: 2},
    "renewal-reader": {GENERATION: 1, EPOCH: 2, OFFSETS: 3},
}
"""The moments that clients of a role cause, with their weights."""
AT_ALL_TIMES = {SERVES: 4, SNAPSHOT: 3, SWAP: 3}
"""The moments that occur without clients, with their weights."""


def draw(rng: Random, roles: Mapping[str, str], broker: str, until_ms: int, *, fsync: bool) -> list[Fault]:
    """The faults of one run in order of time; sometimes none. `roles`: the role of each client host."""
    if rng.random() < 0.08:
        return []
    clients = list(roles)
    share = rng.choice((0.15, 0.3, 0.5))
    hosts = {"client": clients, "broker": [broker], "any": [*clients, broker]}
    faults = []
    for name, kind in FAULTS.items():
        if rng.random() >= share or (kind.needs_fsync and not fsync) or not hosts[kind.meets]:
            continue
        mean_ms = rng.uniform(*kind.every_ms)
        at_ms = rng.expovariate(1 / mean_ms)
        while at_ms < until_ms:
            faults.append(_fault(rng, name, rng.choice(hosts[kind.meets]), int(at_ms), roles))
            at_ms += faults[-1].lasting_ms + rng.expovariate(1 / mean_ms)
    if rng.random() < 0.5:
        faults += _draw_aimed(rng, roles, broker, until_ms, fsync=fsync)
    if rng.random() < 0.5:
        faults += _draw_at_moments(rng, roles, broker, until_ms, fsync=fsync)
    if rng.random() < 0.2:
        skews = {name: int(rng.gauss(0, 10_000)) for name in hosts["any"]}
        faults += [Fault(at_ms=0, kind="clock", host=name, args={"by_ms": skew}) for name, skew in skews.items()]
    return sorted(faults, key=lambda fault: fault.at_ms)


def draw_revocations(rng: Random, roles: Mapping[str, str], until_ms: int) -> Iterator[Fault]:
    """Rights that are taken from clients and given back."""
    if not roles:
        return
    kind = RIGHTS_FAULTS["revoke"]
    mean_ms = rng.uniform(*kind.every_ms)
    at_ms = rng.expovariate(1 / mean_ms)
    while at_ms < until_ms:
        host = rng.choice(list(roles))
        lasting_ms = lasting(rng, *kind.lasting_ms)
        args = kind.args(rng, roles[host])
        yield Fault(at_ms=int(at_ms), kind="revoke", host=host, lasting_ms=lasting_ms, args=args)
        at_ms += rng.expovariate(1 / mean_ms)


def draw_slow_disks(rng: Random, brokers: Sequence[str], until_ms: int) -> Iterator[Fault]:
    """Disks whose syncs take long for a while, and some that hang. Each broker has a disk of its own."""
    for broker in brokers:
        for name, kind in DISK_FAULTS.items():
            mean_ms = rng.uniform(*kind.every_ms)
            at_ms = rng.expovariate(1 / mean_ms)
            while at_ms < until_ms:
                fault = _fault(rng, name, broker, int(at_ms), {})
                yield fault
                at_ms += fault.lasting_ms + rng.expovariate(1 / mean_ms)


def draw_openings(rng: Random, broker: str, until_ms: int, *, fsync: bool) -> Iterator[Fault]:
    """Faults that end the broker, and its next start while that opens the logs that it left out before it listened."""
    first = ("kill broker", "kill amid changes", "terminate broker", "damage")
    then = tuple(name for name in AT_MOMENTS if fsync or not FAULTS[name].needs_fsync)
    mean_ms = rng.uniform(2_000, 10_000)
    has_limit = rng.random() < 0.5
    at_ms = rng.expovariate(1 / mean_ms)
    while at_ms < until_ms:
        yield _fault(rng, rng.choice((*first, "power loss") if fsync else first), broker, int(at_ms), {})
        if rng.random() < 0.6:
            fault = _fault(rng, rng.choice(then), broker, int(at_ms), {})
            fault.moment, fault.aim_ms = SERVES, round(rng.choice((0.0, 1.0, 10.0, 100.0, 1_000.0)) * rng.random(), 3)
            yield fault
        if has_limit and rng.random() < 0.3:
            (name,) = OPENING_FAULTS
            fault = _fault(rng, name, broker, int(at_ms), {})
            fault.moment = SERVES
            yield fault
        at_ms += rng.expovariate(1 / mean_ms)


def _draw_aimed(rng: Random, roles: Mapping[str, str], broker: str, until_ms: int, *, fsync: bool) -> Iterator[Fault]:
    """Faults of one or two kinds that each wait for a request."""
    if not roles:
        return
    names = [name for name in AIMED if fsync or not FAULTS[name].needs_fsync]
    names = rng.choices(names, [AIMED[name] for name in names], k=rng.choice((1, 2)))
    mean_ms = rng.uniform(1_000, 8_000)
    at_ms = rng.expovariate(1 / mean_ms)
    while at_ms < until_ms:
        name, client = rng.choice(names), rng.choice(list(roles))
        fault = _fault(rng, name, broker if FAULTS[name].meets == "broker" else client, int(at_ms), roles)
        fault.aim = rng.choice(API_KEYS_OF[roles[client]])
        fault.aim_ms = round(rng.choice((0.0, 0.5, 3.0, 10.0, 60.0)) * (0.2 + rng.random()), 3)
        yield fault
        at_ms += fault.lasting_ms + rng.expovariate(1 / mean_ms)


def _draw_at_moments(
    rng: Random, roles: Mapping[str, str], broker: str, until_ms: int, *, fsync: bool
) -> Iterator[Fault]:
    """Faults of one or two kinds, each at one of one or two moments of the broker.

    A fault that waits for the broker's start follows a fault that kills the broker. So it meets the start after a
    crash.
    """
    weights = dict(AT_ALL_TIMES)
    for role in roles.values():
        weights |= MOMENTS_OF.get(role, {})
    moments = rng.choices(list(weights), list(weights.values()), k=rng.choice((1, 2)))
    names = [name for name in AT_MOMENTS if fsync or not FAULTS[name].needs_fsync]
    names = rng.choices(names, [AT_MOMENTS[name] for name in names], k=rng.choice((1, 2)))
    mean_ms = rng.uniform(1_000, 8_000)
    at_ms = rng.expovariate(1 / mean_ms)
    while at_ms < until_ms:
        moment = rng.choice(moments)
        if moment == SERVES:
            first = rng.choice(("kill broker", "kill amid changes", "kill amid changes"))
            yield _fault(rng, first, broker, int(at_ms), roles)
        fault = _fault(rng, rng.choice(names), broker, int(at_ms), roles)
        fault.moment = moment
        fault.aim_ms = round(rng.choice((0.0, 0.0, 0.5, 3.0, 10.0, 60.0)) * (0.2 + rng.random()), 3)
        yield fault
        at_ms += fault.lasting_ms + rng.expovariate(1 / mean_ms)


def _fault(rng: Random, name: str, host: str, at_ms: int, roles: Mapping[str, str]) -> Fault:
    kind = KINDS[name]
    lasting_ms = lasting(rng, *kind.lasting_ms)
    return Fault(at_ms=at_ms, kind=name, host=host, lasting_ms=lasting_ms, args=kind.args(rng, roles.get(host, "")))


def lasting(rng: Random, least_ms: int, most_ms: int) -> int:
    """A random duration, mostly near the least."""
    return int(least_ms + (most_ms - least_ms) * rng.random() ** 3)
