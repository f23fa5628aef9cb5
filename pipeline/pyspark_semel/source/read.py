"""What a task does: a range of offsets becomes Arrow batches. Runs in Spark's workers, on a copy made by pickle."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from semel.batch_reader import BatchReader, CommittedBatches
from semel.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from semel.structs import TopicPartition

from pyspark_semel.columns.decode import Slice, arrow_batches
from pyspark_semel.event_loop import run
from pyspark_semel.source.connection import reader_of
from pyspark_semel.source.offsets import OffsetRange
from pyspark_semel.source.options import SourceOptions

log = logging.getLogger(__name__)

GO_ON = (
    "They may have aged out (retention), or the topic was deleted or made anew. To go on with what is there, set "
    "failOnDataLoss to false"
)

Part = tuple[int, CommittedBatches]
"""Batches, and the first offset that is wanted of them."""


class DataLossError(RuntimeError):
    """Records that the query has not read are gone."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. {GO_ON}")


def read_range(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    """Arrow batches of the records that are there, in order.

    Raises DataLossError where records are gone, unless failOnDataLoss is false; what `BatchReader.read` raises.
    """
    if not isinstance(partition, OffsetRange):
        return  # Spark's way to say that a batch query has no partitions
    found = _whole(reader_of(options.client), options, partition)
    try:
        while (part := run(_next(found))) is not None:
            start, fetched = part
            wanted = Slice(partition.topic, partition.partition, start, partition.end, options.headers)
            yield from arrow_batches(fetched.data, fetched.batches, wanted)
    finally:
        run(_close(found))


async def _whole(reader: BatchReader, options: SourceOptions, wanted: OffsetRange) -> AsyncIterator[Part]:
    """All of the range that is there, each part with where it begins: older records of its batch are gone."""
    partition = TopicPartition(wanted.topic, wanted.partition)
    at = wanted.start
    while at < wanted.end:
        try:
            async for fetched in reader.read(partition, at, wanted.end):
                yield at, fetched
                at = fetched.next_offset
            return
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError) as e:
            if options.fail_on_data_loss:
                raise DataLossError(f"records from {wanted} are gone: {e.message}") from e
            log.warning("records from %r are gone, going on with what is there: %s", wanted, e.message)
            if isinstance(e, UnknownTopicOrPartitionError):
                return
            at = max(at, (await reader.earliest([partition]))[partition])


async def _next(found: AsyncIterator[Part]) -> Part | None:
    return await anext(found, None)


async def _close(found: AsyncIterator[Part]) -> None:
    await found.aclose()  # type: ignore[attr-defined]  # an async generator, by its making
