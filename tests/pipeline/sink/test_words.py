"""Errors of the sink before a query runs, and its decision about a batch, without a running Spark."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.errors import PySparkAttributeError
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)
from pyspark_semel.options import OptionError
from pyspark_semel.sink.foreach import write_batch
from pyspark_semel.sink.options import TIMEOUT_MS, Delivery, sink_options
from pyspark_semel.sink.schema import SchemaError, SinkSchema, sink_schema
from pyspark_semel.sink.sink import batch_writer, stream_writer
from pyspark_semel.sink.step import SinkRefusedError, is_to_be_written, token
from semel import GroupStep

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:1"}
GIVEN = {**SERVERS, "semel.sink.id": "s"}


HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
TYPES = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "INT": IntegerType(),
    "LONG": LongType(),
    "STRUCT": StructType().add("a", IntegerType()),
    "MAP": MapType(StringType(), BinaryType()),
    "HEADERS": HEADERS,
    "TEXTS": ArrayType(StructType().add("key", StringType()).add("value", StringType())),
}


def schema(columns: str) -> StructType:
    """`name TYPE, name TYPE`: Spark's own parser would need a running Spark."""
    made = StructType()
    for column in columns.split(", "):
        name, kind = column.split()
        made.add(name, TYPES[kind])
    return made


# Columns


def test_columns_are_found_by_name_and_others_are_ignored() -> None:
    columns = "offset LONG, headers HEADERS, Value BINARY, topic STRING, KEY STRING"
    assert sink_schema(schema(columns), None) == SinkSchema(value=2, key=4, topic=3, headers=1)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("key STRING, topic STRING", "no column 'value' among key, topic: select .* AS value"),
        ("value INT", "column 'value' is INT, and a topic takes STRING or BINARY: select CAST"),
        ("value STRING, key STRUCT", "column 'key' is STRUCT<A:INT>, and a topic takes STRING or BINARY"),
        ("value STRING, topic BINARY", "column 'topic' is BINARY, and a topic takes STRING"),
        ("value STRING, partition LONG", "column 'partition' is BIGINT, and a topic takes INT"),
        ("value STRING, headers MAP", "column 'headers' .* ARRAY<STRUCT<key: STRING, value: BINARY>>"),
        ("value STRING, headers TEXTS", "column 'headers'"),
        ("value STRING, VALUE BINARY", "two columns 'value'"),
    ],
)
def test_an_error_names_the_invalid_column(columns: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        sink_schema(schema(columns), "t")


def test_the_topic_is_that_of_the_option_or_the_column() -> None:
    with pytest.raises(SchemaError, match=r"no topic to write to: set the option 'topic', or give .* a column 'topic'"):
        sink_schema(schema("value STRING"), None)
    sink_schema(schema("value STRING"), "t")
    sink_schema(schema("value STRING, topic STRING"), None)


# Options


def test_a_missing_sink_id_is_an_error_with_the_reason() -> None:
    with pytest.raises(
        OptionError, match=r"exactly once needs semel\.sink\.id: .* Or set semel\.delivery=at-least-once"
    ):
        stream_writer({**SERVERS, "topic": "t"}, schema("value STRING"), False)
    stream_writer({**SERVERS, "topic": "t", "semel.delivery": "at-least-once"}, schema("value STRING"), False)
    batch_writer({**SERVERS, "topic": "t"}, schema("value STRING"), False)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("semel.sinkid", "s", "the sink has no option 'semel.sinkid': did you mean semel.sink.id"),
        ("semel.delivery", "at-most-once", "semel.delivery='at-most-once': write one of exactly-once, at-least-once"),
        ("semel.sink.timeout.ms", "0", "semel.sink.timeout.ms=0: at least 1"),
        ("semel.sink.id", "", "semel.sink.id is empty"),
        ("kafka.transactional.id", "x", "kafka.transactional.id cannot be set: .* semel.sink.id"),
        ("kafka.lingering.ms", "1", "no client setting kafka.lingering.ms: did you mean kafka.linger.ms"),
        ("kafka.acks", "1", "acks"),
        ("semel.batch.id", "1", "semel.query.id and semel.batch.id belong together"),
    ],
)
def test_an_error_names_the_invalid_option(option: str, value: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        sink_options({**GIVEN, option: value}, streaming=True)


def test_producer_settings_are_passed_to_the_producer() -> None:
    given = {**GIVEN, "kafka.compression.type": "zstd", "kafka.batch.size": "1000", "TOPIC": "t"}
    options = sink_options(given, streaming=True)
    assert (options.settings.values["compression_type"], options.batch_bytes, options.topic) == ("zstd", 1000, "t")
    assert (options.delivery, options.timeout_ms) == (Delivery.EXACTLY_ONCE, TIMEOUT_MS)
    assert "compression_type" not in options.group_keywords()
    assert options.group_keywords()["bootstrap_servers"] == "127.0.0.1:1"


def test_a_topic_cannot_be_overwritten() -> None:
    with pytest.raises(ValueError, match="append"):
        batch_writer({**SERVERS, "topic": "t"}, schema("value STRING"), True)


# Which batches are written


def step(decided: str | None) -> GroupStep:
    return GroupStep("s", 7, decided, 6)


@pytest.mark.parametrize(
    ("decided", "batch", "replaces", "expected"),
    [
        (None, 0, None, True),
        (None, 5, "nothing", True),
        ("q:4", 4, None, False),
        ("q:4", 5, None, True),
        ("q:4", 7, None, True),
        ("q:4", 4, "q", False),
        ("q:4", 3, "q", True),
        ("old:4", 0, "old", True),
        ("not ours", 0, "not ours", True),
    ],
)
def test_the_batch_committed_last_is_skipped_and_the_next_one_is_written(
    decided: str | None, batch: int, replaces: str | None, expected: bool
) -> None:
    assert is_to_be_written(step(decided), "q", batch, replaces) is expected


@pytest.mark.parametrize(
    ("decided", "batch", "replaces", "words"),
    [
        (
            None,
            5,
            None,
            "sink 's' remembers no batch, and query q goes on with batch 5: .* semel.sink.replaces=nothing",
        ),
        (None, 5, "old", "remembers no batch"),
        ("old:4", 0, None, r"belongs to query old \(its batch 4 .*\), and this is query q.* semel.sink.replaces=old"),
        ("old:4", 5, "older", "belongs to query old"),
        ("old:4", 5, "nothing", "belongs to query old"),
        ("q:4", 3, None, "has batch 4 of query q, and this is batch 3 again: .* semel.sink.replaces=q"),
    ],
)
def test_a_batch_that_would_lose_or_duplicate_rows_is_refused(
    decided: str | None, batch: int, replaces: str | None, words: str
) -> None:
    with pytest.raises(SinkRefusedError, match=words):
        is_to_be_written(step(decided), "q", batch, replaces)


def test_the_token_names_query_and_batch() -> None:
    assert token("q", 12) == "q:12"


def test_write_batch_requires_a_query_id_without_a_context() -> None:
    class Connected:
        """A session and its rows over Spark Connect, which has no context."""

        @property
        def sparkSession(self) -> Connected:
            return self

        @property
        def sparkContext(self) -> None:
            raise PySparkAttributeError("sparkContext is not supported in Spark Connect")

    with pytest.raises(ValueError, match="give query_id"):
        write_batch(cast(Any, Connected()), 0, GIVEN)
