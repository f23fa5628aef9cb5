"""PURE: reads the counters of logs, by topic, and of syncs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from semel_broker.metrics import families as to
from semel_broker.metrics.page import Page
from semel_broker.metrics.requests import code_name
from semel_broker.node import Node
from semel_broker.partitions.partition import Partition


def read(node: Node, page: Page) -> Iterator[None]:
    """Add all series of this section; yields between pieces of work."""
    broker = node.broker
    opened = [partition for partition in broker.topics.local.all() if partition.is_open and not partition.is_retired]
    for topic, partitions in groupby(opened, lambda partition: partition.topic):
        _read_topic(topic, list(partitions), page)
        yield
    for code, count in sorted(broker.counters.appends.refused.items()):
        page.add(to.REFUSED_BATCHES, count, code_name(code))
    if broker.world.sync_seconds is not None:
        page.add_histogram(to.SYNC_SECONDS, broker.world.sync_seconds)
    page.add_histogram(to.SYNC_BATCHES, broker.topics.local.flusher.batches_per_sync)
    space = broker.topics.local.space
    if space.mark_bytes:
        page.add(to.DISK_FREE, space.free_bytes)
        page.add(to.DISK_MIN_FREE, space.mark_bytes)
    page.add(to.DISK_WRITES_REFUSED, int(space.is_short))
    page.add(to.DISK_WAITING, broker.topics.local.hangs.waiting_s)
    page.add(to.DISK_HANGS, int(broker.topics.local.hangs.is_hanging))
    page.add(to.PARTITIONS_UNUSABLE, sum(map(len, broker.topics.local.offline().values())))
    page.add(to.RECOVERY_SECONDS, broker.counters.recovery_seconds)


def _read_topic(topic: str, partitions: list[Partition], page: Page) -> None:
    logs = [partition.log for partition in partitions]
    page.add(to.LOG_PARTITIONS, len(logs), topic)
    page.add(to.RECORDS_APPENDED, sum(log.records_appended for log in logs), topic)
    page.add(to.BATCHES_APPENDED, sum(log.batches_appended for log in logs), topic)
    page.add(to.BYTES_APPENDED, sum(log.bytes_appended for log in logs), topic)
    page.add(to.LOG_SEGMENTS, sum(len(log.segments.all) for log in logs), topic)
    page.add(to.LOG_SIZE, sum(log.size for log in logs), topic)
    if duplicates := sum(log.duplicates for log in logs):
        page.add(to.DUPLICATES, duplicates, topic)
