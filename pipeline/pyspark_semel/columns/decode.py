"""PURE: record batches in the columns of Spark's own Kafka source. `semel._arrow.decode` decodes them.

Spark names and orders the columns in another way, has microseconds, and has null for a record without headers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from semel._arrow import decode
from semel._arrow.decode import HEADERS, Placed

COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
"""The columns of Spark's own Kafka source."""
COLUMNS_AND_HEADERS = COLUMNS.append(pa.field("headers", HEADERS))

TIMESTAMP_MS_MAX = (2**63 - 1) // 1000


class SparkSlice(decode.Slice, frozen=True):
    """A range of a partition, as of `decode.Slice`."""

    headers: bool = False

    @property
    def spark_columns(self) -> pa.Schema:
        return COLUMNS_AND_HEADERS if self.headers else COLUMNS


def arrow_batches(data: bytes, batches: Sequence[Placed], wanted: SparkSlice) -> Iterator[pa.RecordBatch]:
    """Yield the wanted records of these batches, in the columns of `wanted.spark_columns`. The batches ascend in
    `data`.

    Raises CorruptBatch with the offset for a batch that contradicts itself, KafkaError for an unknown codec,
    OverflowError for a timestamp that Spark cannot represent.
    """
    for found in decode.arrow_batches(data, batches, wanted):
        columns = [
            found["key"],
            found["value"],
            found["topic"],
            found["partition"],
            found["offset"],
            _timestamps(found, wanted),
            found["timestamp_type"].cast(pa.int32()),
        ]
        if wanted.headers:
            columns.append(_null_without_headers(found["headers"]))
        yield pa.RecordBatch.from_arrays(columns, schema=wanted.spark_columns)


def _timestamps(found: pa.RecordBatch, wanted: SparkSlice) -> pa.Array:
    """Convert milliseconds to Spark's microseconds. Raises OverflowError for a value out of range, as Spark's Kafka
    source does.
    """
    milliseconds = found["timestamp"].cast(pa.int64()).to_numpy()
    out_of_range = np.abs(milliseconds) > TIMESTAMP_MS_MAX
    if out_of_range.any():
        row = int(out_of_range.argmax())
        raise OverflowError(
            f"the record at offset {found['offset'][row]} of {wanted.topic}-{wanted.partition} has the timestamp "
            f"{milliseconds[row]} ms, which Spark cannot represent: was it written in nanoseconds?"
        )
    return pa.array(milliseconds * 1000).cast(COLUMNS.field("timestamp").type)


def _null_without_headers(headers: pa.ListArray) -> pa.ListArray:
    absent = pa.array(headers.value_lengths().to_numpy() == 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=HEADERS, mask=absent)
