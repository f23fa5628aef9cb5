"""Helpers of the consumer's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from semel.consumer import Consumer
from semel.producer import Producer
from semel.structs import ConsumerRecord, TopicPartition

Record = ConsumerRecord[Any, Any]


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


async def produce(bootstrap: str, values: Iterable[bytes], topic: str = "t", partition: int | None = 0) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            await producer.send(topic, value, partition=partition)


async def take(consumer: Consumer, count: int, timeout_ms: float = 10_000) -> list[Record]:
    """The next `count` records, in the order they were handed out."""
    records: list[Record] = []
    async with asyncio.timeout(timeout_ms / 1000):
        while len(records) < count:
            found = await consumer.getmany(timeout_ms=500, max_records=count - len(records))
            records += [record for rows in found.values() for record in rows]
    return records


async def until(condition: Callable[[], bool | Awaitable[bool]], timeout_s: float = 10) -> None:
    """Wait for a condition, looking every few milliseconds; fail after `timeout_s`."""
    async with asyncio.timeout(timeout_s):
        while True:
            outcome = condition()
            if isinstance(outcome, Awaitable):
                outcome = await outcome
            if outcome:
                return
            await asyncio.sleep(0.01)


class Reader:
    """A consumer in a task of its own that keeps asking for records and counts them."""

    def __init__(self, consumer: Consumer, *, started: bool = False) -> None:
        self.consumer = consumer
        self._started = started
        self.values: list[Any] = []
        self.records: list[Record] = []
        self.longest_gap_s = 0.0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Reader:
        # Started before its first assignment: members that join at the same time wait for each other.
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.consumer.stop()

    async def crash(self) -> None:
        """End without a commit and without LeaveGroup."""
        assert self._task is not None
        task, self._task = self._task, None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        consumer = self.consumer
        await consumer._background.stop()
        await consumer._fetcher.stop()
        if consumer._group is not None:
            await consumer._group.heartbeats.end()
        await consumer._cluster.stop()

    async def _read(self) -> None:
        if not self._started:
            await self.consumer.start()
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            for rows in (await self.consumer.getmany(timeout_ms=200)).values():
                self.records += rows
                self.values += [record.value for record in rows]
            if self.values:
                now = loop.time()
                self.longest_gap_s = max(self.longest_gap_s, now - last)
                last = now
