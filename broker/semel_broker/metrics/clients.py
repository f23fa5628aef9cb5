"""PURE: reads the metrics that clients have pushed (KIP-714): a series for each value of each client.

`org.apache.kafka.producer.record.send.total` is `semel_client_producer_record_send_total` here. The series count for
`metrics.series.max`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from semel_broker.metrics import families
from semel_broker.metrics.families import Family, MetricType
from semel_broker.metrics.page import Page
from semel_broker.metrics.requests import code_name
from semel_broker.node import Node

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
    page.add(families.TELEMETRY_INSTANCES, len(telemetry))
    page.add(families.TELEMETRY_PUSHES, counters.pushes)
    page.add(families.TELEMETRY_BYTES, counters.bytes_in)
    for code, count in sorted(counters.refused.items()):
        page.add(families.TELEMETRY_REFUSED, count, code_name(code))
    page.add(families.TELEMETRY_DROPPED, counters.dropped_series)
    page.add(families.TELEMETRY_EVICTED, counters.evicted)
    if telemetry.forwarder is not None:
        page.add(families.TELEMETRY_FORWARDED, telemetry.forwarder.sent)
        page.add(families.TELEMETRY_NOT_FORWARDED, telemetry.forwarder.dropped)


def _plain(name: str) -> str:
    """The name with underscores for what Prometheus does not allow."""
    found = _OTHER.sub("_", name)
    return found if found and not found[0].isdigit() else f"_{found}"
