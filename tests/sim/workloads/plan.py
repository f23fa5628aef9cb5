"""Plans of workloads as data: drawn from a seed, stored as JSON, made smaller by shrinking.

Every list here may lose any of its elements, and the rest is still a plan. Shrinking depends on it.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

SHORT_SHARE = 0.6


class Op(msgspec.Struct, kw_only=True):
    """One operation of a client, after a wait of `pause_ms`. The workload defines `kind` and `args`."""

    kind: str
    pause_ms: int = 0
    args: dict[str, Any] = {}


class ClientPlan(msgspec.Struct, kw_only=True):
    """One client host: its role, the settings of its clients, and their operations in order."""

    name: str
    role: str
    settings: dict[str, Any] = {}
    ops: list[Op] = []


class TopicPlan(msgspec.Struct, kw_only=True):
    """A topic that exists from the start. `cleanup` for checkers: "", "compact" or "delete"."""

    name: str
    partitions: int
    cleanup: str = ""
    configs: dict[str, str] = {}


class WorkloadPlan(msgspec.Struct, kw_only=True):
    """One workload. Its names begin with `prefix`, so that several workloads can run at the same time.

    `broker`: settings that it needs on brokers, under Kafka's names. `pipelines`: (group, source, target). `renewed`:
    topics that do not exist from the start, and that are deleted and created again under the same name. Checkers that
    take a name for one topic do not look at them.
    """

    kind: str
    prefix: str
    topics: list[TopicPlan]
    clients: list[ClientPlan]
    pipelines: list[tuple[str, str, str]] = []
    groups: list[str] = []
    broker: dict[str, Any] = {}
    renewed: list[TopicPlan] = []


class Script:
    """The operations of one client host; each is begun once.

    It outlives the process. An operation that a kill interrupted is not repeated; the next process continues after it.
    """

    def __init__(self, ops: list[Op]) -> None:
        self._ops, self._at = ops, 0

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._ops)

    def next(self) -> Op | None:
        """Begin the next operation; None at the end."""
        if self.is_done:
            return None
        self._at += 1
        return self._ops[self._at - 1]


def pause_ms(rng: Random, mean_ms: float) -> int:
    """A random pause, mostly short and seldom long, so that faults meet both quick and slow sequences."""
    if mean_ms <= 0:
        return 0
    mean_ms *= 0.05 if rng.random() < SHORT_SHARE else 1 / (1 - SHORT_SHARE)
    return min(int(rng.expovariate(1 / mean_ms)), int(10 * mean_ms))
