"""The sink: `df.writeStream.format("semel")` and `df.write.format("semel")`. Exactly once unless told otherwise.

All tasks of a batch write in one step of a transaction group: each in a transaction of its own, and the driver commits
them as one, with the number of the batch. A batch that comes again after a crash is recognised by it and skipped.

    __getstate__ of the first writer (driver)   begins the step; the workers get it with the writer
    write (worker)                              writes, prepares, and tells which transaction holds the rows
    commit (driver, another process perhaps)    commits the transactions that Spark has accepted, aborts all others
    abort (driver)                              aborts the step
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType
from semel import GroupStep

from pyspark_semel.sink import driver
from pyspark_semel.sink.identity import fresh_name, recall, remember
from pyspark_semel.sink.options import Delivery, SinkOptions, sink_options
from pyspark_semel.sink.schema import SinkSchema, sink_schema
from pyspark_semel.sink.step import is_to_be_written, token
from pyspark_semel.sink.task import Written, write_at_least_once, write_exactly_once

log = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Raises OptionError, SchemaError. overwrite (output mode complete): the whole result is written each time."""
    chosen = sink_options(options, streaming=True)
    return StreamWriter(chosen, sink_schema(schema, chosen.topic))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Raises OptionError, SchemaError; ValueError for mode("overwrite"): a topic cannot be overwritten."""
    if overwrite:
        raise ValueError('a topic is only ever added to: write with mode("append")')
    chosen = sink_options(options, streaming=False)
    return BatchWriter(chosen, sink_schema(schema, chosen.topic))


class StreamWriter(DataSourceStreamArrowWriter):
    """Of a batch of a stream. Spark makes one for what begins the batch, and another one for what ends it."""

    def __init__(self, options: SinkOptions, schema: SinkSchema) -> None:
        self._options, self._schema = options, schema
        self._step: GroupStep | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Begins the step: the only thing that Spark has the driver do before the tasks (and it does so twice)."""
        if self._step is None and self._options.delivery is Delivery.EXACTLY_ONCE:
            assert self._options.sink_id is not None
            self._step = driver.begin(self._options, self._options.sink_id)
            remember(self._step)
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return write_at_least_once(iterator, self._options, self._schema)
        assert self._step is not None
        return _write_named(iterator, self._options, self._schema, self._step, *_of_this_task())

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  # Spark's name
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            driver.commit(self._options, messages)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Spark does not tell of all attempts, sometimes of none: the whole step is aborted, not what is told."""
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            assert self._options.sink_id is not None
            told = next((message.step for message in messages if message is not None), None)
            driver.abort(self._options, told or recall(self._options.sink_id))


class BatchWriter(DataSourceArrowWriter):
    """Of a batch by itself, whose group is its own unless it has a name; or of a batch that foreachBatch has named."""

    def __init__(self, options: SinkOptions, schema: SinkSchema) -> None:
        self._options, self._schema = options, schema
        self._group = options.sink_id or f"spark-batch-{fresh_name()}"
        self._token = f"write:{fresh_name()}"
        self._step: GroupStep | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Begins the step, once."""
        if self._step is None and self._options.delivery is Delivery.EXACTLY_ONCE:
            self._step = driver.begin(self._options, self._group)
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return write_at_least_once(iterator, self._options, self._schema)
        assert self._step is not None
        query_id, batch_id = self._options.query_id, self._options.batch_id
        if query_id is None or batch_id is None:
            return write_exactly_once(iterator, self._options, self._schema, self._step, self._token)
        return _write_named(iterator, self._options, self._schema, self._step, query_id, batch_id)

    def commit(self, messages: Sequence[Any]) -> None:
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            driver.commit(self._options, messages)

    def abort(self, messages: Sequence[Any]) -> None:
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            driver.abort(self._options, self._step)


def _write_named(
    rows: Iterator[pa.RecordBatch],
    options: SinkOptions,
    schema: SinkSchema,
    step: GroupStep,
    query_id: str,
    batch_id: int,
) -> Written:
    """A batch that may come again. Raises SinkRefusedError, and as `write_exactly_once`."""
    mark = token(query_id, batch_id)
    if not is_to_be_written(step, query_id, batch_id, options.replaces):
        return Written(0, step, mark, skipped=True)
    return write_exactly_once(rows, options, schema, step, mark)


def _of_this_task() -> tuple[str, int]:
    """The query and the batch that the running task belongs to."""
    context = TaskContext.get()
    assert context is not None, "write() runs in a task"
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    assert query_id is not None, "Spark has not said which query this is"
    assert batch_id is not None, "Spark has not said which batch this is"
    return query_id, int(batch_id)
