"""PURE: makes the answer to a scrape, in slices: requests of clients are answered in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from semel_protocol import __version__

from semel_broker.metrics import clients, cluster, groups, log, process, requests, security, transactions
from semel_broker.metrics.families import Family, Section
from semel_broker.metrics.groups import OffsetTimes
from semel_broker.metrics.health import not_ready
from semel_broker.metrics.page import Page
from semel_broker.metrics.process import Process
from semel_broker.node import Node

SECTIONS: Final[tuple[Section, ...]] = (
    requests.SECTION,
    log.SECTION,
    transactions.SECTION,
    groups.SECTION,
    cluster.SECTION,
    security.SECTION,
    clients.SECTION,
    process.SECTION,
)
"""The families of all readers, in the order of a page."""
FAMILIES: Final[tuple[Family, ...]] = tuple(family for section in SECTIONS for family in section.families)
BYTES_PER_STEP: Final = 16 << 10
"""Bytes of text that are joined in the time of one step."""


class Exporter:
    """One per broker. `process`: None in a test without a process of its own."""

    def __init__(self, node: Node, process: Process | None = None) -> None:
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
        for chunk in page.chunks(FAMILIES):
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
        page.add(process.BUILD, 1, __version__, str(node.broker.node_id))
        page.add(process.READY, int(not not_ready(node)))
        page.add(process.LOG_LOST, node.broker.world.log_lost())
        page.add(process.SCRAPE_SECONDS, round(self._last_s, 6))
        if self._process is not None:
            self._process.read(page)
        page.add(process.DROPPED, page.dropped)
