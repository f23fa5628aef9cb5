"""PURE: reads the state of transactions: at their coordinator, and in the partitions that they hold back."""

from __future__ import annotations

from collections.abc import Iterator

from semel_broker.coordination.shards import Stage
from semel_broker.metrics import families
from semel_broker.metrics.page import Page
from semel_broker.node import Node
from semel_broker.txn.model.metadata import ONGOING

AT_ONCE = 16
"""Transactional ids that take as long as one series."""


def read(node: Node, page: Page) -> Iterator[None]:
    """Add all series of this section; yields between pieces of work."""
    counters = node.broker.counters.transactions
    page.add(families.BEGUN, counters.begun)
    page.add(families.COMMITTED, counters.committed)
    page.add(families.RESUMED, counters.resumed)
    for cause, count in sorted(counters.aborted.items()):
        page.add(families.ABORTED, count, cause)
    for cause, count in sorted(counters.fenced.items()):
        page.add(families.FENCES, count, cause)
    page.add_histogram(families.TXN_SECONDS, counters.seconds)
    markers = node.broker.transactions.markers
    page.add(families.MARKERS_WAITING, markers.backlog)
    page.add(families.MARKERS_OLDEST, markers.oldest_s)
    page.add(families.MARKER_RETRIES, counters.marker_retries)
    yield from _read_coordinator(node, page)
    yield from _read_partitions(node, page)
    _read_shards(node, page)


def _read_coordinator(node: Node, page: Page) -> Iterator[None]:
    known = opened = 0
    oldest_ms = now_ms = node.broker.world.now_ms()
    for shard in node.broker.transactions.shards.here():
        for at, slot in enumerate(list(shard.slots)):
            txn = slot.metadata
            known += txn is not None
            if txn is not None and txn.state is ONGOING:
                opened += 1
                oldest_ms = min(oldest_ms, txn.start_ms)
            if at % AT_ONCE == 0:
                yield
    page.add(families.TRANSACTIONAL_IDS, known)
    page.add(families.OPEN, opened)
    page.add(families.OLDEST, (now_ms - oldest_ms) / 1000)


def _read_partitions(node: Node, page: Page) -> Iterator[None]:
    now_ms = node.broker.world.now_ms()
    for at, partition in enumerate(node.broker.topics.local.all()):
        pin = partition.view.pinned_by() if partition.is_leading and not partition.is_retired else None
        if pin is not None:
            place = partition.topic, str(partition.index)
            page.add(families.LSO_LAG_RECORDS, partition.high_watermark - partition.last_stable_offset, *place)
            page.add(families.LSO_LAG_SECONDS, max(0, now_ms - pin.began_ms) / 1000, *place)
            page.add(families.LSO_PINNED_BY, 1, *place, pin.transactional_id)
        if at % AT_ONCE == 0:
            yield


def _read_shards(node: Node, page: Page) -> None:
    for name, coordinator in (("groups", node.broker.groups), ("transactions", node.broker.transactions)):
        shards = coordinator.shards.all()
        for stage in (Stage.LOADING, Stage.READY, Stage.FAILED):
            page.add(families.SHARDS, sum(shard.stage is stage for shard in shards), name, stage.value)
        page.add(families.SHARD_LOAD, max((shard.load_s for shard in shards), default=0.0), name)
