"""Writes from a function of `foreachBatch` into the sink, exactly once.

    def each(rows, batch_id):
        rows.persist()
        write_batch(rows.filter("late"), batch_id, {**SERVERS, "topic": "late", "semel.sink.id": "late"})
        write_batch(rows, batch_id, {**SERVERS, "topic": "all", "semel.sink.id": "all"})

    stream.writeStream.foreachBatch(each).option("checkpointLocation", ...).start()

Each call is a commit of its own, with a sink id of its own. After a crash between the two calls the first one is
committed. When Spark repeats the batch, the first call is skipped and the second one writes.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pyspark_semel.sink.options import BATCH_ID, QUERY_ID, SINK_ID, WHY_AN_ID

QUERY = "sql.streaming.queryId"
RUN = "spark.jobGroup.id"
"""Spark runs the jobs of a query in a job group whose id is the run id."""

_written: dict[tuple[str, str], tuple[str, int]] = {}
"""The last run and batch that this process wrote, by sink and query."""


def write_batch(rows: DataFrame, batch_id: int, options: Mapping[str, str], *, query_id: str | None = None) -> None:
    """Write the rows of a batch once, however often Spark repeats the batch. Call it for every batch, also for an
    empty one.

    options: as for `rows.write.format("semel")`. query_id: found automatically inside `foreachBatch`; required with
    Spark Connect and outside a query. Raises ValueError if this batch was already written to the sink, and the errors
    of the sink.
    """
    sink_id = next((value for name, value in options.items() if name.lower() == SINK_ID), None)
    if not sink_id:
        raise ValueError(WHY_AN_ID)
    query_id = query_id or _property(rows, QUERY)
    if query_id is None:
        raise ValueError("write_batch() is called outside foreachBatch: give query_id, a name that stays the same")
    run = _property(rows, RUN) or ""
    if run and _written.get((sink_id, query_id)) == (run, batch_id):
        raise ValueError(
            f"batch {batch_id} was written to sink {sink_id!r} a moment ago: a second write would be skipped as a "
            f"repetition. Give each write_batch() call of a batch a different {SINK_ID}"
        )
    named = {**options, QUERY_ID: query_id, BATCH_ID: str(batch_id)}
    rows.write.format("semel").mode("append").options(**named).save()
    _written[sink_id, query_id] = run, batch_id


def _property(rows: DataFrame, name: str) -> str | None:
    try:
        value = rows.sparkSession.sparkContext.getLocalProperty(name)
    except PySparkException:  # Spark Connect has no context
        return None
    return None if value is None else str(value)
