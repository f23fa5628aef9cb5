"""What an ablation is: one safeguard of the product, switched off from the outside while a simulated run goes on.

The product has no switches. An ablation replaces a function, a method or a constant by one that does without the
safeguard, in the process that simulates, and puts everything back when the run is over.
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
    """Replaces attributes of modules and classes, and remembers what they were."""

    def __init__(self) -> None:
        self._replaced: list[tuple[Any, str, Any]] = []

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """`owner.name` is `value` from now on. It must be there already: what was renamed must not seem to be gone."""
        assert name in vars(owner), f"{owner} has no {name} of its own: the ablation is out of date"
        self._replaced.append((owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def restore(self) -> None:
        """All is as it was."""
        while self._replaced:
            setattr(*self._replaced.pop())


Cut = Callable[[Seam], None]


def nothing(seam: Seam) -> None:
    """The world as it is."""


def as_drawn(plan: RunPlan) -> RunPlan:
    """The plan that everybody draws from this seed."""
    return plan


class Ablation(msgspec.Struct, frozen=True):
    """A safeguard and how to be without it.

    `protects`: what it is for. `kinds`: the workloads that can show it, all if empty. `shows`: whether a plan of these
    can; others are passed over. `given`: how the world is different, with the safeguard as well as without. `needless`:
    why nothing goes wrong without it, if that is so. `brokers`: how many there are. `occasion`: makes of the plan of a
    seed one in which it matters. `alone`: what it is run with instead, see `sim.alone`.
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
        """Whether what it is compared with is not what `make sim` runs."""
        return self.given is not nothing


ABLATIONS: dict[str, Ablation] = {}
"""By name, in the order of the modules that define them."""


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
    """The decorated function switches the safeguard off."""

    def register(cut: Cut) -> Cut:
        assert name not in ABLATIONS, f"there are two safeguards {name!r}"
        ABLATIONS[name] = Ablation(name, protects, cut, kinds, shows, given, needless, brokers, occasion, alone)
        return cut

    return register


@contextmanager
def replaced(*cuts: Cut) -> Iterator[None]:
    """Runs in here meet what these have replaced."""
    seam = Seam()
    try:
        for cut in cuts:
            cut(seam)
        yield
    finally:
        seam.restore()


def without(ablation: Ablation) -> AbstractContextManager[None]:
    """Runs in here do without the safeguard."""
    return replaced(ablation.given, ablation.cut)


# What plans that can show something have


def old_transactions(plan: RunPlan) -> bool:
    """Clients speak transaction version 1, in which epochs stay as they are from one transaction to the next."""
    return plan.settings.get("transaction.version") == 1


def new_transactions(plan: RunPlan) -> bool:
    """Clients speak transaction version 2."""
    return not old_transactions(plan)


def faults(*kinds: str) -> Callable[[RunPlan], bool]:
    """At least one fault of these kinds."""
    return lambda plan: any(fault.kind in kinds for fault in plan.faults)


def broker_ends(plan: RunPlan) -> bool:
    """The broker starts again in the middle of the run, or at its end."""
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
    """What is not synced is lost."""
    return plan.finale == "power loss" or faults("power loss", "power loss amid changes")(plan)


def both(*conditions: Callable[[RunPlan], bool]) -> Callable[[RunPlan], bool]:
    """All of these."""
    return lambda plan: all(condition(plan) for condition in conditions)
