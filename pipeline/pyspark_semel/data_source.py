"""The data source of the format "semel", which Spark calls. It imports readers and writers only when Spark asks for
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )


@contextmanager
def _needs_spark(what: str, since: str) -> Iterator[None]:
    """Turn an import that an older Spark lacks into one sentence. `since`: the first version that has it."""
    try:
        yield
    except ImportError as error:
        if not (error.name or "").startswith("pyspark."):
            raise
        raise RuntimeError(
            f"{what} with the format semel need Spark {since} or newer; this is Spark {pyspark.__version__} "
            "(batch reads work from 4.0 on, batch and streaming writes from 4.1 on, streaming reads from 4.2 on)"
        ) from error


class SemelDataSource(DataSource):
    """The data source behind `spark.read`, `spark.readStream`, `df.write` and `df.writeStream`."""

    @classmethod
    def name(cls) -> str:
        return "semel"

    def schema(self) -> StructType:
        """Return the columns of a read: Kafka's. Raises OptionError for wrong options, before anything runs."""
        from pyspark_semel.source import source

        return source.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_semel.source import source

        return source.batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from pyspark_semel.source import source

        with _needs_spark("streaming reads", "4.2"):
            return source.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        with _needs_spark("batch writes", "4.1"):
            from pyspark_semel.sink import sink

        return sink.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        with _needs_spark("streaming writes", "4.1"):
            from pyspark_semel.sink import sink

        return sink.stream_writer(self.options, schema, overwrite)


DefaultSource = SemelDataSource
"""Spark looks for this name in the package."""
