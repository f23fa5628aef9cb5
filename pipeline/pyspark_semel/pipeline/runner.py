"""EDGE: run the queries of a definition until they end, one fails, or somebody asks to stop.

Asked once (SIGINT, SIGTERM), each query finishes the batch it is at; asked twice, they stop at once. Either way nothing
is lost and nothing is written twice: that is the sink's business, not that of a good end.
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
LAST_BATCH_S = 120.0
"""How long the batch under way may take once somebody has asked to stop."""
RECENT = 20
"""Batches that Spark keeps for us between two looks."""
SETTINGS = {"spark.sql.streaming.numRecentProgressUpdates": str(RECENT)}


class QueryFailedError(Exception):
    """A query ended by itself with an error, which this tells shortly."""


class Asked:
    """How often somebody asked to stop."""

    def __init__(self) -> None:
        self.times = 0

    def once_more(self, number: int, frame: FrameType | None) -> None:
        self.times += 1


@contextmanager
def listening() -> Iterator[Asked]:
    """SIGINT and SIGTERM are counted; Spark's own handler, which cancels all jobs, has to wait."""
    asked = Asked()
    before = {number: signal.signal(number, asked.once_more) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(spark: SparkSession, definition: Definition, screen: Screen) -> dict[str, Totals]:
    """Start all queries and stay until all have ended. Raises DefinitionError before and QueryFailedError after the
    start; whatever happens, none of them runs on."""
    made = writers(spark, definition)
    totals = {name: Totals() for name in made}
    queries: dict[str, StreamingQuery] = {}
    with listening() as asked:
        try:
            for name, writer in made.items():
                queries[name] = writer.start()
                screen.says(f"{name}: started, run {queries[name].runId} of query {queries[name].id}")
            _follow(queries, totals, asked, screen)
        finally:
            for query in queries.values():
                if query.isActive:
                    query.stop()
    return totals


def _follow(queries: dict[str, StreamingQuery], totals: dict[str, Totals], asked: Asked, screen: Screen) -> None:
    last_batch: dict[str, int] = {}
    patience = LAST_BATCH_S
    while any(query.isActive for query in queries.values()):
        for name, query in queries.items():
            _look(name, query, totals, screen)
        _raise_failed(queries)
        if asked.times and not last_batch:
            last_batch = {name: _batch_under_way(query) for name, query in queries.items()}
            screen.says("asked to stop: the batches under way come to their end; ask again to stop at once")
        for name, query in queries.items():
            if last_batch and query.isActive and (asked.times > 1 or patience < 0 or _is_done(query, last_batch[name])):
                query.stop()
                screen.says(f"{name}: stopped")
        patience -= POLL_S if last_batch else 0.0
        time.sleep(POLL_S)  # between two looks at what Spark tells
    for name, query in queries.items():
        _look(name, query, totals, screen)
    _raise_failed(queries)


def _look(name: str, query: StreamingQuery, totals: dict[str, Totals], screen: Screen) -> None:
    """Take over what Spark has told of this query since the last look."""
    newest = query.lastProgress
    last = totals[name].last
    if newest is None or (last is not None and newest["batchId"] <= last.batch):
        return
    for progress in query.recentProgress:
        one = reading(name, json.loads(progress.json) if hasattr(progress, "json") else progress)
        if totals[name].take(one):
            screen.took(one, totals)


def _batch_under_way(query: StreamingQuery) -> int:
    """The number of the batch that should still end; -1 when none is under way."""
    newest = query.lastProgress
    return (newest["batchId"] + 1 if newest is not None else 0) if query.status["isTriggerActive"] else -1


def _is_done(query: StreamingQuery, batch: int) -> bool:
    newest = query.lastProgress
    is_told = newest is not None and newest["batchId"] >= batch
    return is_told or not query.status["isTriggerActive"]


def _raise_failed(queries: dict[str, StreamingQuery]) -> None:
    for name, query in queries.items():
        error = None if query.isActive else query.exception()
        if error is not None:
            raise QueryFailedError(f"{name}: {short(error)}") from error
