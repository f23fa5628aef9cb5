"""Faults of a run as data: a list in which each fault has its time, so that shrinking can remove any of them.

`swarm` draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import msgspec

from sim.broker import SimBroker
from sim.coverage import fault_met
from sim.damage import damage
from sim.holds import API_KEYS_OF, LATE_OF, Hold, RequestTrigger
from sim.host import Host
from sim.moments import MomentTrigger
from sim.rights import RIGHTS, RIGHTS_OF, Rights
from sim.store import SimStore
from sim.world import SimWorld

NS_PER_MS = 1_000_000
WRITE_TXN_MARKERS = 27
"""API key of a request between brokers."""
WHICHEVER = "whichever"
"""A host name in plans: the broker at which the request or moment occurs that the fault waits for."""


class Fault(msgspec.Struct, kw_only=True):
    """A fault of `kind` (see `FAULTS`) begins at `host` at `at_ms`, and ends `lasting_ms` later. `args`: parameters.

    `aim` >= 0: from `at_ms` on the fault waits for a request of this API key, and begins `aim_ms` after it is sent. The
    request comes from `host`, or from any host if `host` is the store or a broker that does not send such requests
    itself.

    `moment`: the fault waits until the broker comes to this moment (see `moments`), and begins `aim_ms` after it.
    """

    at_ms: int
    kind: str
    host: str
    lasting_ms: int = 0
    args: dict[str, float] = {}
    aim: int = -1
    aim_ms: float = 0.0
    moment: str = ""

    @property
    def waits(self) -> bool:
        """Whether the fault waits for a request or a moment."""
        return self.aim >= 0 or bool(self.moment)

    def __str__(self) -> str:
        args = "".join(f" {name}={value:g}" for name, value in self.args.items())
        lasting = f" for {self.lasting_ms} ms" if self.lasting_ms else ""
        what = f"a request of API {self.aim}" if self.aim >= 0 else self.moment
        aim = f" {self.aim_ms:g} ms after {what}" if self.waits else ""
        return f"{self.at_ms / 1000:.3f} {self.kind} {self.host}{aim}{lasting}{args}"


class FaultTargets(msgspec.Struct):
    """The objects that faults act on: `brokers` by host name, and the `store` of a cluster of several brokers.

    `boot_client` starts the process of a client host again. `rights`: None in a run without an authorizer.
    `is_healed`: the faults are over; no further fault begins.
    """

    world: SimWorld
    brokers: Mapping[str, SimBroker]
    boot_client: Callable[[str], None]
    store: SimStore | None = None
    rights: Rights | None = None
    is_healed: bool = False

    def host(self, name: str) -> Host:
        return self.world.hosts[name]

    def boot(self, name: str) -> None:
        """Start the process on this host, if none runs."""
        if name in self.brokers:
            self.brokers[name].boot()
        elif not self.host(name).is_running:
            self.boot_client(name)

    def across(self, fault: Fault) -> list[str]:
        """The brokers at the other end of the links, for a fault in the network of a client: one, or all."""
        names = list(self.brokers)
        number = int(fault.args.get("broker", -1))
        return names if number < 0 else [names[number % len(names)]]


Act = Callable[[FaultTargets, Fault], None]


class FaultKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of fault: the hosts that it meets, how it is drawn, how it begins and ends.

    `meets`: "client", "broker", "store" or "any". `every_ms`: least and most mean time between two faults of this kind,
    if the kind is on. `lasting_ms`: least and most. `args`: draws parameters for a host of this role ("": a broker).
    `needs_fsync`: without fsync this fault may remove acknowledged records, which is not an error.
    """

    begin: Act
    end: Act | None = None
    meets: str = "client"
    every_ms: tuple[int, int] = (2_000, 15_000)
    lasting_ms: tuple[int, int] = (0, 0)
    args: Callable[[Random, str], dict[str, float]] = lambda rng, role: {}
    needs_fsync: bool = False


def schedule(faults: list[Fault], targets: FaultTargets) -> None:
    """Schedule the faults in the world; their times count from now."""
    for fault in faults:
        targets.world.after(fault.at_ms * NS_PER_MS, _take_aim if fault.waits else _begin, targets, fault)


