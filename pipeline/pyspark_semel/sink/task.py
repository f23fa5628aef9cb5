"""What a task of the sink does: writes its rows, and tells the driver which transaction holds them."""

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
from pyspark_semel.sink.identity import any_number, now_ms
from pyspark_semel.sink.options import SinkOptions
from pyspark_semel.sink.producers import discard, independent, keep, member
from pyspark_semel.sink.schema import SinkSchema

SPREAD = 1 << 20


@dataclass(frozen=True)
class Written(WriterCommitMessage):  # type: ignore[misc,unused-ignore]
    """What a task has done. `transaction`: None where there was nothing to write. `skipped`: committed before."""

    rows: int
    step: GroupStep | None = None
    token: str = ""
    transaction: PreparedTransaction | None = None
    skipped: bool = False


def write_exactly_once(
    rows: Iterator[pa.RecordBatch], options: SinkOptions, schema: SinkSchema, step: GroupStep, token: str
) -> Written:
    """Raises SchemaError, and what the producer raises: ProducerFenced when the step is over."""
    writing = _Writing(options, schema, step)
    try:
        count = writing.write(rows)
        prepared = None if writing.producer is None else run(writing.producer.prepare_transaction())
    except BaseException:
        writing.give_up()
        raise
    writing.done()
    return Written(count, step, token, prepared)


def write_at_least_once(rows: Iterator[pa.RecordBatch], options: SinkOptions, schema: SinkSchema) -> Written:
    """Raises SchemaError, and what the producer raises."""
    writing = _Writing(options, schema, None)
    try:
        count = writing.write(rows)
        writing.hear()
    except BaseException:
        writing.give_up()
        raise
    writing.done()
    return Written(count)


class _Writing:
    """One task's writing. There is no producer before there is a row."""

    def __init__(self, options: SinkOptions, schema: SinkSchema, step: GroupStep | None) -> None:
        self._options, self._step = options, step
        self._encoder = Encoder(schema, options.topic, options.batch_bytes, any_number(SPREAD))
        self._partition_counts: dict[str, int] = {}
        self._sent: list[asyncio.Future[RecordMetadata]] = []
        self.producer: Producer | None = None

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        """Hands all rows to a producer; how many there were."""
        count = 0
        for chunk in chunks(rows):
            if self.producer is None:
                settings = self._options.settings
                self.producer = run(independent(settings) if self._step is None else member(settings, self._step))
            run(self._send(self.producer, self._encoder.encode(chunk, self._counts)))
            count += chunk.num_rows
        return count

    def hear(self) -> None:
        """Waits until all that was sent is stored. Raises why something is not."""
        if self.producer is not None:
            run(self._stored(self.producer))

    def done(self) -> None:
        if self.producer is not None:
            run(keep(self.producer, self._options.settings, self._step))

    def give_up(self) -> None:
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
