"""PURE: encodes the rows from Spark as batches, each for one partition of one topic.

A row with a partition goes to this partition. A row with a key goes to the partition of Java's partitioner. Other rows
fill one batch after another, each in the next partition. Rows of one partition keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_semel.columns.encode import Ints, as_binary, batch_starts, encode, header_tails, size_bounds
from pyspark_semel.columns.partitions import for_keys
from pyspark_semel.sink.schema import SchemaError, SinkSchema

FREE = -1
"""The partition number of a row that may go to any partition."""
CHUNK_BYTES = 4 * 1024 * 1024
"""Arrow batches are joined up to this size before they are encoded, because there may be many partitions."""
JOINED_BYTES_MAX = 512 * 1024 * 1024
"""Offsets of a binary column are 32 bits wide: larger data is encoded in parts."""
SMALL = 1 << 15


class OutBatch(msgspec.Struct, frozen=True):
    """The records of one batch, as arguments of `Producer.send_encoded`."""

    topic: str
    partition: int
    records: memoryview
    count: int


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Regroup the rows into chunks that are neither too small nor too large."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        gathered.append(batch)
        size += batch.nbytes
        if size >= CHUNK_BYTES:
            yield from _pieces(gathered, size)
            gathered, size = [], 0
    if gathered:
        yield from _pieces(gathered, size)


def _pieces(gathered: list[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    if size > JOINED_BYTES_MAX:
        for batch in gathered:
            rows = max(1, batch.num_rows * JOINED_BYTES_MAX // (2 * max(batch.nbytes, JOINED_BYTES_MAX // 2)))
            for at in range(0, batch.num_rows, rows):
                yield batch.slice(at, rows)
    else:
        yield gathered[0] if len(gathered) == 1 else pa.concat_batches(gathered)


def topics_of(
    rows: pa.RecordBatch, schema: SinkSchema, default: str | None
) -> tuple[list[str], NDArray[np.int64] | None]:
    """Return the topics of the rows, and the topic index of each row: None if there is only one topic.

    The option overrides the column, as in Spark's Kafka sink. Raises SchemaError for a row without a topic.
    """
    if default is not None:
        return [default], None
    assert schema.topic is not None, "sink_schema() requires a topic"
    column = rows.column(schema.topic)
    if column.null_count:
        raise SchemaError("a row has no topic (null): set the option 'topic', or fill the column")
    coded = column.dictionary_encode()
    topics = coded.dictionary.to_pylist()
    return topics, None if len(topics) == 1 else np.asarray(coded.indices).astype(np.int64)


class Encoder:
    """Encodes chunks one after the other; keeps the next partition for rows without a key and partition."""

    def __init__(self, schema: SinkSchema, topic: str | None, batch_bytes: int, first_free: int) -> None:
        self._schema, self._topic, self._batch_bytes = schema, topic, batch_bytes
        self._next_free = first_free

    def encode(
        self, rows: pa.RecordBatch, partition_counts: Callable[[list[str]], Mapping[str, int]]
    ) -> list[OutBatch]:
        """Return all batches of a chunk. `partition_counts` counts partitions of topics. Raises SchemaError."""
        schema = self._schema
        topics, topic_of_row = topics_of(rows, schema, self._topic)
        counts = partition_counts(topics)
        values = as_binary(rows.column(schema.value))
        keys = None if schema.key is None else as_binary(rows.column(schema.key))
        if keys is not None and keys.null_count == len(keys):
            keys = None
        tails = None if schema.headers is None else _tails(rows.column(schema.headers))
        bounds = size_bounds(keys, values, tails)
        place = self._places(rows, keys, bounds, [counts[topic] for topic in topics], topics, topic_of_row)
        order = _order(place)
        if order is not None:
            taken = pa.array(order)
            place, bounds, values = place[order], bounds[order], values.take(taken)
            keys = None if keys is None else keys.take(taken)
            tails = None if tails is None else tails.take(taken)
        groups = np.flatnonzero(np.diff(place, prepend=-1))
        starts = batch_starts(bounds, groups, self._batch_bytes)
        ends = np.append(starts[1:], len(place)).tolist()
        records = encode(keys, values, tails, starts)
        places = place[starts].tolist()
        return [
            OutBatch(topics[at >> 32], at & 0xFFFFFFFF, part, end - start)
            for at, part, start, end in zip(places, records, starts.tolist(), ends, strict=True)
        ]

    def _places(
        self,
        rows: pa.RecordBatch,
        keys: pa.Array | None,
        bounds: Ints,
        counts: list[int],
        topics: list[str],
        topic_of_row: NDArray[np.int64] | None,
    ) -> Ints:
        """Return the topic and the partition of each row as one number."""
        place = np.full(rows.num_rows, FREE, np.int64)
        if self._schema.partition is not None:
            chosen = rows.column(self._schema.partition)
            place = np.asarray(pc.fill_null(chosen, FREE)).astype(np.int64)
            if pc.any(pc.less(chosen, 0)).as_py():
                raise SchemaError(f"a row has partition {pc.min(chosen).as_py()}: write null to let the sink choose")
        for at, (topic, count) in enumerate(zip(topics, counts, strict=True)):
            mine = np.arange(len(place)) if topic_of_row is None else np.flatnonzero(topic_of_row == at)
            found = place[mine]
            if int(found.max(initial=FREE)) >= count:
                raise SchemaError(f"a row has partition {int(found.max())}, and topic {topic!r} has 0 to {count - 1}")
            self._choose(found, None if keys is None else _at(keys, mine, len(place)), bounds[mine], count)
            place[mine] = found + (at << 32)
        return place

    def _choose(self, place: Ints, keys: pa.Array | None, bounds: Ints, count: int) -> None:
        """Choose a partition for each row that has none."""
        free = place == FREE
        if keys is not None and free.any():
            keyed = free & np.asarray(keys.is_valid())
            if keyed.any():
                place[keyed] = for_keys(keys, count)[keyed]
            free &= ~keyed
        rows = np.flatnonzero(free)
        if len(rows):
            fills = (np.cumsum(bounds[rows]) - 1) // self._batch_bytes
            place[rows] = (self._next_free + fills) % count
            self._next_free += int(fills[-1]) + 1


def _at(column: pa.Array, rows: Ints, count: int) -> pa.Array:
    return column if len(rows) == count else column.take(pa.array(rows))


def _order(place: Ints) -> Ints | None:
    """Return the row order sorted by place, stable; None if the rows are already sorted."""
    if bool((np.diff(place) >= 0).all()):
        return None
    small = place.astype(np.int16) if int(place.max()) < SMALL else place  # numpy sorts 16-bit integers by radix sort
    return np.argsort(small, kind="stable")


def _tails(headers: pa.Array) -> pa.Array:
    try:
        return header_tails(headers)
    except ValueError as error:
        raise SchemaError(f"column 'headers': {error}") from None
