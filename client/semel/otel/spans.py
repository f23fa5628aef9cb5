"""Makes the spans of a client: names, kinds and attributes by the messaging conventions of OpenTelemetry, v1.45.

No span has keys or values of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider
from semel_protocol import __version__

from semel.structs import ConsumerRecord

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.45.0"
SYSTEM: Final = "messaging.system.name"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
CLIENT_ID: Final = "messaging.client.id"
GROUP: Final = "messaging.consumer.group.name"
BATCH_COUNT: Final = "messaging.batch.message_count"
OFFSET: Final = "kafka.offset"
TOMBSTONE: Final = "kafka.message.tombstone"
ERROR_TYPE: Final = "error.type"
TRANSACTIONAL_ID: Final = "semel.transactional_id"
"""The conventions have no name for it."""
LINKS_MAX: Final = 128
"""Links of one span; the SDK keeps no more by default."""

Headers = list[tuple[str, bytes | None]]
Attributes = dict[str, Any]


class _HeaderSetter(Setter[Headers]):
    def set(self, carrier: Headers, key: str, value: str) -> None:
        carrier.append((key, value.encode()))


class _HeaderGetter(Getter[Mapping[str, bytes]]):
    def get(self, carrier: Mapping[str, bytes], key: str) -> list[str] | None:
        value = carrier.get(key)
        return None if value is None else [value.decode(errors="replace")]

    def keys(self, carrier: Mapping[str, bytes]) -> list[str]:
        return list(carrier)


_SETTER, _GETTER = _HeaderSetter(), _HeaderGetter()


class Spans:
    """The spans of one client. common: attributes of all of them."""

    def __init__(self, provider: TracerProvider | None, common: Attributes) -> None:
        self._tracer = trace.get_tracer("semel", __version__, provider, SCHEMA_URL)
        self._common: Attributes = {SYSTEM: "kafka", **common}

    def start(
        self,
        operation: str,
        kind_of_operation: str | None,
        kind: SpanKind,
        target: str | None = None,
        attributes: Attributes | None = None,
        links: Iterable[Link] = (),
    ) -> Span:
        """A span that the caller ends. target: the topic in its name, None for none or several."""
        own: Attributes = {**self._common, OPERATION_NAME: operation}
        if kind_of_operation is not None:
            own[OPERATION_TYPE] = kind_of_operation
        if target is not None:
            own[DESTINATION] = target
        name = operation if target is None else f"{operation} {target}"
        return self._tracer.start_span(name, kind=kind, attributes=own | (attributes or {}), links=list(links))

    @contextmanager
    def around(self, span: Span) -> Iterator[Span]:
        """Make the span the current one for the block, then end it, with the error that the block raises."""
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield span
            except BaseException as error:
                fail(span, error)
                raise


def fail(span: Span, error: BaseException) -> None:
    """Note the error of the operation."""
    span.set_attribute(ERROR_TYPE, type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def with_context(headers: Iterable[tuple[str, bytes | None]] | None, span: Span) -> Headers:
    """The headers, and those of the span's context (`traceparent`). Earlier ones of these names are replaced."""
    added: Headers = []
    propagate.inject(added, trace.set_span_in_context(span), _SETTER)
    names = [name for name, _ in added]
    return [header for header in headers or () if header[0] not in names] + added


def context_of(record: ConsumerRecord[Any, Any]) -> Context:
    """The trace context in the headers of a record; an empty one if it has none."""
    found = {name: value for name, value in record.headers if value is not None}
    return propagate.extract(found, Context(), _GETTER)


def link_to(record: ConsumerRecord[Any, Any]) -> Link | None:
    """The link to the span that sent a record; None if its headers have no trace context."""
    if not record.headers:
        return None
    found = trace.get_current_span(context_of(record)).get_span_context()
    return Link(found) if found.is_valid else None
