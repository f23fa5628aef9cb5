"""EDGE: runs the queries of a definition until they end, one fails, or a signal stops them.

After one SIGINT, SIGTERM or SIGHUP each query finishes its current batch. After a second one they stop at once. In both
cases the sink guarantees that each batch is written exactly once.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from pyspark_semel.pipeline.definition import Definition
from pyspark_semel.pipeline.readings import Totals, reading
from pyspark_semel.pipeline.screen import Screen
from pyspark_semel.pipeline.tables import short, writers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S = 0.2
SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Windows has no SIGHUP."""
LAST_BATCH_S = 120.0
"""The longest time for the current batch after a stop request."""
RECENT = 20
"""The number of progress reports that Spark keeps between two polls."""
SETTINGS = {"spark.sql.streaming.numRecentProgressUpdates": str(RECENT)}


class QueryFailedError(Exception):
    """A query failed; the message is a short form of its error."""


class StopRequests:
    """Counts the signals that ask to stop."""

    def __init__(self) -> None:
        self.times = 0

    def count(self, number: int, frame: FrameType | None) -> None:
        self.times += 1


@contextmanager
def counting_signals() -> Iterator[StopRequests]:
    """Count the signals that are not ignored. It replaces Spark's own handler, which cancels all jobs."""
    stop_requests = StopRequests()
    counted = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop_requests.count) for number in counted}
    try:
        yield stop_requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(spark: SparkSession, definition: Definition, screen: Screen) -> dict[str, Totals]:
    """Start all queries and return when all have ended; none keeps running after an error.

    Raises DefinitionError before the start, QueryFailedError after it.
    """
    made = writers(spark, definition)
    totals = {name: Totals() for name in made}
    queries: dict[str, StreamingQuery] = {}
    with counting_signals() as stop_requests:
        try:
            for name, writer in made.items():
                queries[name] = writer.start()
                screen.show_message(f"{name}: started, run {queries[name].runId} of query {queries[name].id}")
            _follow(queries, totals, stop_requests, screen)
        finally:
            for query in queries.values():
                if query.isActive:
                    query.stop()
    return totals


def _follow(
    queries: dict[str, StreamingQuery], totals: dict[str, Totals], stop_requests: StopRequests, screen: Screen
) -> None:
    last_batch: dict[str, int] = {}
    left_s = LAST_BATCH_S
    while any(query.isActive for query in queries.values()):
        for name, query in queries.items():
            _show_new_batches(name, query, totals, screen)
        _raise_failed(queries)
        if stop_requests.times and not last_batch:
            last_batch = {name: _batch_in_progress(query) for name, query in queries.items()}
            screen.show_message("stopping: each query finishes its current batch; ask again to stop at once")
        for name, query in queries.items():
            if (
                last_batch
                and query.isActive
                and (stop_requests.times > 1 or left_s < 0 or _is_done(query, last_batch[name]))
            ):
                query.stop()
                screen.show_message(f"{name}: stopped")
        left_s -= POLL_S if last_batch else 0.0
        time.sleep(POLL_S)  # between two polls of the progress reports
    for name, query in queries.items():
        _show_new_batches(name, query, totals, screen)
    _raise_failed(queries)


def _show_new_batches(name: str, query: StreamingQuery, totals: dict[str, Totals], screen: Screen) -> None:
    """Show the batches that Spark has reported for this query since the last poll."""
    newest = query.lastProgress
    last = totals[name].last
    if newest is None or (last is not None and newest["batchId"] <= last.batch):
        return
    for progress in query.recentProgress:
        one = reading(name, json.loads(progress.json) if hasattr(progress, "json") else progress)
        if totals[name].add(one):
            screen.show_batch(one, totals)


def _batch_in_progress(query: StreamingQuery) -> int:
    """Return the number of the batch in progress, -1 if there is none."""
    newest = query.lastProgress
    return (newest["batchId"] + 1 if newest is not None else 0) if query.status["isTriggerActive"] else -1


def _is_done(query: StreamingQuery, batch: int) -> bool:
    newest = query.lastProgress
    is_reported = newest is not None and newest["batchId"] >= batch
    return is_reported or not query.status["isTriggerActive"]


def _raise_failed(queries: dict[str, StreamingQuery]) -> None:
    for name, query in queries.items():
        error = None if query.isActive else query.exception()
        if error is not None:
            raise QueryFailedError(f"{name}: {short(error)}") from error
