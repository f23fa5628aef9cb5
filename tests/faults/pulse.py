"""A producer that sends a record every now and then and notes how long each one takes to be acknowledged."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from semel import Producer, RecordMetadata

TOPIC = "pulse"
PARTITIONS = 3
EVERY_S = 0.02


class Pulse:
    """`async with Pulse(bootstrap) as pulse`: while it lasts, records go out. `latencies_s`: of all of them, after."""

    def __init__(self, bootstrap: str) -> None:
        self.latencies_s: list[float] = []
        self._producer = Producer(bootstrap_servers=bootstrap, linger_ms=0)
        self._is_over = False

    async def __aenter__(self) -> Pulse:
        await self._producer.start()
        self._beating = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._is_over = True
        await self._beating
        await self._producer.stop()

    async def _beat(self) -> None:
        waiting = []
        number = 0
        while not self._is_over:
            began = time.monotonic()
            future = await self._producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS)
            future.add_done_callback(partial(self._told, began))
            waiting.append(future)
            number += 1
            await asyncio.sleep(max(0.0, EVERY_S - (time.monotonic() - began)))
        await asyncio.gather(*waiting)

    def _told(self, began: float, future: asyncio.Future[RecordMetadata]) -> None:
        self.latencies_s.append(time.monotonic() - began)

    def percentile_s(self, share: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
