"""PURE: families of metrics: name, type, labels and meaning. Each reader declares the families that it fills.

`exporter.SECTIONS` lists the readers. docs/metrics.md shows all families on the site.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec


class MetricType(Enum):
    """The types of Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


NAMED: Final = ("topic", "group")
"""Labels with as many values as users like: their series are bounded by `metrics.series.max`."""


class Family(msgspec.Struct, frozen=True):
    """All series of one name."""

    name: str
    kind: MetricType
    about: str
    """One sentence, the help text."""
    labels: tuple[str, ...] = ()
    is_bounded: bool = False
    """Its series count for `metrics.series.max`."""


class Section:
    """The families of one reader, under one heading of docs/metrics.md. Names get the prefix `semel_`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.families: list[Family] = []

    def counter(self, name: str, about: str, *labels: str) -> Family:
        """Declare a family of counters."""
        return self._add(name, MetricType.COUNTER, about, labels)

    def gauge(self, name: str, about: str, *labels: str) -> Family:
        """Declare a family of gauges."""
        return self._add(name, MetricType.GAUGE, about, labels)

    def histogram(self, name: str, about: str, *labels: str) -> Family:
        """Declare a family of histograms."""
        return self._add(name, MetricType.HISTOGRAM, about, labels)

    def _add(self, name: str, kind: MetricType, about: str, labels: tuple[str, ...]) -> Family:
        is_bounded = not set(NAMED).isdisjoint(labels)
        family = Family(f"semel_{name}", kind, about, labels, is_bounded)
        self.families.append(family)
        return family
