"""The reader of a batch query, `spark.read.format("semel")`: all records between two positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from semel.batch_reader import BatchReader

from pyspark_semel.event_loop import run
from pyspark_semel.source.connection import reader_of
from pyspark_semel.source.offsets import OffsetRange, ranges
from pyspark_semel.source.options import SourceOptions, Where
from pyspark_semel.source.positions import offsets_at, required_partitions_of
from pyspark_semel.source.read import read_range


class SemelBatchReader(DataSourceReader):
    """One batch query; every action on the DataFrame makes its own reader."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return one range for each partition, or more with minPartitions."""
        return run(self._ranges(reader_of(self._options.client)))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, partition)

    async def _ranges(self, reader: BatchReader) -> list[OffsetRange]:
        options = self._options
        partitions = await required_partitions_of(reader, options.topics)
        start = await offsets_at(
            reader, options.start(Where.EARLIEST), partitions, latest_if_no_time=options.latest_if_no_time
        )
        end = await offsets_at(reader, options.end, partitions, latest_if_no_time=True)
        return list(ranges(start, end, options.splitting))
