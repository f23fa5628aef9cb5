"""Measures produce latency: a producer sends a record every 20 ms and notes the time until its acknowledgement."""

from __future__ import annotations

import asyncio
import time
from functools import partial

from semel import Producer, RecordMetadata

from demo.client_settings import of_semel

TOPIC = "pulse"
PARTITIONS = 3
EVERY_S = 0.02


class LatencyProbe:
    """`async with LatencyProbe(bootstrap) as probe`: sends records. `latencies_s`: of all records, after the end."""

    def __init__(self, bootstrap: str) -> None:
        self.latencies_s: list[float] = []
        self._producer = Producer(**of_semel(bootstrap), linger_ms=0)
        self._is_over = False

    async def __aenter__(self) -> LatencyProbe:
        await self._producer.start()
        self._sending = asyncio.create_task(self._send())
        return self

    async def __aexit__(self, *error: object) -> None:
        self._is_over = True
        await self._sending
        await self._producer.stop()

    async def _send(self) -> None:
        waiting = []
        number = 0
        while not self._is_over:
            began = time.monotonic()
            future = await self._producer.send(TOPIC, str(number).encode(), partition=number % PARTITIONS)
            future.add_done_callback(partial(self._note_latency, began))
            waiting.append(future)
            number += 1
            await asyncio.sleep(max(0.0, EVERY_S - (time.monotonic() - began)))
        await asyncio.gather(*waiting)

    def _note_latency(self, began: float, future: asyncio.Future[RecordMetadata]) -> None:
        self.latencies_s.append(time.monotonic() - began)

    def percentile_s(self, share: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
