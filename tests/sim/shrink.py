"""Makes a failing plan smaller: fewer faults, clients and operations, default settings, and still the same failure.

It removes parts of every list, halves first, as long as the run still fails in one of its first ways. Each process and
each connection has its own random source (`World.random`), so the remaining parts behave much as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from sim.plan import RunPlan
from sim.run import RunVerdict, run

Path = tuple[str | int, ...]
RUNS_MAX = 500
PLAIN: dict[str, object] = {"network": {}, "disk": {}, "finale": "none"}


class Shrinker:
    """Shrinks `plan`. `names`: the kinds of failure that count (`RunVerdict.names` or `ways`). `tell`: called with
    progress. `judge`: replaces `run`.
    """

    def __init__(
        self,
        plan: RunPlan,
        names: list[str],
        tell: Callable[[str], None],
        runs_max: int = RUNS_MAX,
        judge: Callable[[RunPlan], RunVerdict] | None = None,
    ) -> None:
        self.best: dict[str, Any] = msgspec.to_builtins(plan)
        self.runs = 0
        self._names, self._tell, self._runs_max = names, tell, runs_max
        self._judge = judge or run

    def shrink(self) -> RunPlan:
        """The smallest plan that was found."""
        before = None
        while before != self.best and self.runs < self._runs_max:
            before = self.best
            for path in list(_lists(self.best)):
                self._thin_out(path)
            self._make_plain()
        return msgspec.convert(self.best, RunPlan)

    def _thin_out(self, path: Path) -> None:
        """Remove parts of the list at `path`, from its end, in ever smaller parts."""
        found = _at(self.best, path)
        chunk = len(found) if found else 0
        while chunk >= 1 and self.runs < self._runs_max:
            start = len(found) - chunk
            while start > -chunk:
                low = max(0, start)
                if self._try(_without(self.best, path, low, start + chunk)):
                    self._tell(f"{self.runs} runs: {size(self.best)}")
                found = _at(self.best, path)
                start -= chunk
            chunk //= 2

    def _make_plain(self) -> None:
        for name, value in PLAIN.items():
            if self.best.get(name) != value:
                self._try({**self.best, name: value})
        for name in list(self.best["broker"]):
            self._try(
                {**self.best, "broker": {key: value for key, value in self.best["broker"].items() if key != name}}
            )

    def _try(self, candidate: dict[str, Any]) -> bool:
        if candidate == self.best or self.runs >= self._runs_max:
            return False
        self.runs += 1
        plan = msgspec.convert(candidate, RunPlan)
        plan.faults = [fault for fault in plan.faults if fault.host in plan.hosts]
        verdict = self._judge(plan)
        if any(name in self._names for name in (*verdict.names, *verdict.ways)):
            self.best = msgspec.to_builtins(plan)
            return True
        return False


def size(plan: dict[str, Any]) -> str:
    """The size of a plan in words."""
    clients = [client for workload in plan["workloads"] for client in workload["clients"]]
    operations = sum(len(client["ops"]) for client in clients)
    return f"{len(plan['faults'])} faults, {len(clients)} clients, {operations} operations"


def _lists(plan: dict[str, Any]) -> Iterator[Path]:
    """The paths of the lists to shorten, large ones first."""
    yield ("faults",)
    yield ("workloads",)
    for number, workload in enumerate(plan["workloads"]):
        yield ("workloads", number, "clients")
        for place in range(len(workload["clients"])):
            yield ("workloads", number, "clients", place, "ops")


def _at(plan: Any, path: Path) -> list[Any]:
    """The list at `path`; [] if its owner was removed."""
    for step in path:
        if isinstance(plan, list) and (not isinstance(step, int) or step >= len(plan)):
            return []
        plan = plan[step]
    found: list[Any] = plan
    return found


def _without(plan: Any, path: Path, low: int, high: int) -> Any:
    """A copy without the elements `low` to `high` of the list at `path`."""
    if not path:
        return plan[:low] + plan[high:]
    step = path[0]
    if isinstance(plan, list):
        assert isinstance(step, int)
        return [_without(each, path[1:], low, high) if at == step else each for at, each in enumerate(plan)]
    return {**plan, step: _without(plan[step], path[1:], low, high)}