def needs_frames(fault: Fault) -> bool:
    """Whether the fault acts on single requests, so that the network must follow frames."""
    return fault.kind in ("hold", "late") or fault.aim >= 0


def _take_aim(targets: FaultTargets, fault: Fault) -> None:
    if targets.is_healed:
        return
    triggers: dict[str, MomentTrigger] = {}

    def come_about(where: str) -> None:
        for name, trigger in triggers.items():
            targets.brokers[name].watch.drop(trigger)
        met = msgspec.structs.replace(fault, host=where) if fault.host == WHICHEVER else fault
        targets.world.after(int(fault.aim_ms * NS_PER_MS) + 1, _begin, targets, met)

    if fault.moment:
        for name, broker in targets.brokers.items():
            if fault.host in (name, WHICHEVER):
                triggers[name] = MomentTrigger(fault.moment, partial(come_about, name))
                broker.watch.wait(triggers[name])
        return
    is_client = fault.host not in (WHICHEVER, *targets.brokers) and KINDS[fault.kind].meets != "store"
    is_asking = is_client or (fault.host in targets.brokers and fault.aim == WRITE_TXN_MARKERS)
    source = fault.host if is_asking else ""
    targets.world.network.aim(RequestTrigger(fault.aim, source, come_about))


def _begin(targets: FaultTargets, fault: Fault) -> None:
    if targets.is_healed:
        return
    kind = KINDS[fault.kind]
    targets.world.tell(fault.host, f"fault: {fault}")
    how = ", at a moment" if fault.moment else ", aimed" if fault.waits else ""
    broker = targets.brokers.get(fault.host) or next(iter(targets.brokers.values()))
    fault_met(targets.world, f"{fault.kind}{how}", broker.node)
    kind.begin(targets, fault)
    if kind.end is not None:
        targets.world.after(max(1, fault.lasting_ms * NS_PER_MS), kind.end, targets, fault)


def heal(targets: FaultTargets) -> None:
    """End all faults: links and disks work, all processes run. Clocks keep their skew."""
    targets.is_healed = True
    targets.world.network.heal()
    if targets.store is not None:
        targets.store.heal()
    if targets.rights is not None:
        targets.rights.end()
    for broker in targets.brokers.values():
        broker.watch.clear()
    for name, host in targets.world.hosts.items():
        host.disk.weather.heal()
        host.disk.fuse = None
        host.finish_waiting()
        host.resume()
        if name in targets.brokers:
            targets.brokers[name].boot()


# Processes and machines


def _kill(targets: FaultTargets, fault: Fault) -> None:
    if fault.host in targets.brokers:
        targets.brokers[fault.host].kill()
    else:
        targets.host(fault.host).kill()


def _boot(targets: FaultTargets, fault: Fault) -> None:
    targets.boot(fault.host)


def _power_loss(targets: FaultTargets, fault: Fault) -> None:
    targets.brokers[fault.host].power_loss()


def _kill_amid(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).end_before_change(int(fault.args["changes"]), dark=False)


def _power_loss_amid(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).end_before_change(int(fault.args["changes"]), dark=True)


def _terminate(targets: FaultTargets, fault: Fault) -> None:
    targets.brokers[fault.host].terminate()


def _pause(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).pause()


def _resume(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).resume()


def _jump(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).jump_clock(int(fault.args["by_ms"]))


def _damage(targets: FaultTargets, fault: Fault) -> None:
    broker = targets.brokers[fault.host]
    broker.kill()
    for path, before in damage(broker.host.disk, targets.world.random("damage", fault.args["number"])).items():
        broker.damaged.setdefault(path, before)


# The rights of a client


def _revoke(targets: FaultTargets, fault: Fault) -> None:
    if targets.rights is not None:
        targets.rights.take(targets.rights.right_of(fault.host, fault.args["right"], fault.args["number"]))


def _grant(targets: FaultTargets, fault: Fault) -> None:
    if targets.rights is not None:
        targets.rights.give_back(targets.rights.right_of(fault.host, fault.args["right"], fault.args["number"]))


# The network between a client and the broker


