"""The Producer with spans: one for each record that is sent, and for commits, aborts and offsets of transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from opentelemetry.trace import Span, SpanKind, TracerProvider

import semel.producer
from semel._config.arguments import checked
from semel._consume.commits import Committable
from semel._produce.record_batch import GivenHeaders, RecordBatch, checked_headers
from semel._type_variables import K_contra, V_contra
from semel.otel.spans import (
    BATCH_COUNT,
    CLIENT_ID,
    GROUP,
    OFFSET,
    PARTITION,
    TOMBSTONE,
    TRANSACTIONAL_ID,
    Attributes,
    Spans,
    fail,
    with_context,
)
from semel.structs import ConsumerGroupMetadata, RecordMetadata, TopicPartition
from semel.transaction import Transaction


class Producer(semel.producer.Producer[K_contra, V_contra]):
    """`semel.Producer` with OpenTelemetry. tracer_provider: None is the global one. All other arguments are settings.

    A span of a record begins with `send` and ends when the record is stored or has failed. Each record gets the headers
    of its span's context. Records that the application has encoded itself (`send_batch`, `send_encoded`) get none.
    """

    def __init__(self, *, tracer_provider: TracerProvider | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        common: Attributes = {CLIENT_ID: self._config.client_id}
        if self._config.transactional_id is not None:
            common[TRANSACTIONAL_ID] = self._config.transactional_id
        self._spans = Spans(tracer_provider, common)

    async def send(
        self,
        topic: str,
        value: V_contra = None,  # type: ignore[assignment]
        key: K_contra = None,  # type: ignore[assignment]
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: GivenHeaders | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        attributes: Attributes = {TOMBSTONE: True} if value is None else {}
        span = self._spans.start("send", "send", SpanKind.PRODUCER, topic, attributes)
        try:
            future = await super().send(
                topic, value, key, partition, timestamp_ms, with_context(checked_headers(headers), span)
            )
        except BaseException as error:
            fail(span, error)
            span.end()
            raise
        return _ends(span, future)

    @checked
    async def send_batch(
        self, batch: RecordBatch[Any, Any], topic: str, *, partition: int | None
    ) -> asyncio.Future[RecordMetadata]:
        span = self._spans.start("send", "send", SpanKind.CLIENT, topic, {BATCH_COUNT: batch.record_count()})
        try:
            future = await super().send_batch(batch, topic, partition=partition)
        except BaseException as error:
            fail(span, error)
            span.end()
            raise
        return _ends(span, future)

    @checked
    async def send_encoded(
        self,
        topic: str,
        partition: int | None,
        records: bytes | bytearray | memoryview,
        count: int,
        first_timestamp_ms: int,
        max_timestamp_ms: int,
    ) -> asyncio.Future[RecordMetadata]:
        span = self._spans.start("send", "send", SpanKind.CLIENT, topic, {BATCH_COUNT: count})
        try:
            future = await super().send_encoded(topic, partition, records, count, first_timestamp_ms, max_timestamp_ms)
        except BaseException as error:
            fail(span, error)
            span.end()
            raise
        return _ends(span, future)

    async def commit_transaction(self) -> None:
        with self._spans.around(self._spans.start("commit_transaction", "settle", SpanKind.CLIENT)):
            await super().commit_transaction()

    async def abort_transaction(self) -> None:
        with self._spans.around(self._spans.start("abort_transaction", "settle", SpanKind.CLIENT)):
            await super().abort_transaction()

    def transaction(self) -> Transaction:
        return _TracedTransaction(super().transaction(), self._spans)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Committable], group_id: str | ConsumerGroupMetadata
    ) -> None:
        group = group_id if isinstance(group_id, str) else getattr(group_id, "group_id", "")
        span = self._spans.start("send_offsets_to_transaction", "settle", SpanKind.CLIENT, attributes={GROUP: group})
        with self._spans.around(span):
            await super().send_offsets_to_transaction(offsets, group_id)


class _TracedTransaction(Transaction):
    """A span around the block of a transaction, with its commit or abort. Spans of the block are children of it."""

    def __init__(self, inner: Transaction, spans: Spans) -> None:
        self._inner, self._spans = inner, spans

    async def __aenter__(self) -> Transaction:
        self._around = self._spans.around(self._spans.start("transaction", None, SpanKind.INTERNAL))
        self._around.__enter__()
        try:
            await self._inner.__aenter__()
        except BaseException as error:
            self._end(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        operation = "commit_transaction" if error is None else "abort_transaction"
        try:
            with self._spans.around(self._spans.start(operation, "settle", SpanKind.CLIENT)):
                await self._inner.__aexit__(kind, error, trace)
        except BaseException as failure:
            self._end(failure)
            raise
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        try:
            self._around.__exit__(None if error is None else type(error), error, None)
        except BaseException as raised:
            if raised is not error:
                raise


def _ends(span: Span, future: asyncio.Future[RecordMetadata]) -> asyncio.Future[RecordMetadata]:
    """End the span when the future is done."""

    def done(future: asyncio.Future[RecordMetadata]) -> None:
        # `exception()` would mark the error as retrieved, and asyncio could not report that the application ignores it.
        error = None if future.cancelled() else getattr(future, "_exception", None)
        if error is not None:
            fail(span, error)
        elif not future.cancelled():
            stored = future.result()
            span.set_attribute(PARTITION, str(stored.partition))
            if stored.offset >= 0:
                span.set_attribute(OFFSET, stored.offset)
        span.end()

    future.add_done_callback(done)
    return future
