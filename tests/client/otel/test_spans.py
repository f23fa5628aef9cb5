"""Spans of the clients in `semel.otel`, read from an exporter in memory: names, attributes, links, errors."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

import semel
from client.consuming import take, tp
from client.fake_broker import FakeBroker
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from semel.errors import InvalidRecordError
from semel.otel import Consumer, Producer, spans
from semel_protocol.errors import ErrorCode


class EndedSpans:
    """The spans that have ended."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found


@pytest.fixture
def recorder() -> EndedSpans:
    return EndedSpans()


def producer_of(address: str, recorder: EndedSpans, **settings: Any) -> Producer[Any, Any]:
    return Producer(bootstrap_servers=address, client_id="shop", tracer_provider=recorder.provider, **settings)


def consumer_of(address: str, recorder: EndedSpans, *topics: str, **settings: Any) -> Consumer[Any, Any]:
    merged: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", **settings}
    return Consumer(*topics, bootstrap_servers=address, client_id="till", tracer_provider=recorder.provider, **merged)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_sent_record_has_a_span_with_its_place(bootstrap: str, recorder: EndedSpans) -> None:
    async with producer_of(bootstrap, recorder) as producer:
        stored = await producer.send_and_wait("t", b"value")
    span = recorder.one("send t")
    assert span.kind is SpanKind.PRODUCER
    assert attributes(span) == {
        "messaging.system.name": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.client.id": "shop",
        "kafka.offset": stored.offset,
    }
    assert span.status.status_code is StatusCode.UNSET


async def test_a_record_that_fails_has_a_span_with_the_error(fake_broker: FakeBroker, recorder: EndedSpans) -> None:
    fake_broker.faults.append(int(ErrorCode.INVALID_RECORD))
    async with producer_of(fake_broker.address, recorder) as producer:
        with pytest.raises(InvalidRecordError):
            await producer.send_and_wait("t", b"value")
        with pytest.raises(TypeError):
            await producer.send("t", 17)
    refused, wrong = recorder.named("send t")
    assert attributes(refused)["error.type"] == "InvalidRecordError"
    assert attributes(wrong)["error.type"] == "TypeError"
    assert refused.status.status_code is wrong.status.status_code is StatusCode.ERROR


async def test_an_error_that_the_application_ignores_is_still_reported(
    fake_broker: FakeBroker, recorder: EndedSpans
) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    fake_broker.faults.append(int(ErrorCode.INVALID_RECORD))
    async with producer_of(fake_broker.address, recorder) as producer:
        await producer.send("t", b"value")
        await producer.flush()
    assert any("never retrieved" in each["message"] for each in reported)


async def test_a_consumer_links_to_the_span_that_sent_the_record(bootstrap: str, recorder: EndedSpans) -> None:
    async with producer_of(bootstrap, recorder) as producer:
        await producer.send_and_wait("t", b"value", headers=[("own", b"1"), ("traceparent", b"old")])
    sent = recorder.one("send t").context
    async with consumer_of(bootstrap, recorder, "t") as consumer:
        record = await consumer.getone()
        assert [name for name, _ in record.headers] == ["own", "traceparent"]
        with consumer.processing(record):
            inner = trace.get_current_span().get_span_context()
        await consumer.commit()
    polled, processed = recorder.one("poll t"), recorder.one("process t")
    assert sent is not None
    for span in (polled, processed):
        assert [link.context.span_id for link in span.links] == [sent.span_id]
        assert attributes(span)["kafka.offset"] == 0
        assert attributes(span)["messaging.consumer.group.name"] == "g"
    assert processed.context is not None
    assert inner.span_id == processed.context.span_id
    assert (polled.kind, processed.kind) == (SpanKind.CLIENT, SpanKind.CONSUMER)
    assert attributes(polled)["messaging.operation.type"] == "receive"
    assert attributes(recorder.one("commit"))["messaging.operation.type"] == "settle"


