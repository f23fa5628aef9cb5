"""Measures the waits of bystanders, row by row."""

from __future__ import annotations

import asyncio
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

import msgspec
from semel.errors import KafkaError

from faults.slow_disk.held_broker import HeldBroker

ROW_S = 120.0
AFTERWARDS_S = 0.3
CLIENT: Any = {"request_timeout_ms": 60_000}

S = TypeVar("S", bound="Scene")


class Row(Generic[S]):
    """What clients do, and what is prepared before the bystanders count."""

    def __init__(
        self,
        title: str,
        act: Callable[[S], Awaitable[None]],
        before: Callable[[S], Awaitable[None]] | None = None,
    ) -> None:
        self.title, self.act, self.before = title, act, before


class Result(msgspec.Struct, frozen=True):
    """The longest wait and the median of all bystanders in ms, without the time for which the processes waited for a
    CPU; `raw_ms`: the longest wait with it. The syncs, and those on the first threads of the brokers.
    """

    row: str
    longest_ms: float
    raw_ms: float
    median_ms: float
    took_s: float
    syncs: int
    syncs_on_loop: int
    remarks: Sequence[str] = ()
    error: str = ""


class Scene(ABC):
    """The brokers, by name, and the clients that work on them."""

    def __init__(self, brokers: Mapping[str, HeldBroker]) -> None:
        self.brokers = brokers
        self.remarks: list[str] = []

    def note(self, remark: str) -> None:
        """For the line of the present row."""
        self.remarks.append(remark)

    async def up(self) -> None:
        for broker in self.brokers.values():
            await broker.up()

    @abstractmethod
    def clients(self) -> AbstractAsyncContextManager[None]:
        """The clients, which are closed at the end."""

    @abstractmethod
    async def prepare(self) -> None:
        """Make what the rows need, while the disks are quick."""

    @abstractmethod
    async def become_slow(self) -> None:
        """Write to known partitions of each broker: one small sync on the loop's thread may turn out slow, and ends
        them (decision 10). It is not counted.
        """

    async def end(self) -> None:
        for broker in self.brokers.values():
            await broker.end()


async def measure(
    scene: S, rows: Mapping[str, Row[S]], ms: int, calls: int, only: Sequence[str], say: Callable[[Result], None]
) -> list[Result]:
    """The results of the rows. The disks turn slow once the topics are there."""
    results: list[Result] = []
    try:
        await scene.up()
        async with scene.clients():
            await scene.prepare()
            for broker in scene.brokers.values():
                broker.held.set(calls=calls, ms=ms)
            await scene.become_slow()
            for name, row in rows.items():
                if not only or name in only:
                    results.append(await _measured(scene, row))
                    say(results[-1])
            for broker in scene.brokers.values():
                broker.held.set()
    finally:
        await scene.end()
    return results


async def _measured(scene: S, row: Row[S]) -> Result:
    error = ""
    scene.remarks = []
    for broker in scene.brokers.values():
        broker.stalls()  # those of the row before
    began, began_ns, before = time.monotonic(), time.monotonic_ns(), _counts(scene)
    try:
        async with asyncio.timeout(ROW_S):
            if row.before is not None:
                await row.before(scene)
                began, began_ns, before = time.monotonic(), time.monotonic_ns(), _counts(scene)
            await row.act(scene)
    except (KafkaError, TimeoutError, RuntimeError) as caught:
        error = f"{type(caught).__name__}: {caught}"
    await asyncio.sleep(AFTERWARDS_S)
    took_s, after = time.monotonic() - began, _counts(scene)
    stalls = [f"{name} stood still, {each}" for name, broker in scene.brokers.items() for each in broker.stalls()]
    waits = [wait for broker in scene.brokers.values() for wait in await broker.waits(began_ns)]
    return Result(
        row.title,
        max((wait.for_broker_ms for wait in waits), default=0.0),
        max((wait.ms for wait in waits), default=0.0),
        statistics.median(wait.ms for wait in waits) if waits else 0.0,
        took_s,
        after[0] - before[0],
        after[1] - before[1],
        [*scene.remarks, *stalls],
        error,
    )


def _counts(scene: Scene) -> tuple[int, int]:
    """The calls so far, and those on the first threads."""
    counts = [broker.held.counts for broker in scene.brokers.values()]
    return sum(count.made for count in counts), sum(count.made_main for count in counts)
