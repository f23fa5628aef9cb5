"""The state that the driver of a transaction group keeps outside of its process, as a scheduler and a log would.

It survives all hosts, and a write to it is visible at once. It has no protection: a driver that was paused for long may
still write to it.
"""

from __future__ import annotations

from typing import Any

import msgspec
from semel import GroupStep, PreparedTransaction

OFFERED_MOST = 40


class TaskResult(msgspec.Struct, frozen=True):
    """The result of an attempt at a task. `prepared` None: nothing had to be sent. `txn`: its number in the history."""

    prepared: PreparedTransaction | None
    txn: int


class Task(msgspec.Struct):
    """A part of a batch. `sends`: [topic, partition] of each row. `offered`, `taken`: numbers of attempts."""

    number: int
    sends: list[list[Any]]
    offered: int = 1
    taken: int = 0
    results: list[TaskResult] = []

    def offer_again(self) -> None:
        """Offer one more attempt, unless one is on offer."""
        self.offered = min(max(self.offered, self.taken + 1), OFFERED_MOST)


class RowBatch(msgspec.Struct):
    """Rows that are committed as one. `tries`: how often a step was begun for it. `args`: as drawn for the driver."""

    number: int
    token: str
    tasks: list[list[list[Any]]]
    args: dict[str, Any]
    tries: int = 0

    def row(self, task: int, place: int) -> str:
        """The name in the history of the row at this place of this task."""
        return f"{self.token}/{task}.{place}"

    @property
    def rows(self) -> list[str]:
        return [self.row(number, place) for number, sends in enumerate(self.tasks) for place in range(len(sends))]


class Offer(msgspec.Struct):
    """The tasks of one step."""

    step: GroupStep
    batch: RowBatch
    tasks: list[Task]


class SharedState:
    """`planned`: all batches so far. `committed`: how many of them are committed. `driver`: the active driver; its last
    sign of life was at `beaten_ms`. `is_over`: no work is left.
    """

    def __init__(self) -> None:
        self.planned: list[RowBatch] = []
        self.committed = 0
        self.offer: Offer | None = None
        self.driver = ""
        self.beaten_ms = 0.0
        self.is_over = False
        self._slots: dict[tuple[str, int], int] = {}

    @property
    def current(self) -> RowBatch | None:
        """The batch that is planned and not committed."""
        return self.planned[self.committed] if self.committed < len(self.planned) else None

    def place_of(self, token: str | None) -> int:
        """The number of the batch with this token; -1 for none."""
        return next((batch.number for batch in self.planned if batch.token == token), -1)

    def take(self) -> tuple[Offer, Task] | None:
        """Take an attempt at a task; None if none is on offer."""
        for task in self.offer.tasks if self.offer is not None else ():
            if task.taken < task.offered and self.offer is not None:
                task.taken += 1
                return self.offer, task
        return None

    def slot(self, worker: str, step: GroupStep) -> int:
        """A number that this worker has not used in this step: 0, 1, ..."""
        number = self._slots[worker, step.epoch] = self._slots.get((worker, step.epoch), -1) + 1
        return number
