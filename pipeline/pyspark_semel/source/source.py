"""Creates the readers of the source, and gives its columns, from the options of a read."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_semel.options import OptionError
from pyspark_semel.source.batch import SemelBatchReader
from pyspark_semel.source.options import batch_options, source_options, stream_options

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
"""The columns of Spark's own Kafka source."""
COLUMNS_AND_HEADERS = StructType([*COLUMNS.fields, StructField("headers", ArrayType(HEADER))])


def schema(options: Mapping[str, str]) -> StructType:
    """Return the columns for these options. Raises OptionError."""
    return COLUMNS_AND_HEADERS if source_options(options).headers else COLUMNS


def batch_reader(options: Mapping[str, str], given: StructType) -> DataSourceReader:
    """Return the reader for `spark.read`. Raises OptionError."""
    _check_schema(options, given)
    return SemelBatchReader(batch_options(options))


def stream_reader(options: Mapping[str, str], given: StructType) -> DataSourceStreamReader:
    """Return the reader for `spark.readStream`. Raises OptionError, ImportError on Spark before 4.2."""
    from pyspark_semel.source.stream import SemelStreamReader

    _check_schema(options, given)
    return SemelStreamReader(stream_options(options))


def _check_schema(options: Mapping[str, str], given: StructType) -> None:
    if given != schema(options):
        raise OptionError(
            f"the columns are fixed: {schema(options).simpleString()}; leave .schema() out, and decode keys and values "
            "with DataFrame operations"
        )
