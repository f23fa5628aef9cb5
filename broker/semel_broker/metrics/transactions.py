"""PURE: reads the state of transactions: at their coordinator, and in the partitions that they hold back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from semel_broker.coordination.shards import Stage
from semel_broker.metrics.families import Section
from semel_broker.metrics.page import Page
from semel_broker.node import Node
from semel_broker.txn.model.metadata import ONGOING

SECTION: Final = Section("Transactions")
BEGUN = SECTION.counter("transactions_begun_total", "Transactions whose first partition or group was added.")
COMMITTED = SECTION.counter("transactions_committed_total", "Transactions that were decided as commit.")
ABORTED = SECTION.counter(
    "transactions_aborted_total", "Transactions that were decided as abort; cause: client, or as of fences.", "cause"
)
RESUMED = SECTION.counter("transactions_resumed_total", "Decided transactions that a new coordinator completes.")
TXN_SECONDS = SECTION.histogram("transaction_seconds", "Time from the begin of a transaction to its decision.")
FENCES = SECTION.counter("transaction_fences_total", "Fenced producers, by the cause in the fence ledger.", "cause")
TRANSACTIONAL_IDS = SECTION.gauge("transactional_ids", "Transactional ids that this broker coordinates.")
OPEN = SECTION.gauge("transactions_open", "Open transactions that this broker coordinates.")
OLDEST = SECTION.gauge("transaction_oldest_seconds", "Age of the oldest of them; 0 without one.")
LSO_LAG_RECORDS = SECTION.gauge(
    "lso_lag_records",
    "Offsets between the last stable offset and the high watermark, of led partitions that a transaction holds back.",
    "topic",
    "partition",
)
LSO_LAG_SECONDS = SECTION.gauge(
    "lso_lag_seconds", "Age of the transaction that holds the last stable offset back.", "topic", "partition"
)
LSO_PINNED_BY = SECTION.gauge(
    "lso_pinned_by",
    "1: this id holds the last stable offset back.",
    "topic",
    "partition",
    "transactional_id",
)
MARKERS_WAITING = SECTION.gauge(
    "transaction_markers_waiting", "Markers of decided transactions that are not written yet."
)
MARKERS_OLDEST = SECTION.gauge("transaction_markers_oldest_seconds", "Time since the decision of the oldest of them.")
MARKER_RETRIES = SECTION.counter("transaction_marker_retries_total", "Attempts to write a marker that failed.")
SHARDS = SECTION.gauge(
    "coordinator_shards", "Partitions of internal topics that this broker leads, by stage.", "coordinator", "stage"
)
SHARD_LOAD = SECTION.gauge(
    "coordinator_load_seconds", "The longest load of a partition that this broker leads now.", "coordinator"
)

AT_ONCE = 16
"""Transactional ids that take as long as one series."""


def read(node: Node, page: Page) -> Iterator[None]:
    """Add all series of this section; yields between pieces of work."""
    counters = node.broker.counters.transactions
    page.add(BEGUN, counters.begun)
    page.add(COMMITTED, counters.committed)
    page.add(RESUMED, counters.resumed)
    for cause, count in sorted(counters.aborted.items()):
        page.add(ABORTED, count, cause)
    for cause, count in sorted(counters.fenced.items()):
        page.add(FENCES, count, cause)
    page.add_histogram(TXN_SECONDS, counters.seconds)
    markers = node.broker.transactions.markers
    page.add(MARKERS_WAITING, markers.backlog)
    page.add(MARKERS_OLDEST, markers.oldest_s)
    page.add(MARKER_RETRIES, counters.marker_retries)
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
    page.add(TRANSACTIONAL_IDS, known)
    page.add(OPEN, opened)
    page.add(OLDEST, (now_ms - oldest_ms) / 1000)


def _read_partitions(node: Node, page: Page) -> Iterator[None]:
    now_ms = node.broker.world.now_ms()
    for at, partition in enumerate(node.broker.topics.local.all()):
        pin = partition.view.pinned_by() if partition.is_leading and not partition.is_retired else None
        if pin is not None:
            place = partition.topic, str(partition.index)
            page.add(LSO_LAG_RECORDS, partition.high_watermark - partition.last_stable_offset, *place)
            page.add(LSO_LAG_SECONDS, max(0, now_ms - pin.began_ms) / 1000, *place)
            page.add(LSO_PINNED_BY, 1, *place, pin.transactional_id)
        if at % AT_ONCE == 0:
            yield


def _read_shards(node: Node, page: Page) -> None:
    for name, coordinator in (("groups", node.broker.groups), ("transactions", node.broker.transactions)):
        shards = coordinator.shards.all()
        for stage in (Stage.LOADING, Stage.READY, Stage.FAILED):
            page.add(SHARDS, sum(shard.stage is stage for shard in shards), name, stage.value)
        page.add(SHARD_LOAD, max((shard.load_s for shard in shards), default=0.0), name)
