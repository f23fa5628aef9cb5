"""What a workload is going to do, as data: it can be drawn from a seed, kept as JSON, and made smaller.

Every list in here may lose any of its elements and is a plan still: that is how a failing run shrinks.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

SHORT_SHARE = 0.6


class Op(msgspec.Struct, kw_only=True):
    """One thing that a client does, after waiting `pause_ms`. The workload says what `kind` and `args` mean."""

    kind: str
    pause_ms: int = 0
    args: dict[str, Any] = {}


class ClientPlan(msgspec.Struct, kw_only=True):
    """One client host: what part it plays, the settings of its clients, and what they do in order."""

    name: str
    role: str
    settings: dict[str, Any] = {}
    ops: list[Op] = []


class TopicPlan(msgspec.Struct, kw_only=True):
    """A topic to be there from the start. `cleanup` as checkers see it: "", "compact" or "delete"."""

    name: str
    partitions: int
    cleanup: str = ""
    configs: dict[str, str] = {}


class WorkloadPlan(msgspec.Struct, kw_only=True):
    """One workload. Its names begin with `prefix`, so that several run beside each other.

    `broker`: settings that it wants of brokers, under Kafka's names. `pipelines`: (group, source, target).
    """

    kind: str
    prefix: str
    topics: list[TopicPlan]
    clients: list[ClientPlan]
    pipelines: list[tuple[str, str, str]] = []
    groups: list[str] = []
    broker: dict[str, Any] = {}


class Script:
    """The operations of one client host, each of which is begun once.

    It outlives the host: what that was doing when it was killed is not done again, the next incarnation goes on.
    """

    def __init__(self, ops: list[Op]) -> None:
        self._ops, self._at = ops, 0

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._ops)

    def next(self) -> Op | None:
        """The next operation, which is thereby begun; None at the end."""
        if self.is_done:
            return None
        self._at += 1
        return self._ops[self._at - 1]


def pause_ms(rng: Random, mean_ms: float) -> int:
    """Mostly short, seldom long: what happens at once and what happens after a while both meet faults."""
    if mean_ms <= 0:
        return 0
    mean_ms *= 0.05 if rng.random() < SHORT_SHARE else 1 / (1 - SHORT_SHARE)
    return min(int(rng.expovariate(1 / mean_ms)), int(10 * mean_ms))
