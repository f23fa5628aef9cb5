"""PURE: reads the state of partitions and of the cluster, as this broker knows it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from semel_broker.cluster.timed_store import TimedStore
from semel_broker.metrics.families import Section
from semel_broker.metrics.page import Page
from semel_broker.node import Node

SECTION: Final = Section("Cluster")
LEADERS = SECTION.gauge("partitions_led", "Partitions that this broker leads.")
REPLICAS = SECTION.gauge("partitions_replicas", "Replicas that this broker has.")
ISR_SIZES = SECTION.gauge(
    "partitions_by_isr_size", "Partitions that this broker leads, by replicas in sync.", "in_sync"
)
UNDER_REPLICATED = SECTION.gauge("partitions_under_replicated", "Led partitions with a replica that is not in sync.")
UNDER_MIN_ISR = SECTION.gauge("partitions_under_min_isr", "Led partitions with fewer in sync than min.insync.replicas.")
OFFLINE = SECTION.gauge("partitions_offline", "Partitions of the whole cluster without a live leader.")
BROKERS = SECTION.gauge("brokers", "Live brokers of the cluster, as this one knows it.")
CONTROLLER = SECTION.gauge("controller", "1: this broker is the controller.")
SESSION_MARGIN = SECTION.gauge(
    "session_margin_seconds", "Time left until this broker stops leading unless its session is renewed; 0: lost."
)
STORE_SECONDS = SECTION.histogram(
    "store_request_seconds", "Time of an answered request to the store (etcd).", "operation"
)
STORE_FAILURES = SECTION.counter("store_failures_total", "Requests to the store without an answer.", "operation")

AT_ONCE = 4
"""Partitions that take as long as one series."""


def read(node: Node, page: Page) -> Iterator[None]:
    """Add all series of this section; yields between pieces of work."""
    broker = node.broker
    me, image = broker.node_id, broker.feed.image
    live = {record.node_id for record in image.live()}
    led = replicas = under_replicated = under_min = offline = 0
    sizes: dict[int, int] = {}
    for at, view in enumerate(image.partitions()):
        replicas += me in view.replicas
        offline += view.state.leader not in live
        if view.state.leader == me and me in live:
            led += 1
            in_sync = len(view.state.isr)
            sizes[in_sync] = sizes.get(in_sync, 0) + 1
            under_replicated += in_sync < len(view.replicas)
            partition = broker.topics.local.get(view.topic_id, view.index)
            if partition is not None and partition.is_open:
                under_min += in_sync < min(partition.log.config.min_insync_replicas, len(view.replicas))
        if at % AT_ONCE == 0:
            yield
    page.add(LEADERS, led)
    page.add(REPLICAS, replicas)
    for size, count in sorted(sizes.items()):
        page.add(ISR_SIZES, count, str(size))
    page.add(UNDER_REPLICATED, under_replicated)
    page.add(UNDER_MIN_ISR, under_min)
    page.add(OFFLINE, offline)
    page.add(BROKERS, len(live))
    page.add(CONTROLLER, int(node.controller.is_active))
    _read_session(node, page)


def _read_session(node: Node, page: Page) -> None:
    broker = node.broker
    deadline = node.registration.deadline
    if deadline != math.inf:  # a broker alone has a session without an end
        page.add(SESSION_MARGIN, round(max(0.0, deadline - broker.world.monotonic()), 3))
    if isinstance(broker.store, TimedStore):
        counters = broker.store.counters
        for operation, seconds in sorted(counters.seconds.items()):
            page.add_histogram(STORE_SECONDS, seconds, operation)
        for operation, count in sorted(counters.failed.items()):
            page.add(STORE_FAILURES, count, operation)
