"""Faults between several brokers, and between them and their store. `faults` has those of a single broker."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from random import Random

from sim.faults import KINDS, NS_PER_MS, Fault, FaultKind, FaultTargets, drawn
from sim.store import SimStore

ORDERS = tuple(permutations(range(3)))


def _names(targets: FaultTargets) -> list[str]:
    return list(targets.brokers)


def _store(targets: FaultTargets) -> SimStore:
    assert targets.store is not None, "a single broker has no store"
    return targets.store


# The network between brokers, and to the store


def _peers(targets: FaultTargets, fault: Fault) -> list[str]:
    """The hosts at the other ends of the links. `whom`: 0 one other broker, 1 all others, 2 the store, 3 all these."""
    others = [name for name in _names(targets) if name != fault.host]
    store = _store(targets).host.name
    match int(fault.args["whom"]):
        case 0:
            return [others[int(fault.args["other"])]]
        case 1:
            return others
        case 2:
            return [store]
        case _:
            return [*others, store]


def _cut_peers(targets: FaultTargets, fault: Fault) -> None:
    ways = int(fault.args["ways"])
    for peer in _peers(targets, fault):
        source, sink = (peer, fault.host) if ways == 1 else (fault.host, peer)
        targets.world.network.cut(source, sink, both_ways=ways == 2)


def _mend_peers(targets: FaultTargets, fault: Fault) -> None:
    for peer in _peers(targets, fault):
        targets.world.network.mend(fault.host, peer)


def _reset_peers(targets: FaultTargets, fault: Fault) -> None:
    for peer in _peers(targets, fault):
        targets.world.network.reset(fault.host, peer)


def _slow_peers(targets: FaultTargets, fault: Fault) -> None:
    for peer in _peers(targets, fault):
        source, sink = (peer, fault.host) if fault.args["answers"] else (fault.host, peer)
        targets.world.network.slow_down(source, sink, fault.args["by_ms"])


def _fast_peers(targets: FaultTargets, fault: Fault) -> None:
    for peer in _peers(targets, fault):
        targets.world.network.slow_down(fault.host, peer, 0)
        targets.world.network.slow_down(peer, fault.host, 0)


# Several brokers


def _chosen(targets: FaultTargets, fault: Fault) -> list[str]:
    return [name for number, name in enumerate(_names(targets)) if int(fault.args["which"]) >> number & 1]


def _end_some(targets: FaultTargets, fault: Fault) -> None:
    for name in _chosen(targets, fault):
        if fault.args["dark"]:
            targets.brokers[name].power_loss()
        else:
            targets.brokers[name].kill()


def _boot_some(targets: FaultTargets, fault: Fault) -> None:
    for name in _chosen(targets, fault):
        targets.boot(name)


def _end_by_turns(targets: FaultTargets, fault: Fault) -> None:
    """One broker after the other ends and starts again. Another broker may have become leader in between."""
    names = _names(targets)
    at_ms = 0.0
    for place in ORDERS[int(fault.args["order"])][: int(fault.args["count"])]:
        targets.world.after(int(at_ms * NS_PER_MS) + 1, _end_one, targets, names[place], bool(fault.args["dark"]))
        targets.world.after(int((at_ms + fault.args["away_ms"]) * NS_PER_MS) + 1, _boot_one, targets, names[place])
        at_ms += fault.args["next_ms"]


def _end_one(targets: FaultTargets, name: str, dark: bool) -> None:
    if not targets.is_healed:
        if dark:
            targets.brokers[name].power_loss()
        else:
            targets.brokers[name].kill()


def _boot_one(targets: FaultTargets, name: str) -> None:
    targets.boot(name)


# The store


def _store_down(targets: FaultTargets, fault: Fault) -> None:
    if fault.args["dark"]:
        _store(targets).power_loss()
    else:
        _store(targets).kill()


def _store_up(targets: FaultTargets, fault: Fault) -> None:
    _store(targets).boot()


def _store_paused(targets: FaultTargets, fault: Fault) -> None:
    _store(targets).host.pause()


def _store_resumed(targets: FaultTargets, fault: Fault) -> None:
    _store(targets).host.resume()


def _slow_store(targets: FaultTargets, fault: Fault) -> None:
    _store(targets).slowdown = fault.args["factor"]


def _quick_store(targets: FaultTargets, fault: Fault) -> None:
    _store(targets).slowdown = 1.0


def _store_forgets(targets: FaultTargets, fault: Fault) -> None:
    _store(targets).forget()


def _whom(rng: Random, role: str) -> dict[str, float]:
    return {"whom": rng.choice((0, 0, 1, 2, 2, 3)), "other": rng.randrange(2), "ways": rng.choice((0, 1, 2, 2))}


def _slow(rng: Random, role: str) -> dict[str, float]:
    return {
        "whom": rng.choice((0, 1, 2)),
        "other": rng.randrange(2),
        "by_ms": rng.choice((20, 300, 3_000)),
        "answers": rng.randrange(2),
    }


def _turns(rng: Random, role: str) -> dict[str, float]:
    return {
        "order": rng.randrange(len(ORDERS)),
        "count": rng.choice((2, 2, 3)),
        "away_ms": rng.choice((1, 50, 1_000, 8_000)),
        "next_ms": rng.choice((100, 500, 2_000, 7_000)),
    }


CLUSTER_FAULTS: Mapping[str, FaultKind] = {
    "cut peers": FaultKind(begin=_cut_peers, end=_mend_peers, meets="broker", lasting_ms=(10, 25_000), args=_whom),
    "reset peers": FaultKind(begin=_reset_peers, meets="broker", every_ms=(500, 8_000), args=_whom),
    "slow peers": FaultKind(begin=_slow_peers, end=_fast_peers, meets="broker", lasting_ms=(100, 10_000), args=_slow),
    "kill some": FaultKind(
        begin=_end_some,
        end=_boot_some,
        meets="broker",
        lasting_ms=(1, 8_000),
        args=lambda rng, role: {"which": rng.randrange(1, 8), "dark": 0},
    ),
    "power loss of some": FaultKind(
        begin=_end_some,
        end=_boot_some,
        meets="broker",
        lasting_ms=(100, 10_000),
        args=lambda rng, role: {"which": rng.choice((3, 5, 6, 7)), "dark": 1},
        needs_fsync=True,
    ),
    "kill by turns": FaultKind(
        begin=_end_by_turns, meets="broker", args=lambda rng, role: {**_turns(rng, role), "dark": 0}
    ),
    "power loss by turns": FaultKind(
        begin=_end_by_turns,
        meets="broker",
        args=lambda rng, role: {**_turns(rng, role), "dark": 1},
        needs_fsync=True,
    ),
    "store down": FaultKind(
        begin=_store_down, end=_store_up, meets="store", lasting_ms=(50, 15_000), args=drawn(dark=(0, 0, 1))
    ),
    "store paused": FaultKind(begin=_store_paused, end=_store_resumed, meets="store", lasting_ms=(10, 12_000)),
    "slow store": FaultKind(
        begin=_slow_store, end=_quick_store, meets="store", lasting_ms=(100, 8_000), args=drawn(factor=(10, 100, 1000))
    ),
    "store forgets": FaultKind(begin=_store_forgets, meets="store"),
}
KINDS.update(CLUSTER_FAULTS)
