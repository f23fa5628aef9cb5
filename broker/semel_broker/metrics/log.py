"""PURE: reads the counters of logs, by topic, and of syncs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Final

from semel_broker.metrics.families import Section
from semel_broker.metrics.page import Page
from semel_broker.metrics.requests import code_name
from semel_broker.node import Node
from semel_broker.partitions.partition import Partition

SECTION: Final = Section("Log")
RECORDS_APPENDED = SECTION.counter(
    "log_records_appended_total", "Records appended here, by leader or follower.", "topic"
)
BATCHES_APPENDED = SECTION.counter(
    "log_batches_appended_total", "Batches appended here, by leader or follower.", "topic"
)
BYTES_APPENDED = SECTION.counter("log_bytes_appended_total", "Bytes appended here, by leader or follower.", "topic")
DUPLICATES = SECTION.counter(
    "log_duplicates_total", "Batches and markers that a client or broker sent again; not appended.", "topic"
)
REFUSED_BATCHES = SECTION.counter("log_refused_batches_total", "Batches of producers that were not appended.", "code")
LOG_PARTITIONS = SECTION.gauge("log_partitions", "Replicas on this broker that have a log.", "topic")
LOG_SEGMENTS = SECTION.gauge("log_segments", "Segments on this broker.", "topic")
LOG_SIZE = SECTION.gauge("log_size_bytes", "Bytes of all segments on this broker.", "topic")
SYNC_SECONDS = SECTION.histogram("log_sync_seconds", "Time of one sync of the disk (fdatasync or syncfs).")
SYNC_BATCHES = SECTION.histogram("log_sync_batches", "Batches of one log that one sync made durable.")
DISK_FREE = SECTION.gauge("disk_free_bytes", "Free bytes of the disk with the data directory.")
DISK_WRITES_REFUSED = SECTION.gauge(
    "disk_writes_refused",
    "1 while clients' writes are refused for lack of free bytes (log.min.free.bytes), else 0.",
)
DISK_WAITING = SECTION.gauge(
    "disk_waiting_seconds",
    "Time that the oldest sync, or other call that waits for the disk, has been waiting; 0: none waits.",
)
DISK_HANGS = SECTION.gauge("disk_hangs", "1 while a call has been waiting for disk.hang.timeout.ms, else 0.")
DISK_MIN_FREE = SECTION.gauge("disk_min_free_bytes", "Free bytes below which clients' writes are refused.")
PARTITIONS_UNUSABLE = SECTION.gauge("log_partitions_unusable", "Replicas on this broker whose files cannot be used.")
RECOVERY_SECONDS = SECTION.gauge("log_recovery_seconds", "Time in which the start opened and recovered all logs.")


def read(node: Node, page: Page) -> Iterator[None]:
    """Add all series of this section; yields between pieces of work."""
    broker = node.broker
    opened = [partition for partition in broker.topics.local.all() if partition.is_open and not partition.is_retired]
    for topic, partitions in groupby(opened, lambda partition: partition.topic):
        _read_topic(topic, list(partitions), page)
        yield
    for code, count in sorted(broker.counters.appends.refused.items()):
        page.add(REFUSED_BATCHES, count, code_name(code))
    if broker.world.sync_seconds is not None:
        page.add_histogram(SYNC_SECONDS, broker.world.sync_seconds)
    page.add_histogram(SYNC_BATCHES, broker.topics.local.flusher.batches_per_sync)
    space = broker.topics.local.space
    if space.mark_bytes:
        page.add(DISK_FREE, space.free_bytes)
        page.add(DISK_MIN_FREE, space.mark_bytes)
    page.add(DISK_WRITES_REFUSED, int(space.is_short))
    page.add(DISK_WAITING, broker.topics.local.hangs.waiting_s)
    page.add(DISK_HANGS, int(broker.topics.local.hangs.is_hanging))
    page.add(PARTITIONS_UNUSABLE, sum(map(len, broker.topics.local.offline().values())))
    page.add(RECOVERY_SECONDS, broker.counters.recovery_seconds)


def _read_topic(topic: str, partitions: list[Partition], page: Page) -> None:
    logs = [partition.log for partition in partitions]
    page.add(LOG_PARTITIONS, len(logs), topic)
    page.add(RECORDS_APPENDED, sum(log.records_appended for log in logs), topic)
    page.add(BATCHES_APPENDED, sum(log.batches_appended for log in logs), topic)
    page.add(BYTES_APPENDED, sum(log.bytes_appended for log in logs), topic)
    page.add(LOG_SEGMENTS, sum(len(log.segments.all) for log in logs), topic)
    page.add(LOG_SIZE, sum(log.size for log in logs), topic)
    if duplicates := sum(log.duplicates for log in logs):
        page.add(DUPLICATES, duplicates, topic)
