"""The reader of a streaming query, `spark.readStream.format("semel")`: Spark calls it on the driver, and `read` in its
workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_semel.event_loop import run
from pyspark_semel.source.connection import reader_of
from pyspark_semel.source.options import SourceOptions
from pyspark_semel.source.plan import StreamPlan
from pyspark_semel.source.read import read_range


class SemelStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The source of one streaming query. Spark does not call `stop` before it ends the process."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._plan_of_this_run: StreamPlan | None = None

    @property
    def _plan(self) -> StreamPlan:
        if self._plan_of_this_run is None:
            self._plan_of_this_run = StreamPlan(reader_of(self._options.client), self._options)
        return self._plan_of_this_run

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return run(self._plan.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        count = self._options.offsets_max
        return ReadAllAvailable() if count is None else ReadMaxRows(count)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        run(self._plan.pin())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return run(self._plan.latest(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Spark puts it into the progress report; with the end of the batch it gives the lag (`progress.lag`)."""
        return self._plan.known_latest()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return run(self._plan.ranges(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_range(self._options, partition)
