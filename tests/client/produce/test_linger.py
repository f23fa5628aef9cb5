"""Batches that wait for more records: their due times, and the number of timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from semel._produce.accumulator import Batch
from semel._produce.linger import Linger


class TimerLoop:
    """The timers of an event loop, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.timers_made = 0

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        self.timers.append((when, callback))
        self.timers_made += 1
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        while ready := [timer for timer in self.timers if timer[0] <= self.now]:
            self.timers.remove(ready[0])
            ready[0][1]()


class LingeringBatch:
    """The part of a batch that matters for lingering."""

    def __init__(self, name: str) -> None:
        self.name, self.closed = name, False


def waiting(linger_ms: float) -> tuple[TimerLoop, Linger, list[str]]:
    clock, due = TimerLoop(), list[str]()
    linger = Linger(cast(asyncio.AbstractEventLoop, clock), linger_ms, lambda batch: due.append(cast(Any, batch).name))
    return clock, linger, due


def add(linger: Linger, name: str) -> LingeringBatch:
    batch = LingeringBatch(name)
    linger.add(cast(Batch, batch))
    return batch


def test_each_batch_is_due_when_its_own_time_is_up() -> None:
    clock, linger, due = waiting(5)
    add(linger, "a")
    clock.advance(0.003)
    add(linger, "b")
    clock.advance(0.0021)
    assert due == ["a"]
    clock.advance(0.0028)
    assert due == ["a"]
    clock.advance(0.0002)
    assert due == ["a", "b"]


def test_a_batch_that_was_closed_meanwhile_is_passed_over() -> None:
    clock, linger, due = waiting(5)
    closed = [add(linger, "a"), add(linger, "b")]
    add(linger, "c")
    for batch in closed:
        batch.closed = True
    clock.advance(1)
    assert due == ["c"]


def test_a_thousand_batches_opened_at_once_take_one_timer() -> None:
    clock, linger, due = waiting(5)
    for number in range(1000):
        add(linger, str(number))
    clock.advance(1)
    assert len(due) == 1000
    assert clock.timers_made == 1
    assert not clock.timers


def test_without_linger_nothing_waits_for_a_time() -> None:
    clock, linger, due = waiting(0)
    add(linger, "a")
    clock.advance(1)
    assert due == []
    assert clock.timers_made == 0


def test_nothing_is_due_after_close() -> None:
    clock, linger, due = waiting(5)
    add(linger, "a")
    linger.close()
    clock.advance(1)
    assert due == []
