"""The writers of the sink, for `df.writeStream.format("semel")` and `df.write.format("semel")`; exactly once by
default.

All tasks of a batch write in one step of a transaction group, each in a transaction of its own. The driver commits
these transactions together, with the batch number. After a crash a repeated batch is recognized by this number and
skipped.

    __getstate__ of the first writer (driver)    begins the step; the workers get it with the writer
    write (worker)                               writes, prepares, and reports the transaction of its rows
    commit (driver, possibly another process)    commits the transactions that Spark accepted, aborts all others
    abort (driver)                               aborts the step
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
from pyspark_semel.sink.identity import load_step, save_step, unique_name
from pyspark_semel.sink.options import Delivery, SinkOptions, sink_options
from pyspark_semel.sink.schema import SinkSchema, sink_schema
from pyspark_semel.sink.step import is_to_be_written, token
from pyspark_semel.sink.task import Written, write_at_least_once, write_exactly_once

log = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """Return the writer of a stream. overwrite (output mode complete): each batch writes the whole result.

    Raises OptionError, SchemaError.
    """
    chosen = sink_options(options, streaming=True)
    return StreamWriter(chosen, sink_schema(schema, chosen.topic))


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """Return the writer of a batch query.

    Raises OptionError, SchemaError; ValueError for mode("overwrite"): a topic cannot be overwritten.
    """
    if overwrite:
        raise ValueError('a topic cannot be overwritten: write with mode("append")')
    chosen = sink_options(options, streaming=False)
    return BatchWriter(chosen, sink_schema(schema, chosen.topic))


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes one batch of a stream. Spark creates one writer to begin the batch, and another one to end it."""

    def __init__(self, options: SinkOptions, schema: SinkSchema) -> None:
        self._options, self._schema = options, schema
        self._step: GroupStep | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Begin the step. Pickling is the only call on the driver before the tasks; Spark pickles twice."""
        if self._step is None and self._options.delivery is Delivery.EXACTLY_ONCE:
            assert self._options.sink_id is not None
            self._step = driver.begin(self._options, self._options.sink_id)
            save_step(self._step)
        return self.__dict__

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return write_at_least_once(iterator, self._options, self._schema)
        assert self._step is not None
        return _write_named(iterator, self._options, self._schema, self._step, *_query_and_batch())

    def commit(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  # Spark's name
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            driver.commit(self._options, messages)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:  # noqa: N803  # Spark's name
        """Abort the whole step: Spark does not report all attempts, and sometimes none."""
        if self._options.delivery is Delivery.EXACTLY_ONCE:
            assert self._options.sink_id is not None
            step = next((message.step for message in messages if message is not None), None)
            driver.abort(self._options, step or load_step(self._options.sink_id))


class BatchWriter(DataSourceArrowWriter):
    """Writes a batch query, in a generated group unless the sink has a name; or a batch that foreachBatch has named."""

    def __init__(self, options: SinkOptions, schema: SinkSchema) -> None:
        self._options, self._schema = options, schema
        self._group = options.sink_id or f"spark-batch-{unique_name()}"
        self._token = f"write:{unique_name()}"
        self._step: GroupStep | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Begin the step, once."""
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
    """Write a batch that Spark may repeat. Raises SinkRefusedError, and the errors of `write_exactly_once`."""
    mark = token(query_id, batch_id)
    if not is_to_be_written(step, query_id, batch_id, options.replaces):
        return Written(0, step, mark, skipped=True)
    return write_exactly_once(rows, options, schema, step, mark)


def _query_and_batch() -> tuple[str, int]:
    """Return the query id and the batch number of the running task."""
    context = TaskContext.get()
    assert context is not None, "write() runs in a task"
    query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    assert query_id is not None, "Spark has not set the query id"
    assert batch_id is not None, "Spark has not set the batch number"
    return query_id, int(batch_id)
