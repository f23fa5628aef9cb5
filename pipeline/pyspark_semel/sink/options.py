"""Parses the options of the sink: names of Spark's own Kafka connector, and `semel.*`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec
from semel._config.client import ClientConfig
from semel._config.producer import ProducerConfig

from pyspark_semel.options import BOOTSTRAP_MS, OptionError, SparkClientSettings, UserOptions, client_settings

TOPIC = "topic"
DELIVERY = "semel.delivery"
SINK_ID = "semel.sink.id"
TIMEOUT = "semel.sink.timeout.ms"
REPLACES = "semel.sink.replaces"
QUERY_ID = "semel.query.id"
BATCH_ID = "semel.batch.id"
KNOWN = (TOPIC, DELIVERY, SINK_ID, TIMEOUT, REPLACES, QUERY_ID, BATCH_ID, "includeHeaders")

TIMEOUT_MS = 600_000
"""The longest time from the first record of a batch to its commit. A driver that dies can block read_committed readers
this long.
"""
BATCH_BYTES = 256 * 1024
"""The default batch size in bytes; `kafka.batch.size` overrides it."""

REFUSED = {
    "transactional.id": f"the sink names its producers itself; set {SINK_ID} to name the sink",
    "transaction.timeout.ms": f"all transactions of a batch have one timeout: set {TIMEOUT}",
    "enable.idempotence": f"the sink's producers are idempotent; set {DELIVERY}=at-least-once for fewer guarantees",
    "transaction.group.step": f"the sink begins its steps itself; set {SINK_ID} to name the sink",
    "key.serializer": "keys are written as they are: cast the column to STRING or BINARY",
    "value.serializer": "values are written as they are: cast the column to STRING or BINARY",
    "partitioner": "give the rows a column `partition` instead",
}

WHY_AN_ID = (
    f"exactly once needs {SINK_ID}: a name for what this query writes, the same after every restart and given to no "
    "other query. The broker keeps under it which batch was committed last. (Spark tells a sink neither the query's id "
    f"nor its checkpoint when a batch begins.) Or set {DELIVERY}=at-least-once"
)


class Delivery(Enum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class SinkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one write. `sink_id` is the transaction group; None for at-least-once and for a batch with a
    generated group.

    replaces: the id of the query that this one replaces in the sink. query_id, batch_id: set by `write_batch`.
    """

    settings: SparkClientSettings
    topic: str | None
    delivery: Delivery
    sink_id: str | None
    timeout_ms: int
    replaces: str | None
    query_id: str | None
    batch_id: int | None

    @property
    def batch_bytes(self) -> int:
        """The largest size of the records of one batch, uncompressed."""
        return int(self.settings.values["max_batch_size"])

    def group_keywords(self) -> dict[str, Any]:
        """The settings that every client accepts, as keyword arguments."""
        fields = ClientConfig.__struct_fields__
        return {name: value for name, value in self.settings.keywords().items() if name in fields}


def sink_options(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Parse the options. Raises OptionError, whose message gives the value to write."""
    options = UserOptions(given, KNOWN, "sink")
    defaults = {"max_batch_size": BATCH_BYTES, "bootstrap_timeout_ms": BOOTSTRAP_MS, "client_id": "semel-spark-sink"}
    settings = client_settings(options, ProducerConfig, refused=REFUSED, defaults=defaults)
    delivery = Delivery(options.choice(DELIVERY, [each.value for each in Delivery], Delivery.EXACTLY_ONCE.value))
    sink_id = options.get(SINK_ID)
    if sink_id is not None and not sink_id:
        raise OptionError(f"{SINK_ID} is empty: give the sink a name")
    if streaming and delivery is Delivery.EXACTLY_ONCE and sink_id is None:
        raise OptionError(WHY_AN_ID)
    query_id, batch_id = options.get(QUERY_ID), options.count(BATCH_ID, least=0)
    if (query_id is None) != (batch_id is None) or (query_id is not None and (streaming or sink_id is None)):
        raise OptionError(f"{QUERY_ID} and {BATCH_ID} belong together, with {SINK_ID}: foreach.write_batch() sets them")
    return SinkOptions(
        settings=settings,
        topic=options.get(TOPIC),
        delivery=delivery,
        sink_id=sink_id,
        timeout_ms=options.count(TIMEOUT) or TIMEOUT_MS,
        replaces=options.get(REPLACES),
        query_id=query_id,
        batch_id=batch_id,
    )
