"""The data source of the format "semel", which Spark calls. It imports readers and writers only when Spark asks for
one.
"""

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
    """The data source behind `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "semel"

    def schema(self) -> StructType:
        """Returns the columns of a read: Kafka's. Raises OptionError for wrong options, before anything runs."""
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
"""Spark looks for this name in the package."""
