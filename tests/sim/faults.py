"""What goes wrong in a run, as data: a list of faults, each with its time, so that shrinking can drop any of them.

Swarm: a seed draws which kinds are on and how often they come, not only when. Runs with two kinds at high rates find
what runs with a little of everything do not.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from sim.broker import SimBroker
from sim.coverage import fault_met
from sim.holds import Hold
from sim.host import Host
from sim.world import World

NS_PER_MS = 1_000_000
API_KEYS_HELD = (0, 0, 1, 8, 9, 11, 12, 14, 22, 22, 24, 25, 26, 26, 26, 28, 28)
"""Requests that are worth being late; the later half are those of transactions."""


class Fault(msgspec.Struct, kw_only=True):
    """One of `kind` (see `FAULTS`) meets `host` at `at_ms`, and is over `lasting_ms` later. `args`: its particulars."""

    at_ms: int
    kind: str
    host: str
    lasting_ms: int = 0
    args: dict[str, float] = {}

    def __str__(self) -> str:
        args = "".join(f" {name}={value:g}" for name, value in self.args.items())
        lasting = f" for {self.lasting_ms} ms" if self.lasting_ms else ""
        return f"{self.at_ms / 1000:.3f} {self.kind} {self.host}{lasting}{args}"


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
    `needs_fsync`: without fsync it takes what was acknowledged, rightly.
    """

    begin: Act
    end: Act | None = None
    meets: str = "client"  # or broker, or any
    every_ms: tuple[int, int] = (2_000, 15_000)
    lasting_ms: tuple[int, int] = (0, 0)
    args: Callable[[Random], dict[str, float]] = lambda rng: {}
    needs_fsync: bool = False


def draw(rng: Random, clients: list[str], broker: str, until_ms: int, *, fsync: bool) -> list[Fault]:
    """The faults of one run in order of time; sometimes none."""
    if rng.random() < 0.08:
        return []
    share = rng.choice((0.15, 0.3, 0.5))
    hosts = {"client": clients, "broker": [broker], "any": [*clients, broker]}
    faults = []
    for name, kind in FAULTS.items():
        if rng.random() >= share or (kind.needs_fsync and not fsync) or not hosts[kind.meets]:
            continue
        mean_ms = rng.uniform(*kind.every_ms)
        at_ms = rng.expovariate(1 / mean_ms)
        while at_ms < until_ms:
            faults.append(
                Fault(
                    at_ms=int(at_ms),
                    kind=name,
                    host=rng.choice(hosts[kind.meets]),
                    lasting_ms=_lasting(rng, *kind.lasting_ms),
                    args=kind.args(rng),
                )
            )
            at_ms += faults[-1].lasting_ms + rng.expovariate(1 / mean_ms)
    return sorted(faults, key=lambda fault: fault.at_ms)


def _lasting(rng: Random, least_ms: int, most_ms: int) -> int:
    """Mostly near the least."""
    return int(least_ms + (most_ms - least_ms) * rng.random() ** 3)


def schedule(faults: list[Fault], stage: Stage) -> None:
    """Put the faults on the world's calendar, times counted from now."""
    for fault in faults:
        stage.world.after(fault.at_ms * NS_PER_MS, _begin, stage, fault)


def _begin(stage: Stage, fault: Fault) -> None:
    if stage.is_healed:
        return
    kind = FAULTS[fault.kind]
    stage.world.tell(fault.host, f"fault: {fault}")
    fault_met(stage.world, fault.kind, stage.broker.node)
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


def _hold_args(rng: Random) -> dict[str, float]:
    return {
        "api_key": rng.choice(API_KEYS_HELD),
        "by_ms": rng.choice((50, 500, 2_000, 10_000, 35_000)) * (0.5 + rng.random()),
        "count": rng.choice((1, 1, 3)),
        "answers": int(rng.random() < 0.3),
    }


def _drawn(**names: tuple[float, ...]) -> Callable[[Random], dict[str, Any]]:
    return lambda rng: {name: rng.choice(values) for name, values in names.items()}


FAULTS: dict[str, Kind] = {
    "kill broker": Kind(begin=_kill, end=_boot, meets="broker", lasting_ms=(1, 8_000)),
    "kill client": Kind(begin=_kill, end=_boot, lasting_ms=(1, 12_000)),
    "power loss": Kind(begin=_power_loss, end=_boot, meets="broker", lasting_ms=(100, 10_000), needs_fsync=True),
    "kill amid changes": Kind(begin=_kill_amid, meets="broker", args=_drawn(changes=tuple(range(30)))),
    "power loss amid changes": Kind(
        begin=_power_loss_amid, meets="broker", args=_drawn(changes=tuple(range(30))), needs_fsync=True
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
    "failing disk": Kind(begin=_failing_disk, end=_well_disk, meets="broker", lasting_ms=(10, 3_000), needs_fsync=True),
}
"""Every kind, by the name that a plan calls it."""
