"""The second way into the sink: from one's own function in `foreachBatch`, exactly once all the same.

    def each(rows, batch_id):
        rows.persist()
        write_batch(rows.filter("late"), batch_id, {**SERVERS, "topic": "late", "semel.sink.id": "late"})
        write_batch(rows, batch_id, {**SERVERS, "topic": "all", "semel.sink.id": "all"})

    stream.writeStream.foreachBatch(each).option("checkpointLocation", ...).start()

Each call is a commit of its own, with a sink id of its own: a crash between the two leaves the first one committed, and
the batch, when it comes again, skips it and goes on with the second.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pyspark_semel.sink.options import BATCH_ID, QUERY_ID, SINK_ID, WHY_AN_ID

QUERY = "sql.streaming.queryId"
RUN = "spark.jobGroup.id"
"""Spark runs a query's jobs in a group that has the id of the run."""

_written: dict[tuple[str, str], tuple[str, int]] = {}
"""By sink and query: the run and the batch that wrote there last. Of this process."""


def write_batch(rows: DataFrame, batch_id: int, options: Mapping[str, str], *, query_id: str | None = None) -> None:
    """Writes the rows of a batch once, however often the batch comes. To be called for every batch, also an empty one.

    options: as for `rows.write.format("semel")`. query_id: of the query, found out inside `foreachBatch`; with Spark
    Connect, and outside of a query, it has to be given. Raises ValueError for a sink that this batch was written to
    already, and what the sink raises.
    """
    sink_id = next((value for name, value in options.items() if name.lower() == SINK_ID), None)
    if not sink_id:
        raise ValueError(WHY_AN_ID)
    query_id = query_id or _property(rows, QUERY)
    if query_id is None:
        raise ValueError("write_batch() is called outside of foreachBatch: give query_id, a name that stays the same")
    run = _property(rows, RUN) or ""
    if run and _written.get((sink_id, query_id)) == (run, batch_id):
        raise ValueError(
            f"batch {batch_id} was written to sink {sink_id!r} a moment ago: a second write would be skipped as a "
            f"repetition. Give each write_batch() of a batch another {SINK_ID}"
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
