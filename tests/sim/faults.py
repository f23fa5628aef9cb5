"""What goes wrong in a run, as data: a list of faults, each with its time, so that shrinking can drop any of them.

Swarm: a seed draws which kinds are on and how often they come, not only when. Runs with two kinds at high rates find
what runs with a little of everything do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec

from sim.broker import SimBroker
from sim.coverage import fault_met
from sim.damage import damage
from sim.holds import Aim, Hold
from sim.host import Host
from sim.world import World

NS_PER_MS = 1_000_000
_TRANSACTIONS = (0, 0, 22, 22, 24, 26, 26, 26)
_GROUPS = (8, 8, 9, 11, 12, 13, 14)
API_KEYS_OF: Mapping[str, tuple[int, ...]] = {
    "writer": (0, 0, 0, 3, 22),
    "reader": (1, 2),
    "member": (1, *_GROUPS),
    "transactor": _TRANSACTIONS,
    "worker": (*_TRANSACTIONS, 25, 28, 28, 28, *_GROUPS),
    "administrator": (19, 20, 21, 37, 44),
}
"""Requests that are worth being late, or being struck at, by the role of who sends them."""
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
"""Kinds that may wait for a request, with their weights: what a fault comes amid is mostly nothing otherwise."""


class Fault(msgspec.Struct, kw_only=True):
    """One of `kind` (see `FAULTS`) meets `host` at `at_ms`, and is over `lasting_ms` later. `args`: its particulars.

    `aim` >= 0: from then on it waits for a request of this API, of `host` or (if that is the broker) to it, and comes
    `aim_ms` after that is sent.
    """

    at_ms: int
    kind: str
    host: str
    lasting_ms: int = 0
    args: dict[str, float] = {}
    aim: int = -1
    aim_ms: float = 0.0

    def __str__(self) -> str:
        args = "".join(f" {name}={value:g}" for name, value in self.args.items())
        lasting = f" for {self.lasting_ms} ms" if self.lasting_ms else ""
        aim = f" {self.aim_ms:g} ms after a request of API {self.aim}" if self.aim >= 0 else ""
        return f"{self.at_ms / 1000:.3f} {self.kind} {self.host}{aim}{lasting}{args}"


class Stage(msgspec.Struct):
    """What faults act on. `boot_client` starts the process of a client's host again. `is_healed`: the time of faults
    is over, also of those that have not begun."""

    world: World
    broker: SimBroker
    boot_client: Callable[[str], None]
    is_healed: bool = False

    def host(self, name: str) -> Host:
        return self.world.hosts[name]

    def boot(self, name: str) -> None:
        """Start the process on this host, if it has none."""
        if name == self.broker.host.name:
            self.broker.boot()
        elif not self.host(name).is_running:
            self.boot_client(name)


Act = Callable[[Stage, Fault], None]


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of fault: whom it may meet, how it is drawn, what it does and what ends it.

    `every_ms`: least and most mean time between two of them, when the kind is on. `lasting_ms`: least and most.
    `args` are drawn for a host in this role ("": the broker).
    `needs_fsync`: without fsync it takes what was acknowledged, rightly.
    """

    begin: Act
    end: Act | None = None
    meets: str = "client"  # or broker, or any
    every_ms: tuple[int, int] = (2_000, 15_000)
    lasting_ms: tuple[int, int] = (0, 0)
    args: Callable[[Random, str], dict[str, float]] = lambda rng, role: {}
    needs_fsync: bool = False


def draw(rng: Random, roles: Mapping[str, str], broker: str, until_ms: int, *, fsync: bool) -> list[Fault]:
    """The faults of one run in order of time; sometimes none. `roles` of the clients, by their names."""
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
    if rng.random() < 0.2:
        skews = {name: int(rng.gauss(0, 10_000)) for name in hosts["any"]}
        faults += [Fault(at_ms=0, kind="clock", host=name, args={"by_ms": skew}) for name, skew in skews.items()]
    return sorted(faults, key=lambda fault: fault.at_ms)


def _draw_aimed(rng: Random, roles: Mapping[str, str], broker: str, until_ms: int, *, fsync: bool) -> Iterator[Fault]:
    """Faults of one or two kinds that each wait for a certain request."""
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


def _fault(rng: Random, name: str, host: str, at_ms: int, roles: Mapping[str, str]) -> Fault:
    kind = FAULTS[name]
    lasting_ms = _lasting(rng, *kind.lasting_ms)
    return Fault(at_ms=at_ms, kind=name, host=host, lasting_ms=lasting_ms, args=kind.args(rng, roles.get(host, "")))


