"""PURE: reads the counters of logs, by topic, and of syncs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from semel_broker.metrics import families
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
        page.add(families.REFUSED_BATCHES, count, code_name(code))
    if broker.world.sync_seconds is not None:
        page.add_histogram(families.SYNC_SECONDS, broker.world.sync_seconds)
    page.add_histogram(families.SYNC_BATCHES, broker.topics.local.flusher.batches_per_sync)
    space = broker.topics.local.space
    if space.mark_bytes:
        page.add(families.DISK_FREE, space.free_bytes)
        page.add(families.DISK_MIN_FREE, space.mark_bytes)
    page.add(families.DISK_WRITES_REFUSED, int(space.is_short))
    page.add(families.DISK_WAITING, broker.topics.local.hangs.waiting_s)
    page.add(families.DISK_HANGS, int(broker.topics.local.hangs.is_hanging))
    page.add(families.PARTITIONS_UNUSABLE, sum(map(len, broker.topics.local.offline().values())))
    page.add(families.RECOVERY_SECONDS, broker.counters.recovery_seconds)


def _read_topic(topic: str, partitions: list[Partition], page: Page) -> None:
    logs = [partition.log for partition in partitions]
    page.add(families.LOG_PARTITIONS, len(logs), topic)
    page.add(families.RECORDS_APPENDED, sum(log.records_appended for log in logs), topic)
    page.add(families.BATCHES_APPENDED, sum(log.batches_appended for log in logs), topic)
    page.add(families.BYTES_APPENDED, sum(log.bytes_appended for log in logs), topic)
    page.add(families.LOG_SEGMENTS, sum(len(log.segments.all) for log in logs), topic)
    page.add(families.LOG_SIZE, sum(log.size for log in logs), topic)
    if duplicates := sum(log.duplicates for log in logs):
        page.add(families.DUPLICATES, duplicates, topic)
