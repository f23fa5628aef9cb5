"""PURE: makes the answer to a scrape, in slices: requests of clients are answered in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from semel_protocol import __version__

from semel_broker.metrics import clients, cluster, families, groups, log, requests, security, transactions
from semel_broker.metrics.health import not_ready
from semel_broker.metrics.offset_times import OffsetTimes
from semel_broker.metrics.page import Page
from semel_broker.node import Node


class ProcessReadings(Protocol):
    """The facts about the process, outside of the broker."""

    def read(self, page: Page) -> None:
        """Add the series of the process."""
        ...


class Exporter:
    """One per broker. `process`: None in a test without a process of its own."""

    def __init__(self, node: Node, process: ProcessReadings | None = None) -> None:
        self._node, self._process = node, process
        self._times = OffsetTimes()
        self._last_s = 0.0

    async def text(self) -> bytes:
        """A page of all metrics."""
        broker = self._node.broker
        begun = broker.world.monotonic()
        page = Page(broker.config.metrics_series_max)
        slices = broker.turns.slices()
        for _ in self._pieces(page):
            if slices.is_over():
                await slices.next()
        text = bytearray()
        for chunk in page.chunks():
            text += chunk
            if slices.is_over(1 + len(chunk) // BYTES_PER_STEP):
                await slices.next()
        self._last_s = broker.world.monotonic() - begun
        return bytes(text)

    def _pieces(self, page: Page) -> Iterator[None]:
        node = self._node
        yield from requests.read(node, page)
        yield from log.read(node, page)
        yield from transactions.read(node, page)
        yield from groups.read(node, page, self._times)
        yield from cluster.read(node, page)
        yield from security.read(node, page)
        yield from clients.read(node, page)
        page.add(families.BUILD, 1, __version__, str(node.broker.node_id))
        page.add(families.READY, int(not not_ready(node)))
        page.add(families.SCRAPE_SECONDS, round(self._last_s, 6))
        if self._process is not None:
            self._process.read(page)
        page.add(families.DROPPED, page.dropped)


BYTES_PER_STEP = 16 << 10
"""Bytes of text that are joined in the time of one step."""
