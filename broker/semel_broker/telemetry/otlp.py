"""Reads the metrics of a push: OpenTelemetry's MetricsData (OTLP v1 in protobuf), with the package opentelemetry-proto.

The package is an extra and is imported at the first push. Sums and gauges are read, which is all that clients of Kafka
send; other kinds are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

from semel_broker.pushed_points import Point, UnreadableMetricsError

DELTA = 1
"""AggregationTemporality of OTLP."""


def otlp_reader() -> Callable[[bytes], Iterator[Point]] | None:
    """`read_otlp`; None: opentelemetry-proto is not installed."""
    try:
        return read_otlp if find_spec("opentelemetry.proto") is not None else None
    except ModuleNotFoundError:
        return None


def read_otlp(data: bytes) -> Iterator[Point]:
    """The points of a MetricsData, one after the other. Raises UnreadableMetricsError."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        found = MetricsData.FromString(data)
    except DecodeError as error:
        raise UnreadableMetricsError(f"the bytes are no MetricsData of OpenTelemetry: {error}") from error
    for resource in found.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                yield from _points(metric)


def _points(metric: Any) -> Iterator[Point]:
    kind = metric.WhichOneof("data")
    if kind not in ("sum", "gauge"):
        return
    data = getattr(metric, kind)
    is_counter = kind == "sum" and data.is_monotonic
    is_delta = kind == "sum" and data.aggregation_temporality == DELTA
    for row in data.data_points:
        value = row.as_int if row.WhichOneof("value") == "as_int" else row.as_double
        yield Point(metric.name, tuple(sorted(_attributes(row))), value, is_counter, is_delta)


def _attributes(row: Any) -> Iterator[tuple[str, str]]:
    for attribute in row.attributes:
        kind = attribute.value.WhichOneof("value")
        if kind in ("string_value", "int_value", "bool_value", "double_value"):
            yield attribute.key, str(getattr(attribute.value, kind))