def _lasting(rng: Random, least_ms: int, most_ms: int) -> int:
    """Mostly near the least."""
    return int(least_ms + (most_ms - least_ms) * rng.random() ** 3)


def schedule(faults: list[Fault], stage: Stage) -> None:
    """Put the faults on the world's calendar, times counted from now."""
    for fault in faults:
        stage.world.after(fault.at_ms * NS_PER_MS, _begin if fault.aim < 0 else _take_aim, stage, fault)


def needs_frames(fault: Fault) -> bool:
    """Whether it has to do with single requests."""
    return fault.kind == "hold" or fault.aim >= 0


def _take_aim(stage: Stage, fault: Fault) -> None:
    if stage.is_healed:
        return
    strike = partial(stage.world.after, int(fault.aim_ms * NS_PER_MS) + 1, _begin, stage, fault)
    source = "" if fault.host == stage.broker.host.name else fault.host
    stage.world.network.aim(Aim(fault.aim, source, strike))


def _begin(stage: Stage, fault: Fault) -> None:
    if stage.is_healed:
        return
    kind = FAULTS[fault.kind]
    stage.world.tell(fault.host, f"fault: {fault}")
    fault_met(stage.world, f"{fault.kind}{', aimed' if fault.aim >= 0 else ''}", stage.broker.node)
    kind.begin(stage, fault)
    if kind.end is not None:
        stage.world.after(max(1, fault.lasting_ms * NS_PER_MS), kind.end, stage, fault)


def heal(stage: Stage) -> None:
    """Everything works again: links, disks, processes. Clocks stay as they are."""
    stage.is_healed = True
    stage.world.network.heal()
    for name, host in stage.world.hosts.items():
        host.disk.weather.heal()
        host.disk.fuse = None
        host.finish_waiting()
        host.resume()
        if name == stage.broker.host.name:
            stage.broker.boot()


# Processes and machines


def _kill(stage: Stage, fault: Fault) -> None:
    if fault.host == stage.broker.host.name:
        stage.broker.kill()
    else:
        stage.host(fault.host).kill()


def _boot(stage: Stage, fault: Fault) -> None:
    stage.boot(fault.host)


def _power_loss(stage: Stage, fault: Fault) -> None:
    stage.broker.power_loss()


def _kill_amid(stage: Stage, fault: Fault) -> None:
    stage.host(fault.host).end_before_change(int(fault.args["changes"]), dark=False)


def _power_loss_amid(stage: Stage, fault: Fault) -> None:
    stage.host(fault.host).end_before_change(int(fault.args["changes"]), dark=True)


def _terminate(stage: Stage, fault: Fault) -> None:
    stage.broker.terminate()


def _pause(stage: Stage, fault: Fault) -> None:
    stage.host(fault.host).pause()


def _resume(stage: Stage, fault: Fault) -> None:
    stage.host(fault.host).resume()


def _jump(stage: Stage, fault: Fault) -> None:
    stage.host(fault.host).jump_clock(int(fault.args["by_ms"]))


def _damage(stage: Stage, fault: Fault) -> None:
    broker = stage.broker
    broker.kill()
    for path, before in damage(broker.host.disk, stage.world.random("damage", fault.args["number"])).items():
        broker.damaged.setdefault(path, before)


# The network between a client and the broker


def _cut(stage: Stage, fault: Fault) -> None:
    source, sink = fault.host, stage.broker.host.name
    ways = int(fault.args["ways"])
    if ways == 1:
        source, sink = sink, source
    stage.world.network.cut(source, sink, both_ways=ways == 2)


def _mend(stage: Stage, fault: Fault) -> None:
    stage.world.network.mend(fault.host, stage.broker.host.name)


def _reset(stage: Stage, fault: Fault) -> None:
    stage.world.network.reset(fault.host, stage.broker.host.name)


def _slow_link(stage: Stage, fault: Fault) -> None:
    source, sink = fault.host, stage.broker.host.name
    if fault.args["answers"]:
        source, sink = sink, source
    stage.world.network.slow_down(source, sink, fault.args["by_ms"])


def _fast_link(stage: Stage, fault: Fault) -> None:
    source, sink = fault.host, stage.broker.host.name
    if fault.args["answers"]:
        source, sink = sink, source
    stage.world.network.slow_down(source, sink, 0)


