"""An ablation: one safeguard of the product, switched off from outside during a simulated run.

The product has no switches. An ablation replaces a function, a method or a constant by one without the safeguard, in
the process of the simulator. After the run it restores the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from sim.alone import AloneRun
from sim.plan import RunPlan

ALL_KINDS: tuple[str, ...] = ()


class Seam:
    """Replaces attributes of modules and classes, and remembers their old values."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` to `value`. Asserts that `owner` itself defines the name."""
        assert name in vars(owner), f"{owner} has no {name} of its own: the ablation is out of date"
        self._replaced.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def restore(self) -> None:
        """Restore all old values."""
        while self._replaced:
            setattr(*self._replaced.pop())


Cut = Callable[[Seam], None]


def nothing(seam: Seam) -> None:
    """Leave the simulator's world as it is."""


def as_drawn(plan: RunPlan) -> RunPlan:
    """The plan as drawn from its seed, unchanged."""
    return plan


class Ablation(msgspec.Struct, frozen=True):
    """A safeguard and how to switch it off.

    `protects`: the purpose of the safeguard. `cut`: switches it off. `kinds`: the workloads that can show it, all if
    empty. `shows`: whether a plan can show it; other plans are skipped. `given`: changes of the world, made with the
    safeguard and without it. `needless`: the reason if no checker fires without it. `brokers`: their number.
    `occasion`: changes a plan so that the safeguard matters in it. `alone`: the run used instead of a plan's run, see
    `sim.alone`.
    """

    name: str
    protects: str
    cut: Cut
    kinds: tuple[str, ...] = ALL_KINDS
    shows: Callable[[RunPlan], bool] = lambda plan: True
    given: Cut = nothing
    needless: str = ""
    brokers: int = 1
    occasion: Callable[[RunPlan], RunPlan] = as_drawn
    alone: type[AloneRun] | None = None

    @property
    def is_of_another_world(self) -> bool:
        """Whether the run with the safeguard differs from a run of `make sim`."""
        return self.given is not nothing


ABLATIONS: dict[str, Ablation] = {}
"""By name, in the order of definition."""


def safeguard(
    name: str,
    protects: str,
    *kinds: str,
    shows: Callable[[RunPlan], bool] = lambda plan: True,
    given: Cut = nothing,
    needless: str = "",
    brokers: int = 1,
    occasion: Callable[[RunPlan], RunPlan] = as_drawn,
    alone: type[AloneRun] | None = None,
) -> Callable[[Cut], Cut]:
    """Register an ablation. The decorated function switches the safeguard off."""

    def register(cut: Cut) -> Cut:
        assert name not in ABLATIONS, f"there are two safeguards {name!r}"
        ABLATIONS[name] = Ablation(name, protects, cut, kinds, shows, given, needless, brokers, occasion, alone)
        return cut

    return register


@contextmanager
def replaced(*cuts: Cut) -> Iterator[None]:
    """Run inside this context use the replacements of these cuts."""
    seam = Seam()
    try:
        for cut in cuts:
            cut(seam)
        yield
    finally:
        seam.restore()


def without(ablation: Ablation) -> AbstractContextManager[None]:
    """Run inside this context go without the safeguard."""
    return replaced(ablation.given, ablation.cut)


# Conditions on plans


def old_transactions(plan: RunPlan) -> bool:
    """Whether clients use transaction version 1, which keeps the epoch from one transaction to the next."""
    return plan.settings.get("transaction.version") == 1


def new_transactions(plan: RunPlan) -> bool:
    """Whether clients use transaction version 2."""
    return not old_transactions(plan)


def faults(*kinds: str) -> Callable[[RunPlan], bool]:
    """Whether a plan has at least one fault of these kinds."""
    return lambda plan: any(fault.kind in kinds for fault in plan.faults)


def broker_ends(plan: RunPlan) -> bool:
    """Whether the broker starts again in the middle of the run, or at its end."""
    kinds = (
        "kill broker",
        "power loss",
        "terminate broker",
        "kill amid changes",
        "power loss amid changes",
        "full disk",
    )
    return plan.finale != "none" or faults(*kinds)(plan)


def power_fails(plan: RunPlan) -> bool:
    """Whether a power loss removes unsynced data."""
    return plan.finale == "power loss" or faults("power loss", "power loss amid changes")(plan)


def both(*conditions: Callable[[RunPlan], bool]) -> Callable[[RunPlan], bool]:
    """Whether a plan meets all these conditions."""
    return lambda plan: all(condition(plan) for condition in conditions)
