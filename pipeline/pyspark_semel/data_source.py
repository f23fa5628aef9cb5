"""The format "semel" as Spark sees it. Readers and writers are imported only where one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


class SemelDataSource(DataSource):
    """`spark.read.format("semel")` and its three siblings."""

    @classmethod
    def name(cls) -> str:
        return "semel"

    def schema(self) -> StructType:
        """Of what is read: Kafka's columns. Raises OptionError for options that are wrong, before anything runs."""
        from pyspark_semel.source import source

        return source.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_semel.source import source

        return source.batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from pyspark_semel.source import source

        return source.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_semel.sink import sink

        return sink.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from pyspark_semel.sink import sink

        return sink.stream_writer(self.options, schema, overwrite)


DefaultSource = SemelDataSource
"""The name that Spark looks for in the package."""