def _cut(targets: FaultTargets, fault: Fault) -> None:
    ways = int(fault.args["ways"])
    for broker in targets.across(fault):
        source, sink = (broker, fault.host) if ways == 1 else (fault.host, broker)
        targets.world.network.cut(source, sink, both_ways=ways == 2)


def _mend(targets: FaultTargets, fault: Fault) -> None:
    for broker in targets.across(fault):
        targets.world.network.mend(fault.host, broker)


def _reset(targets: FaultTargets, fault: Fault) -> None:
    for broker in targets.across(fault):
        targets.world.network.reset(fault.host, broker)


def _slow_link(targets: FaultTargets, fault: Fault) -> None:
    _slow_down(targets, fault, fault.args["by_ms"])


def _fast_link(targets: FaultTargets, fault: Fault) -> None:
    _slow_down(targets, fault, 0)


def _slow_down(targets: FaultTargets, fault: Fault, by_ms: float) -> None:
    for broker in targets.across(fault):
        source, sink = (broker, fault.host) if fault.args["answers"] else (fault.host, broker)
        targets.world.network.slow_down(source, sink, by_ms)


def _hold(targets: FaultTargets, fault: Fault) -> None:
    args = fault.args
    targets.world.network.hold(
        Hold(
            api_key=int(args["api_key"]),
            delay_ms=args["by_ms"],
            source=fault.host,
            count=int(args["count"]),
            answers=bool(args["answers"]),
        )
    )


def _late(targets: FaultTargets, fault: Fault) -> None:
    args = fault.args
    targets.world.network.hold(
        Hold(
            api_key=int(args["api_key"]),
            delay_ms=args["by_ms"],
            source=fault.host,
            until=int(args["until"]),
            past=int(args["past"]),
            breaks=bool(args["breaks"]),
        )
    )


# The broker's disk


def _slow_disk(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).disk.weather.slowdown = fault.args["factor"]


def _fast_disk(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).disk.weather.slowdown = 1.0


def _full_disk(targets: FaultTargets, fault: Fault) -> None:
    disk = targets.host(fault.host).disk
    disk.weather.full_bytes = disk.used_bytes() + int(fault.args["left_bytes"])
    targets.world.note(fault.host, f"disk has {int(fault.args['left_bytes'])} bytes left")


def _space_again(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).disk.weather.full_bytes = None


def _failing_disk(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).disk.weather.failing_syncs = True
    targets.world.note(fault.host, "syncs fail")


def _well_disk(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).disk.weather.failing_syncs = False


def _slow_syncs(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).disk.turn_slow((fault.args["low_ms"], fault.args["high_ms"]))


def _quick_syncs(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).disk.weather.slow_ms = None


def _hanging_disk(targets: FaultTargets, fault: Fault) -> None:
    weather = targets.host(fault.host).disk.weather
    weather.hangs_until_ns = targets.world.now_ns + fault.lasting_ms * NS_PER_MS


def _files_used_up(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).disk.weather.files_used_up = True
    targets.world.note(fault.host, "files are used up")


def _files_again(targets: FaultTargets, fault: Fault) -> None:
    targets.host(fault.host).disk.weather.files_used_up = False


def _hold_args(rng: Random, role: str) -> dict[str, float]:
    return {
        "api_key": rng.choice(API_KEYS_OF[role]),
        "by_ms": rng.choice((50, 500, 2_000, 10_000, 35_000)) * (0.5 + rng.random()),
        "count": rng.choice((1, 1, 3, 12)),
        "answers": int(rng.random() < 0.3),
    }


def _late_args(rng: Random, role: str) -> dict[str, float]:
    held, until = LATE_OF.get(role, ((0,), (0,)))
    return {
        "api_key": rng.choice(held),
        "until": rng.choice(until),
        "past": rng.choice((1, 1, 1, 2, 3)),
        "by_ms": rng.choice((0.0, 2.0, 2.0, 20.0, 200.0, 2_000.0)) * (0.5 + rng.random()),
        "breaks": int(rng.random() < 0.5),
    }


def drawn(**names: Sequence[float]) -> Callable[[Random, str], dict[str, Any]]:
    """Draw each argument from its values."""
    return lambda rng, role: {name: rng.choice(values) for name, values in names.items()}


