"""A readable transcript of one run: events of the world, requests and answers, log lines, and the clients' history.

Lines are in order of time: seconds since the start, host, text. `>` is a request that leaves, `<` an answer. Lines of a
client with `#1` after its name are the history that the checkers judge.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from sim.history import History
from sim.plan import RunPlan
from sim.run import RunVerdict, SimRun, execute

NOISE = ("Heartbeat", "Beaten", "Fetch v", "Fetch #")
"""Frequent requests, which a short transcript leaves out."""


class Transcript:
    """The lines of a transcript. `hear` is the listener of a world."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, str, str]] = []

    def hear(self, now_ns: int, host: str, text: str) -> None:
        self.lines.append((now_ns / 1_000_000, host, text))

    def add_history(self, history: History) -> None:
        """Add the events of a history, each after the other lines of the same time."""
        self.lines += [(event.at_ms, event.client, _words(event)) for event in history.events]
        self.lines.sort(key=lambda line: line[0])

    def text(self, *, short: bool = False) -> Iterator[str]:
        """The lines as text. `short`: without the frequent requests."""
        width = max((len(host) for _, host, _ in self.lines), default=0)
        for at_ms, host, text in self.lines:
            if short and any(noise in text for noise in NOISE):
                continue
            yield f"{at_ms / 1000:11.6f}  {host:<{width}}  {text}"


def replay(plan: RunPlan) -> tuple[RunVerdict, SimRun, Transcript]:
    """Run a plan with a listener; the run is the same as without."""
    transcript = Transcript()
    verdict, executed = execute(plan, transcript.hear)
    transcript.add_history(executed.history)
    return verdict, executed, transcript


def describe(plan: RunPlan) -> Iterator[str]:
    """The plan as text."""
    yield f"seed {plan.seed}, finale: {plan.finale}"
    for workload in plan.workloads:
        clients = ", ".join(
            f"{client.name} ({client.role}, {len(client.ops)} operations)" for client in workload.clients
        )
        topics = ", ".join(f"{topic.name} ({topic.partitions})" for topic in workload.topics)
        yield f"workload {workload.kind}: {clients or 'no clients'}; topics {topics}"
    yield "broker: " + ", ".join(f"{name}={value}" for name, value in plan.settings.items())
    yield f"network: {_fields(plan.network)}"
    yield f"disk: {_fields(plan.disk)}"
    for fault in plan.faults:
        yield f"fault {fault}"


def _words(event: Any) -> str:
    return f"{type(event).__name__} {_fields(event)}"


def _fields(struct: msgspec.Struct) -> str:
    fields = msgspec.structs.asdict(struct)
    return " ".join(f"{name}={value}" for name, value in fields.items() if name not in ("at_ms", "client"))
