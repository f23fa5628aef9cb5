"""PURE: reads the metrics that clients have pushed (KIP-714): a series for each value of each client.

`org.apache.kafka.producer.record.send.total` is `semel_client_producer_record_send_total` here. The series count for
`metrics.series.max`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from semel_broker.metrics.families import Family, MetricType, Section
from semel_broker.metrics.page import Page
from semel_broker.metrics.requests import code_name
from semel_broker.node import Node

SECTION: Final = Section("Clients")
TELEMETRY_INSTANCES = SECTION.gauge(
    "telemetry_client_instances", "Clients that ask for subscriptions or push (KIP-714)."
)
TELEMETRY_PUSHES = SECTION.counter("telemetry_pushes_total", "Pushes of metrics that were accepted.")
TELEMETRY_BYTES = SECTION.counter("telemetry_push_bytes_total", "Bytes of these pushes, compressed.")
TELEMETRY_REFUSED = SECTION.counter("telemetry_refusals_total", "Refused requests of clients with metrics.", "code")
TELEMETRY_DROPPED = SECTION.counter(
    "telemetry_dropped_values_total", "Pushed values that were left out because there are too many series."
)
TELEMETRY_EVICTED = SECTION.counter(
    "telemetry_evicted_instances_total", "Clients whose metrics were removed because there are too many clients."
)
TELEMETRY_FORWARDED = SECTION.counter("telemetry_forwarded_total", "Pushes that the collector took.")
TELEMETRY_NOT_FORWARDED = SECTION.counter("telemetry_not_forwarded_total", "Pushes that did not reach the collector.")

PREFIX: Final = "org.apache.kafka."
OWN_LABELS: Final = ("client_id", "software", "version", "client_instance_id")
_OTHER: Final = re.compile(r"[^a-zA-Z0-9_]")


def read(node: Node, page: Page) -> Iterator[None]:
    """Add all series of this section; yields between pieces of work."""
    telemetry = node.broker.telemetry
    if telemetry is None:
        return
    counters = telemetry.counters
    pushed: dict[str, Family] = {}
    for instance in telemetry.instances():
        for (name, attributes), point in list(instance.series.items()):
            kind = MetricType.COUNTER if point.is_counter else MetricType.GAUGE
            own = f"semel_client_{_plain(name.removeprefix(PREFIX))}"
            family = pushed.get(own)
            if family is None:
                family = pushed[own] = Family(own, kind, f"{name}, as clients push it.")
            labels = dict(zip(OWN_LABELS, instance.labels, strict=True))
            for key, value in attributes:
                label = _plain(key)
                labels[label if label not in OWN_LABELS else f"attribute_{label}"] = value
            page.add_pushed(family, point.value, labels)
            yield
    page.add(TELEMETRY_INSTANCES, len(telemetry))
    page.add(TELEMETRY_PUSHES, counters.pushes)
    page.add(TELEMETRY_BYTES, counters.bytes_in)
    for code, count in sorted(counters.refused.items()):
        page.add(TELEMETRY_REFUSED, count, code_name(code))
    page.add(TELEMETRY_DROPPED, counters.dropped_series)
    page.add(TELEMETRY_EVICTED, counters.evicted)
    if telemetry.forwarder is not None:
        page.add(TELEMETRY_FORWARDED, telemetry.forwarder.sent)
        page.add(TELEMETRY_NOT_FORWARDED, telemetry.forwarder.dropped)


def _plain(name: str) -> str:
    """The name with underscores for what Prometheus does not allow."""
    found = _OTHER.sub("_", name)
    return found if found and not found[0].isdigit() else f"_{found}"