def _hold(stage: Stage, fault: Fault) -> None:
    args = fault.args
    stage.world.network.hold(
        Hold(
            api_key=int(args["api_key"]),
            delay_ms=args["by_ms"],
            source=fault.host,
            count=int(args["count"]),
            answers=bool(args["answers"]),
        )
    )


# The broker's disk


def _slow_disk(stage: Stage, fault: Fault) -> None:
    stage.host(fault.host).disk.weather.slowdown = fault.args["factor"]


def _fast_disk(stage: Stage, fault: Fault) -> None:
    stage.host(fault.host).disk.weather.slowdown = 1.0


def _full_disk(stage: Stage, fault: Fault) -> None:
    disk = stage.host(fault.host).disk
    disk.weather.full_bytes = disk.used_bytes() + int(fault.args["left_bytes"])
    stage.world.note(fault.host, f"disk has {int(fault.args['left_bytes'])} bytes left")


def _space_again(stage: Stage, fault: Fault) -> None:
    stage.host(fault.host).disk.weather.full_bytes = None


def _failing_disk(stage: Stage, fault: Fault) -> None:
    stage.host(fault.host).disk.weather.failing_syncs = True
    stage.world.note(fault.host, "syncs fail")


def _well_disk(stage: Stage, fault: Fault) -> None:
    stage.host(fault.host).disk.weather.failing_syncs = False


def _hold_args(rng: Random, role: str) -> dict[str, float]:
    return {
        "api_key": rng.choice(API_KEYS_OF[role]),
        "by_ms": rng.choice((50, 500, 2_000, 10_000, 35_000)) * (0.5 + rng.random()),
        "count": rng.choice((1, 1, 3)),
        "answers": int(rng.random() < 0.3),
    }


def _drawn(**names: Sequence[float]) -> Callable[[Random, str], dict[str, Any]]:
    return lambda rng, role: {name: rng.choice(values) for name, values in names.items()}


CHANGES = (*range(8), 10, 12, 15, 20, 30)
FAULTS: dict[str, Kind] = {
    "kill broker": Kind(begin=_kill, end=_boot, meets="broker", lasting_ms=(1, 8_000)),
    "kill client": Kind(begin=_kill, end=_boot, lasting_ms=(1, 12_000)),
    "power loss": Kind(begin=_power_loss, end=_boot, meets="broker", lasting_ms=(100, 10_000), needs_fsync=True),
    "kill amid changes": Kind(begin=_kill_amid, meets="broker", args=_drawn(changes=CHANGES)),
    "power loss amid changes": Kind(
        begin=_power_loss_amid, meets="broker", args=_drawn(changes=CHANGES), needs_fsync=True
    ),
    "terminate broker": Kind(begin=_terminate, meets="broker"),
    "pause broker": Kind(begin=_pause, end=_resume, meets="broker", lasting_ms=(10, 15_000)),
    "pause client": Kind(begin=_pause, end=_resume, lasting_ms=(10, 40_000)),
    "clock": Kind(begin=_jump, meets="any", args=_drawn(by_ms=(-60_000, -3_000, -50, 50, 3_000, 60_000))),
    "cut": Kind(begin=_cut, end=_mend, lasting_ms=(10, 25_000), args=_drawn(ways=(0, 1, 2, 2))),
    "reset": Kind(begin=_reset, every_ms=(500, 8_000)),
    "slow link": Kind(
        begin=_slow_link, end=_fast_link, lasting_ms=(100, 10_000), args=_drawn(by_ms=(20, 300, 3_000), answers=(0, 1))
    ),
    "hold": Kind(begin=_hold, every_ms=(500, 6_000), args=_hold_args),
    "slow disk": Kind(
        begin=_slow_disk, end=_fast_disk, meets="broker", lasting_ms=(100, 8_000), args=_drawn(factor=(10, 100, 1000))
    ),
    "full disk": Kind(
        begin=_full_disk,
        end=_space_again,
        meets="broker",
        lasting_ms=(100, 6_000),
        args=_drawn(left_bytes=(0, 100, 2_000, 20_000)),
    ),
    "damage": Kind(
        begin=_damage, end=_boot, meets="broker", lasting_ms=(1, 3_000), args=_drawn(number=range(1_000_000))
    ),
    "failing disk": Kind(begin=_failing_disk, end=_well_disk, meets="broker", lasting_ms=(10, 3_000), needs_fsync=True),
}
"""Every kind, by the name that a plan calls it."""
