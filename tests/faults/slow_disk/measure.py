"""Measures the waits of bystanders, case by case."""

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

S = TypeVar("S", bound="MeasuredCluster")


class LoadCase(Generic[S]):
    """A load by clients, and its preparation before the bystanders count."""

    def __init__(
        self,
        title: str,
        act: Callable[[S], Awaitable[None]],
        before: Callable[[S], Awaitable[None]] | None = None,
    ) -> None:
        self.title, self.act, self.before = title, act, before


class BystanderLatency(msgspec.Struct, frozen=True):
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


class MeasuredCluster(ABC):
    """The brokers, by name, and the clients that work on them."""

    def __init__(self, brokers: Mapping[str, HeldBroker]) -> None:
        self.brokers = brokers
        self.remarks: list[str] = []

    def note(self, remark: str) -> None:
        """Add a note to the line of the current case."""
        self.remarks.append(remark)

    async def up(self) -> None:
        for broker in self.brokers.values():
            await broker.up()

    @abstractmethod
    def clients(self) -> AbstractAsyncContextManager[None]:
        """The clients, which are closed at the end."""

    @abstractmethod
    async def prepare(self) -> None:
        """Create the topics of the cases while the disks are fast."""

    @abstractmethod
    async def become_slow(self) -> None:
        """Write to known partitions of each broker, without counting the waits.

        One small sync on the loop's thread may turn out slow. After it no more small syncs run there (decision 10).
        """

    async def end(self) -> None:
        for broker in self.brokers.values():
            await broker.end()


async def measure(
    topic_broker: S,
    rows: Mapping[str, LoadCase[S]],
    ms: int,
    calls: int,
    only: Sequence[str],
    say: Callable[[BystanderLatency], None],
) -> list[BystanderLatency]:
    """The results of the cases. The disks turn slow once the topics exist."""
    results: list[BystanderLatency] = []
    try:
        await topic_broker.up()
        async with topic_broker.clients():
            await topic_broker.prepare()
            for broker in topic_broker.brokers.values():
                broker.held.set(calls=calls, ms=ms)
            await topic_broker.become_slow()
            for name, row in rows.items():
                if not only or name in only:
                    results.append(await _measured(topic_broker, row))
                    say(results[-1])
            for broker in topic_broker.brokers.values():
                broker.held.set()
    finally:
        await topic_broker.end()
    return results


async def _measured(topic_broker: S, row: LoadCase[S]) -> BystanderLatency:
    error = ""
    topic_broker.remarks = []
    for broker in topic_broker.brokers.values():
        broker.stalls()  # those of the row before
    began, began_ns, before = time.monotonic(), time.monotonic_ns(), _counts(topic_broker)
    try:
        async with asyncio.timeout(ROW_S):
            if row.before is not None:
                await row.before(topic_broker)
                began, began_ns, before = time.monotonic(), time.monotonic_ns(), _counts(topic_broker)
            await row.act(topic_broker)
    except (KafkaError, TimeoutError, RuntimeError) as caught:
        error = f"{type(caught).__name__}: {caught}"
    await asyncio.sleep(AFTERWARDS_S)
    took_s, after = time.monotonic() - began, _counts(topic_broker)
    stalls = [
        f"{name} stood still, {each}" for name, broker in topic_broker.brokers.items() for each in broker.stalls()
    ]
    waits = [wait for broker in topic_broker.brokers.values() for wait in await broker.waits(began_ns)]
    return BystanderLatency(
        row.title,
        max((wait.for_broker_ms for wait in waits), default=0.0),
        max((wait.ms for wait in waits), default=0.0),
        statistics.median(wait.ms for wait in waits) if waits else 0.0,
        took_s,
        after[0] - before[0],
        after[1] - before[1],
        [*topic_broker.remarks, *stalls],
        error,
    )


def _counts(topic_broker: MeasuredCluster) -> tuple[int, int]:
    """The calls so far, and those on the first threads."""
    counts = [broker.held.counts for broker in topic_broker.brokers.values()]
    return sum(count.made for count in counts), sum(count.made_main for count in counts)
