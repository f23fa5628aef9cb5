"""The Consumer with spans: for records that are handed out, for their processing, and for commits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry.trace import Span, SpanKind, TracerProvider

import semel.consumer
from semel._consume.commits import Committable
from semel._type_variables import K_co, V_co
from semel.otel.spans import (
    BATCH_COUNT,
    CLIENT_ID,
    GROUP,
    LINKS_MAX,
    OFFSET,
    PARTITION,
    TOMBSTONE,
    Attributes,
    Spans,
    link_to,
)
from semel.structs import ConsumerRecord, TopicPartition


class Consumer(semel.consumer.Consumer[K_co, V_co]):
    """`semel.Consumer` with OpenTelemetry. tracer_provider: None is the global one. All other arguments are as there.

        async for record in consumer:
            with consumer.processing(record):
                ...

    A poll that gives records has a span with links to the spans that sent them. `processing` makes the span of the
    application's own work on a record, with the same link.
    """

    def __init__(self, *topics: str, tracer_provider: TracerProvider | None = None, **settings: Any) -> None:
        super().__init__(*topics, **settings)
        common: Attributes = {CLIENT_ID: self._config.client_id}
        if self._config.group_id is not None:
            common[GROUP] = self._config.group_id
        self._spans = Spans(tracer_provider, common)

    @contextmanager
    def processing(self, record: ConsumerRecord[Any, Any]) -> Iterator[Span]:
        """The span of the work on a record: it is the current one in the block, and has the error that the block
        raises.
        """
        link = link_to(record)
        span = self._spans.start(
            "process", "process", SpanKind.CONSUMER, record.topic, _place(record), () if link is None else (link,)
        )
        with self._spans.around(span):
            yield span

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord[K_co, V_co]:
        record = await super().getone(*partitions)
        self._polled([record])
        return record

    async def __anext__(self) -> ConsumerRecord[K_co, V_co]:
        record = await super().__anext__()
        self._polled([record])
        return record

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: float = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord[K_co, V_co]]]:
        found = await super().getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
        records = [record for rows in found.values() for record in rows]
        if records:
            self._polled(records)
        return found

    async def commit(self, offsets: Mapping[TopicPartition, Committable] | None = None) -> None:
        with self._spans.around(self._spans.start("commit", "settle", SpanKind.CLIENT)):
            await super().commit(offsets)

    def _polled(self, records: Sequence[ConsumerRecord[K_co, V_co]]) -> None:
        """A span of records that were handed out. It begins and ends now: the wait for records is not work."""
        first = records[0]
        is_one_topic = len(records) == 1 or all(record.topic == first.topic for record in records)
        attributes = _place(first) if len(records) == 1 else {BATCH_COUNT: len(records)}
        links = [link for record in records[:LINKS_MAX] if (link := link_to(record)) is not None]
        topic = first.topic if is_one_topic else None
        self._spans.start("poll", "receive", SpanKind.CLIENT, topic, attributes, links).end()


def _place(record: ConsumerRecord[Any, Any]) -> Attributes:
    place: Attributes = {PARTITION: str(record.partition), OFFSET: record.offset}
    return place if record.value is not None else {**place, TOMBSTONE: True}
