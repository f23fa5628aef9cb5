"""Runs one task of the sink: writes its rows, and reports to the driver which transaction holds them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from semel import GroupStep, PreparedTransaction, Producer
from semel.structs import RecordMetadata

from pyspark_semel.event_loop import run
from pyspark_semel.sink.batches import Encoder, OutBatch, chunks
from pyspark_semel.sink.identity import now_ms, random_below
from pyspark_semel.sink.options import SinkOptions
from pyspark_semel.sink.producers import discard, independent, member, release
from pyspark_semel.sink.schema import SinkSchema

SPREAD = 1 << 20


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc,unused-ignore]
    """The result of a task. `transaction`: None if there were no rows. `skipped`: the batch was already committed."""

    rows: int
    step: GroupStep | None = None
    token: str = ""
    transaction: PreparedTransaction | None = None
    skipped: bool = False


def write_exactly_once(
    rows: Iterator[pa.RecordBatch], options: SinkOptions, schema: SinkSchema, step: GroupStep, token: str
) -> Written:
    """Write the rows in one transaction of the step, and prepare it.

    Raises SchemaError, and the errors of the producer: ProducerFenced if the step is over.
    """
    writer = _TaskWriter(options, schema, step)
    try:
        count = writer.write(rows)
        prepared = None if writer.producer is None else run(writer.producer.prepare_transaction())
    except BaseException:
        writer.discard()
        raise
    writer.release()
    return Written(count, step, token, prepared)


def write_at_least_once(rows: Iterator[pa.RecordBatch], options: SinkOptions, schema: SinkSchema) -> Written:
    """Write the rows without a transaction. Raises SchemaError, and the errors of the producer."""
    writer = _TaskWriter(options, schema, None)
    try:
        count = writer.write(rows)
        writer.wait_until_stored()
    except BaseException:
        writer.discard()
        raise
    writer.release()
    return Written(count)


class _TaskWriter:
    """Writes the rows of one task. It takes a producer when the first row arrives."""

    def __init__(self, options: SinkOptions, schema: SinkSchema, step: GroupStep | None) -> None:
        self._options, self._step = options, step
        self._encoder = Encoder(schema, options.topic, options.batch_bytes, random_below(SPREAD))
        self._partition_counts: dict[str, int] = {}
        self._sent: list[asyncio.Future[RecordMetadata]] = []
        self.producer: Producer | None = None

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        """Send all rows to a producer; return their count."""
        count = 0
        for chunk in chunks(rows):
            if self.producer is None:
                settings = self._options.settings
                self.producer = run(independent(settings) if self._step is None else member(settings, self._step))
            run(self._send(self.producer, self._encoder.encode(chunk, self._counts)))
            count += chunk.num_rows
        return count

    def wait_until_stored(self) -> None:
        """Wait until all sent batches are stored. Raises the first error."""
        if self.producer is not None:
            run(self._stored(self.producer))

    def release(self) -> None:
        """Keep the producer for the next batch. A generated group has no next batch: stops the producer, which leaves
        the prepared transaction to the driver.
        """
        if self._step is not None and self._options.sink_id is None:
            self.discard()
        elif self.producer is not None:
            run(release(self.producer, self._options.settings, self._step))

    def discard(self) -> None:
        if self.producer is not None:
            producer, self.producer = self.producer, None
            run(discard(producer))

    async def _send(self, producer: Producer, batches: list[OutBatch]) -> None:
        at_ms = now_ms()
        for batch in batches:
            future = await producer.send_encoded(batch.topic, batch.partition, batch.records, batch.count, at_ms, at_ms)
            if self._step is None:
                self._sent.append(future)

    async def _stored(self, producer: Producer) -> None:
        await producer.flush()
        sent, self._sent = self._sent, []
        await asyncio.gather(*sent)

    def _counts(self, topics: list[str]) -> Mapping[str, int]:
        assert self.producer is not None
        unknown = [topic for topic in topics if topic not in self._partition_counts]
        if unknown:
            run(self._ask(self.producer, unknown))
        return self._partition_counts

    async def _ask(self, producer: Producer, topics: list[str]) -> None:
        for topic in topics:
            self._partition_counts[topic] = len(await producer.partitions_for(topic))
