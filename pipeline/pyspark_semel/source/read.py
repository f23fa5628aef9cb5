"""Reads a range of offsets as Arrow batches, in a task on one of Spark's workers."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from semel.batch_reader import BatchReader, CommittedBatches
from semel.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from semel.structs import TopicPartition
from semel_protocol.errors import PortableError

from pyspark_semel.columns.decode import SparkSlice, arrow_batches
from pyspark_semel.event_loop import run
from pyspark_semel.source.connection import reader_of
from pyspark_semel.source.offsets import OffsetRange
from pyspark_semel.source.options import SourceOptions

log = logging.getLogger(__name__)

LOSS_ADVICE = (
    "Retention may have removed them, or the topic was deleted or created again. To continue with the remaining "
    "records, set failOnDataLoss to false"
)

UNSELECTED_ADVICE = (
    "Select them again (subscribe, subscribePattern or assign). To continue without their further records, set "
    "failOnDataLoss to false"
)

Part = tuple[int, CommittedBatches]
"""Batches, and the first wanted offset of them."""


class DataLossError(PortableError, RuntimeError):
    """Records that the query has not read are gone, or would be left out."""

    def __init__(self, what: str, advice: str = LOSS_ADVICE) -> None:
        super().__init__(f"{what}. {advice}")


def read_range(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    """Yield Arrow batches of the existing records, in order.

    Raises DataLossError if records are gone, unless failOnDataLoss is false, and the errors of `BatchReader.read`.
    """
    if not isinstance(partition, OffsetRange):
        return  # Spark passes this for a batch query without partitions
    found = _whole(reader_of(options.client), options, partition)
    try:
        while (part := run(_next(found))) is not None:
            start, fetched = part
            wanted = SparkSlice(partition.topic, partition.partition, start, partition.end, options.headers)
            yield from arrow_batches(fetched.data, fetched.batches, wanted)
    finally:
        run(_close(found))


async def _whole(reader: BatchReader, options: SourceOptions, wanted: OffsetRange) -> AsyncIterator[Part]:
    """Yield the existing records of the range, each part with its first wanted offset: older records of the batch are
    skipped.
    """
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
            log.warning("records_gone: %r, continuing with the remaining records: %s", wanted, e.message)
            if isinstance(e, UnknownTopicOrPartitionError):
                return
            at = max(at, (await reader.earliest([partition]))[partition])


async def _next(found: AsyncIterator[Part]) -> Part | None:
    return await anext(found, None)


async def _close(found: AsyncIterator[Part]) -> None:
    await found.aclose()  # type: ignore[attr-defined]  # an async generator, by its making