CHANGES = (*range(8), 10, 12, 15, 20, 30)
FAULTS: dict[str, FaultKind] = {
    "kill broker": FaultKind(begin=_kill, end=_boot, meets="broker", lasting_ms=(1, 8_000)),
    "kill client": FaultKind(begin=_kill, end=_boot, lasting_ms=(1, 12_000)),
    "power loss": FaultKind(begin=_power_loss, end=_boot, meets="broker", lasting_ms=(100, 10_000), needs_fsync=True),
    "kill amid changes": FaultKind(begin=_kill_amid, meets="broker", args=drawn(changes=CHANGES)),
    "power loss amid changes": FaultKind(
        begin=_power_loss_amid, meets="broker", args=drawn(changes=CHANGES), needs_fsync=True
    ),
    "terminate broker": FaultKind(begin=_terminate, meets="broker"),
    "pause broker": FaultKind(begin=_pause, end=_resume, meets="broker", lasting_ms=(10, 15_000)),
    "pause client": FaultKind(begin=_pause, end=_resume, lasting_ms=(10, 40_000)),
    "clock": FaultKind(begin=_jump, meets="any", args=drawn(by_ms=(-60_000, -3_000, -50, 50, 3_000, 60_000))),
    "cut": FaultKind(begin=_cut, end=_mend, lasting_ms=(10, 25_000), args=drawn(ways=(0, 1, 2, 2))),
    "reset": FaultKind(begin=_reset, every_ms=(500, 8_000)),
    "slow link": FaultKind(
        begin=_slow_link, end=_fast_link, lasting_ms=(100, 10_000), args=drawn(by_ms=(20, 300, 3_000), answers=(0, 1))
    ),
    "hold": FaultKind(begin=_hold, every_ms=(500, 6_000), args=_hold_args),
    "late": FaultKind(begin=_late, every_ms=(500, 6_000), args=_late_args),
    "slow disk": FaultKind(
        begin=_slow_disk, end=_fast_disk, meets="broker", lasting_ms=(100, 8_000), args=drawn(factor=(10, 100, 1000))
    ),
    "full disk": FaultKind(
        begin=_full_disk,
        end=_space_again,
        meets="broker",
        lasting_ms=(100, 6_000),
        args=drawn(left_bytes=(0, 100, 2_000, 20_000)),
    ),
    "damage": FaultKind(
        begin=_damage, end=_boot, meets="broker", lasting_ms=(1, 3_000), args=drawn(number=range(1_000_000))
    ),
    "failing disk": FaultKind(
        begin=_failing_disk, end=_well_disk, meets="broker", lasting_ms=(10, 3_000), needs_fsync=True
    ),
}
"""The kinds of faults for a single broker, by the name in plans."""
RIGHTS_FAULTS: dict[str, FaultKind] = {
    "revoke": FaultKind(
        begin=_revoke,
        end=_grant,
        every_ms=(1_000, 8_000),
        lasting_ms=(10, 12_000),
        args=lambda rng, role: {
            "right": RIGHTS.index(rng.choice(RIGHTS_OF.get(role, RIGHTS))),
            "number": rng.randrange(8),
        },
    ),
}
"""The kinds for runs with an authorizer."""
DISK_FAULTS: dict[str, FaultKind] = {
    "slow syncs": FaultKind(
        begin=_slow_syncs,
        end=_quick_syncs,
        meets="broker",
        lasting_ms=(2_000, 30_000),
        args=drawn(low_ms=(30.0, 100.0), high_ms=(100.0, 300.0)),
    ),
    "hanging disk": FaultKind(
        begin=_hanging_disk, meets="broker", every_ms=(10_000, 60_000), lasting_ms=(1_000, 30_000)
    ),
}
"""The kinds for runs with slow disks."""
OPENING_FAULTS: dict[str, FaultKind] = {
    "files used up": FaultKind(begin=_files_used_up, end=_files_again, meets="broker", lasting_ms=(10, 15_000)),
}
"""The kinds for runs in which logs are opened after the start."""
KINDS = {**FAULTS, **RIGHTS_FAULTS, **DISK_FAULTS, **OPENING_FAULTS}
"""These and the kinds for several brokers (`cluster_faults`)."""
