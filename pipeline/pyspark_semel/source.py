"""Reading topics into Spark: the columns, and the readers that the options ask for."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType


def schema(options: Mapping[str, str]) -> StructType:
    raise NotImplementedError


def batch_reader(options: Mapping[str, str], given: StructType) -> DataSourceReader:
    raise NotImplementedError


def stream_reader(options: Mapping[str, str], given: StructType) -> DataSourceStreamReader:
    raise NotImplementedError
