"""Finds the columns that the sink writes by their names, those of Spark's own Kafka connector; others are ignored."""

from __future__ import annotations

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

KEY, VALUE, TOPIC, PARTITION, HEADERS = "key", "value", "topic", "partition", "headers"
NAMES = (KEY, VALUE, TOPIC, PARTITION, HEADERS)
HEADERS_DDL = "ARRAY<STRUCT<key: STRING, value: BINARY>>"


class SchemaError(ValueError):
    """Columns that cannot be written to a topic; the message names the column and the change."""


class SinkSchema(msgspec.Struct, frozen=True):
    """The index of each column, None for a missing column."""

    value: int
    key: int | None = None
    topic: int | None = None
    partition: int | None = None
    headers: int | None = None


def sink_schema(schema: StructType, default_topic: str | None) -> SinkSchema:
    """Find the columns. `default_topic`: from the option, which overrides the column. Raises SchemaError."""
    found: dict[str, int] = {}
    for at, field in enumerate(schema.fields):
        name = field.name.lower()
        if name in NAMES:
            if name in found:
                raise SchemaError(f"there are two columns {name!r}: drop one of them")
            _check_type(name, field.dataType)
            found[name] = at
    if VALUE not in found:
        raise SchemaError(
            f"there is no column 'value' among {', '.join(schema.fieldNames()) or 'none'}: select the "
            "record's value AS value, as STRING or BINARY (for several columns: to_json(struct(*)) AS value)"
        )
    if default_topic is None and TOPIC not in found:
        raise SchemaError("no topic to write to: set the option 'topic', or give the rows a column 'topic'")
    return SinkSchema(**found)


def _check_type(name: str, given: DataType) -> None:
    if not _fits(name, given):
        wanted = {TOPIC: "STRING", PARTITION: "INT", HEADERS: HEADERS_DDL}.get(name, "STRING or BINARY")
        cast = f"CAST({name} AS {wanted.split(' or ')[0]})" if name != HEADERS else f"of type {wanted}"
        raise SchemaError(
            f"column {name!r} is {given.simpleString().upper()}, and a topic takes {wanted}: select {cast}"
        )


def _fits(name: str, given: DataType) -> bool:
    if name == TOPIC:
        return isinstance(given, StringType)
    if name == PARTITION:
        return isinstance(given, IntegerType)
    if name == HEADERS:
        return (
            isinstance(given, ArrayType)
            and isinstance(given.elementType, StructType)
            and [type(field.dataType) for field in given.elementType.fields] == [StringType, BinaryType]
        )
    return isinstance(given, (StringType, BinaryType))
