"""Protobuf: `ProtobufSerializer` and `ProtobufDeserializer`, with the schemas in a schema registry. Needs
`semel[protobuf]`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, Self, TypeVar, overload

from confluent_kafka.schema_registry import Schema, SchemaReference

from semel.registry.framing import PREFIX, message_indexes, prefix, read_schema_id, skip_message_indexes
from semel.registry.schemas import Field, SubjectNames, explained, schema_id_of, subject_of
from semel.serializers import Deserializer, T_co

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

KNOWN_FILES = ("google/protobuf/", "google/type/", "confluent/")
"""Every registry has these files, so they are not registered."""


class GeneratedMessage(Protocol):
    """The used methods of a generated message class."""

    DESCRIPTOR: Any

    def SerializeToString(self) -> bytes: ...  # noqa: N802  (protobuf's name)

    @classmethod
    def FromString(cls, s: bytes) -> Self: ...  # noqa: N802


M = TypeVar("M", bound=GeneratedMessage)


class ProtobufSerializer(Generic[M]):
    """Writes messages of one class with the id of their schema. Made by `load`.

    serializer = await ProtobufSerializer.load(registry, Order, topic="orders")
    async with Producer(value_serializer=serializer) as producer:
        await producer.send("orders", Order(item="teapot", count=2))
    """

    def __init__(self, schema_id: int, message_type: type[M]) -> None:
        self.schema_id = schema_id
        self._type = message_type
        self._prefix = prefix(schema_id) + message_indexes(_path(message_type.DESCRIPTOR))

    @classmethod
    async def load(
        cls,
        registry: AsyncSchemaRegistryClient,
        message_type: type[M],
        *,
        topic: str | None = None,
        field: Field = "value",
        subject_names: SubjectNames = "topic",
        auto_register: bool = True,
    ) -> Self:
        """Ask the registry for the id of the schema, which is the file that declares the message.

        Files that it imports are registered by their names as subjects. topic, field, subject_names, auto_register,
        and what is raised: as in `AvroSerializer.load`.
        """
        descriptor = message_type.DESCRIPTOR
        subject = subject_of(subject_names, topic, field, descriptor.full_name)
        schema = await _schema_of(registry, descriptor.file, auto_register=auto_register)
        return cls(await schema_id_of(registry, subject, schema, auto_register=auto_register), message_type)

    def __call__(self, value: M | None) -> bytes | None:
        """The bytes; None of None. Raises TypeError for a message of another class."""
        if value is None:
            return None
        if not isinstance(value, self._type):
            raise TypeError(
                f"the value is {type(value).__name__}, not {self._type.__name__}: give the serializer's class"
            )
        return self._prefix + value.SerializeToString()


class ProtobufDeserializer(Deserializer[T_co]):
    """Reads messages of one class. It needs no registry: fields have numbers, and unknown ones are kept.

    Bytes of another message cannot always be recognised: choose the class by the topic.
    """

    @overload
    def __init__(self: ProtobufDeserializer[M], message_type: type[M], *, nullable: Literal[False] = False) -> None: ...
    @overload
    def __init__(self: ProtobufDeserializer[M | None], message_type: type[M], *, nullable: bool) -> None: ...
    def __init__(self, message_type: Any, *, nullable: bool = False) -> None:
        super().__init__(nullable=nullable)
        self._type = message_type

    def read(self, data: bytes) -> T_co:
        read_schema_id(data)
        return self._type.FromString(data[skip_message_indexes(data, PREFIX.size) :])  # type: ignore[no-any-return]


async def _schema_of(registry: AsyncSchemaRegistryClient, file: Any, *, auto_register: bool) -> Schema:
    """The schema of a file, after those of the files that it imports."""
    references = []
    for imported in file.dependencies:
        if imported.name.startswith(KNOWN_FILES):
            continue
        schema = await _schema_of(registry, imported, auto_register=auto_register)
        await schema_id_of(registry, imported.name, schema, auto_register=auto_register)
        with explained(f"cannot find the schema of the imported file {imported.name!r}"):
            found = await registry.lookup_schema(imported.name, schema)
        references.append(SchemaReference(imported.name, imported.name, found.version))
    return Schema(base64.b64encode(file.serialized_pb).decode(), "PROTOBUF", references)


def _path(descriptor: Any) -> list[int]:
    """The index of a message in its file, then of each message that is nested in the one before."""
    outer = descriptor.containing_type
    if outer is None:
        return [list(descriptor.file.message_types_by_name).index(descriptor.name)]
    return [*_path(outer), [each.name for each in outer.nested_types].index(descriptor.name)]
