"""Record batches in the columns of Spark's own Kafka source."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark_semel.columns.decode import COLUMNS, COLUMNS_AND_HEADERS, TIMESTAMP_MS_MAX, SparkSlice, arrow_batches
from pyspark_semel.source import source
from semel_protocol.batch import read_header
from semel_protocol.records import Record, build_batch


def decoded(records: list[Record], *, headers: bool) -> pa.RecordBatch:
    data = build_batch(records, base_offset=5)
    (batch,) = arrow_batches(data, [(read_header(data), 0)], SparkSlice("t", 3, 5, 9, headers))
    batch.validate(full=True)
    return batch


def test_the_columns_match_the_schema_given_to_spark() -> None:
    assert to_arrow_schema(source.COLUMNS, timezone="UTC").equals(COLUMNS)
    assert to_arrow_schema(source.COLUMNS_AND_HEADERS, timezone="UTC").equals(COLUMNS_AND_HEADERS)


def test_each_field_is_in_its_column_and_headers_are_null_without_headers() -> None:
    batch = decoded([Record(5, 1000, b"k", b"v"), Record(6, 1001, None, b"", (("h", b"1"),))], headers=True)
    assert batch.schema == COLUMNS_AND_HEADERS
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    shared = {"topic": "t", "partition": 3, "timestampType": 0}
    assert batch.to_pylist() == [
        {**shared, "key": b"k", "value": b"v", "offset": 5, "timestamp": second, "headers": None},
        {
            **shared, "key": None, "value": b"", "offset": 6, "timestamp": second.replace(microsecond=1000),
            "headers": [{"key": "h", "value": b"1"}],
        },
    ]  # fmt: skip


def test_a_batch_without_any_header_has_nulls_and_headers_are_absent_by_default() -> None:
    assert decoded([Record(5, 0, None, b"v")], headers=True)["headers"].to_pylist() == [None]
    assert decoded([Record(5, 0, None, b"v")], headers=False).schema == COLUMNS


@pytest.mark.parametrize("timestamp", [TIMESTAMP_MS_MAX + 1, 1_700_000_000_000_000_000])
def test_a_timestamp_out_of_sparks_range_is_refused_with_its_offset(timestamp: int) -> None:
    with pytest.raises(OverflowError, match=rf"offset 6 of t-3 has the timestamp {timestamp} ms.*nanoseconds"):
        decoded([Record(5, 0, None, b"v"), Record(6, timestamp, None, b"v")], headers=False)
    assert decoded([Record(5, TIMESTAMP_MS_MAX, None, b"v")], headers=False).num_rows == 1
