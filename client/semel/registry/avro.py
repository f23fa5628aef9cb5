"""Avro: `AvroSerializer` and `AvroDeserializer`, with the schemas in a schema registry. Needs `semel[avro]`."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import decimal
import io
import json
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, overload

import fastavro
import msgspec
from confluent_kafka.schema_registry import Schema

from semel.registry.framing import PREFIX, prefix, read_schema_id
from semel.registry.schemas import Field, SchemasById, SubjectNames, latest_of, referenced, schema_id_of, subject_of
from semel.serializers import Deserializer, NotReady, T, T_co, T_contra

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

AvroSchema = str | Mapping[str, Any]
"""A schema as JSON text, or as the dict of it."""
BUILTIN_TYPES = (
    bytes, bytearray, datetime.datetime, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal, uuid.UUID,
)  # fmt: skip
"""Avro has these types, as its own or as logical ones, so they are left as they are."""


class AvroSerializer(Generic[T_contra]):
    """Writes values as Avro with the id of their schema. Made by `load`.

    serializer = await AvroSerializer[Order].load(registry, SCHEMA, topic="orders")
    async with Producer(value_serializer=serializer) as producer:
        await producer.send("orders", Order("teapot", 2))

    Values are dicts, msgspec structs, dataclasses, or what else the schema describes. One serializer writes one schema;
    for several topics, call their serializers and send bytes.
    """

    def __init__(self, schema_id: int, parsed: Any) -> None:
        self.schema_id = schema_id
        self._prefix, self._parsed = prefix(schema_id), parsed

    @classmethod
    async def load(
        cls,
        registry: AsyncSchemaRegistryClient,
        schema: AvroSchema | None = None,
        *,
        topic: str | None = None,
        field: Field = "value",
        subject_names: SubjectNames = "topic",
        auto_register: bool = True,
    ) -> Self:
        """Ask the registry for the id of the schema, once.

        schema: None takes the latest version of the subject, which needs subject_names='topic'.
        topic, field: parts of the name of the subject; see `subject_names`.
        subject_names: 'topic' is `<topic>-<field>`, 'record' the full name of the record, 'topic-record' both.
        auto_register: register the schema if it is not registered. False requires that it is.

        Raises RegistryError, for example for a schema that is not compatible with the subject's older ones,
        RegistryUnavailableError, and fastavro's SchemaParseException.
        """
        if schema is None:
            if subject_names != "topic":
                raise ValueError(f"subject_names={subject_names!r} needs a schema: its name is a part of the subject")
            schema_id, found = await latest_of(registry, subject_of("topic", topic, field, ""))
            return cls(schema_id, await _parsed_with_references(registry, found))
        text = schema.strip() if isinstance(schema, str) else json.dumps(schema)
        parsed = fastavro.parse_schema(json.loads(text))
        subject = subject_of(subject_names, topic, field, _full_name(parsed))
        return cls(await schema_id_of(registry, subject, Schema(text, "AVRO"), auto_register=auto_register), parsed)

    def __call__(self, value: T_contra | None) -> bytes | None:
        """The bytes; None of None. Raises TypeError or ValueError for a value that does not fit the schema."""
        if value is None:
            return None
        plain: Any = value
        if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
            plain = msgspec.to_builtins(value, builtin_types=BUILTIN_TYPES)
        out = io.BytesIO(self._prefix)
        out.seek(PREFIX.size)
        fastavro.schemaless_writer(out, self._parsed, plain)
        return out.getvalue()


class AvroDeserializer(Deserializer[T_co]):
    """Reads Avro by the schema that each value names, and loads an unknown schema from the registry.

    consumer = Consumer("orders", value_deserializer=AvroDeserializer(registry, Order))

    value_type: the values are converted to this type by msgspec, and checked. None: dicts and simple values.
    reader_schema: values are read as this schema, by Avro's rules for schema resolution. None: as they were written.
    """

    @overload
    def __init__(
        self: AvroDeserializer[Any],
        registry: AsyncSchemaRegistryClient,
        value_type: None = None,
        *,
        reader_schema: AvroSchema | None = None,
        nullable: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: AvroDeserializer[T],
        registry: AsyncSchemaRegistryClient,
        value_type: type[T],
        *,
        reader_schema: AvroSchema | None = None,
        nullable: Literal[False] = False,
    ) -> None: ...
    @overload
    def __init__(
        self: AvroDeserializer[T | None],
        registry: AsyncSchemaRegistryClient,
        value_type: type[T],
        *,
        reader_schema: AvroSchema | None = None,
        nullable: bool,
    ) -> None: ...
    def __init__(
        self,
        registry: AsyncSchemaRegistryClient,
        value_type: Any = None,
        *,
        reader_schema: AvroSchema | None = None,
        nullable: bool = False,
    ) -> None:
        super().__init__(nullable=nullable)
        self._type = value_type
        self.value_type = Any if value_type is None else value_type
        self._reader: Any = None
        if reader_schema is not None:
            wanted = json.loads(reader_schema) if isinstance(reader_schema, str) else dict(reader_schema)
            self._reader = fastavro.parse_schema(wanted)
        self._schemas: SchemasById[Any] = SchemasById(
            registry, lambda schema: _parsed_with_references(registry, schema)
        )

    def read(self, data: bytes) -> T_co:
        """The value. Raises NotReady for the consumer while its schema is not loaded."""
        writer = self._schemas.get(read_schema_id(data))
        body = io.BytesIO(data)
        body.seek(PREFIX.size)
        value: Any = fastavro.schemaless_reader(body, writer, self._reader)
        if body.tell() != len(data):
            raise ValueError(f"{len(data) - body.tell()} bytes follow the value: it does not have the schema it names")
        if self._type is not None:
            value = msgspec.convert(value, self._type, builtin_types=BUILTIN_TYPES)
        return value  # type: ignore[no-any-return]

    async def decode(self, data: bytes | None) -> T_co:
        """The value, as the consumer gets it: waits for the schema. For bytes from elsewhere, such as dead letters."""
        while True:
            try:
                return self(data)
            except NotReady as missing:
                loading = missing.load()
                await asyncio.wait((loading,))
                loading.result()


async def _parsed_with_references(registry: AsyncSchemaRegistryClient, schema: Schema) -> Any:
    if schema.schema_type != "AVRO":
        raise ValueError(f"it has a schema of the type {schema.schema_type}, not AVRO")
    named: dict[str, Any] = {}
    for text in await referenced(registry, schema):
        fastavro.parse_schema(json.loads(text), named_schemas=named)
    return fastavro.parse_schema(json.loads(schema.schema_str or ""), named_schemas=named)


def _full_name(parsed: Any) -> str:
    """The name of a record, an enum or a fixed, with its namespace; the name of the type for others."""
    if isinstance(parsed, dict):
        return str(parsed.get("name") or parsed["type"])
    return parsed if isinstance(parsed, str) else "union"