async def test_many_records_have_one_span_with_their_number(bootstrap: str, recorder: EndedSpans) -> None:
    async with producer_of(bootstrap, recorder, linger_ms=5) as producer:
        await asyncio.gather(*[await producer.send("t", None) for _ in range(3)])
    async with consumer_of(bootstrap, recorder, "t") as consumer:
        await take(consumer, 3)
    polled = recorder.one("poll t")
    assert attributes(polled)["messaging.batch.message_count"] == len(polled.links) == 3
    assert attributes(recorder.named("send t")[0])["kafka.message.tombstone"] is True


async def test_records_without_context_are_read_without_links(bootstrap: str, recorder: EndedSpans) -> None:
    async with semel.Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("t", b"1")
        await producer.send_and_wait("t", b"2", headers=[("traceparent", b"nonsense"), ("tracestate", None)])
    async with consumer_of(bootstrap, recorder, "t") as consumer:
        for _ in range(2):
            async for record in consumer:
                with consumer.processing(record):
                    break
    assert [list(span.links) for span in recorder.named("process t")] == [[], []]


async def test_an_error_of_the_processing_is_in_its_span(bootstrap: str, recorder: EndedSpans) -> None:
    async with producer_of(bootstrap, recorder) as producer:
        await producer.send_and_wait("t", b"value")
    async with consumer_of(bootstrap, recorder, group_id=None) as consumer:
        consumer.assign([tp(0)])
        record = await consumer.getone()
        with pytest.raises(KeyError), consumer.processing(record):
            raise KeyError("mine")
    assert attributes(recorder.one("process t"))["error.type"] == "KeyError"


async def test_a_transaction_has_a_span_around_its_sends_and_its_end(bootstrap: str, recorder: EndedSpans) -> None:
    async with producer_of(bootstrap, recorder, transactional_id="x") as producer:
        async with producer.transaction():
            await producer.send("t", b"1")
            await producer.send_offsets_to_transaction({tp(0): 1}, "g")
        with pytest.raises(ValueError, match="mine"):
            await aborted(producer)
        await producer.begin_transaction()
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.abort_transaction()
    whole, failed = recorder.named("transaction")
    assert whole.context is not None
    inside = [
        recorder.one("send t"),
        recorder.one("send_offsets_to_transaction"),
        recorder.named("commit_transaction")[0],
    ]
    assert [span.parent.span_id for span in inside if span.parent] == [whole.context.span_id] * 3
    assert attributes(whole)["semel.transactional_id"] == "x"
    assert whole.status.status_code is StatusCode.UNSET
    assert attributes(failed)["error.type"] == "ValueError"
    assert (len(recorder.named("commit_transaction")), len(recorder.named("abort_transaction"))) == (2, 2)
    assert not trace.get_current_span().get_span_context().is_valid


async def aborted(producer: Producer[Any, Any]) -> None:
    async with producer.transaction():
        raise ValueError("mine")


async def test_encoded_batches_have_a_span_and_no_context(bootstrap: str, recorder: EndedSpans) -> None:
    async with producer_of(bootstrap, recorder) as producer:
        batch = producer.create_batch()
        batch.append(value=b"1")
        batch.append(value=b"2")
        await (await producer.send_batch(batch, "t", partition=0))
    assert attributes(recorder.one("send t"))["messaging.batch.message_count"] == 2
    async with consumer_of(bootstrap, recorder, "t") as consumer:
        assert (await consumer.getone()).headers == ()


def test_names_are_those_of_the_conventions_as_far_as_the_package_has_them() -> None:
    found = importlib.import_module("opentelemetry.semconv._incubating.attributes.messaging_attributes")
    known = {value for name, value in vars(found).items() if name.startswith("MESSAGING_")}
    own = {spans.OPERATION_NAME, spans.OPERATION_TYPE, spans.DESTINATION, spans.PARTITION, spans.CLIENT_ID}
    assert own | {spans.GROUP, spans.BATCH_COUNT} <= known


@pytest.mark.real_time
def test_without_the_module_nothing_of_opentelemetry_is_imported() -> None:
    program = "import sys, semel, semel.aiokafka; print(any(name.startswith('opentelemetry') for name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
