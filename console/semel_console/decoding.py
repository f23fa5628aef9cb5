"""Shows keys and values as JSON that begin with the id of a schema of a schema registry (`--registry`): Avro, Protobuf
and JSON with a JSON Schema, in the formats of `semel.registry` and of Confluent's serializers.

Needs `semel[avro]`; Protobuf needs `semel[protobuf]`, too. The classes of Protobuf are made of the registry's schema.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

import msgspec
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, Schema, SchemaReference, SchemaRegistryError
from semel.registry.avro import AvroDeserializer
from semel.registry.framing import MAGIC, PREFIX, read_message_indexes, read_schema_id
from semel.registry.schemas import HTTP_NOT_FOUND, RegistryError, explained
from semel_protocol import extras

from semel_console.facts.records import RecordRow

TIMEOUT_S = 3.0
"""The longest wait for the schemas of one answer. What is not there then is shown undecoded."""
AWAY_S = 5.0
"""So long a schema whose load has failed is not asked for again: a search meets it in each record."""
SCHEMAS_MAX = 1_000
KIND_NAMES = {"AVRO": "Avro", "PROTOBUF": "Protobuf", "JSON": "JSON Schema"}
SERIALIZED = "serialized"
"""The format of a Protobuf schema: its FileDescriptorProto as base64."""

Read = Callable[[bytes], Awaitable[tuple[str, str]]]
"""Value -> its JSON, and the name of its type."""


class KnownSchema(msgspec.Struct, frozen=True):
    """A schema of the registry. versions: its subjects with their versions."""

    schema_id: int
    kind: str
    read: Read
    versions: tuple[tuple[str, int], ...]

    def label(self, name: str, subject: str) -> str:
        """The schema in words. subject: the one that is shown, if the schema is there."""
        found = next((each for each in self.versions if each[0] == subject), next(iter(self.versions), None))
        where = f"{found[0]} version {found[1]}, id {self.schema_id}" if found else f"id {self.schema_id}"
        return f"{KIND_NAMES[self.kind]} {name} ({where})".replace("  ", " ")


class NotDecodedError(ValueError):
    """Why bytes with the id of a schema cannot be read."""


class Decoder:
    """Adds the decoded texts to rows. url: of the schema registry."""

    def __init__(self, url: str) -> None:
        self._registry = AsyncSchemaRegistryClient({"url": url})
        self._serialized = AsyncSchemaRegistryClient({"url": url})
        """A client remembers one text for each schema, whatever its format."""
        self._avro: AvroDeserializer[object] = AvroDeserializer(self._registry)
        self._known: dict[int, KnownSchema] = {}
        self._refused: dict[int, str] = {}
        """Why a schema cannot be read, by its id. Eight bytes of a number look like a value of a schema, too."""
        self._away: dict[int, tuple[float, str]] = {}

    async def add(self, topic: str, rows: Iterable[RecordRow]) -> None:
        """Fill the decoded texts and the names of the schemas."""
        deadline = asyncio.get_running_loop().time() + TIMEOUT_S
        for row in rows:
            row.key_decoded, row.key_schema = await self._shown(row, row.key, row.key_size, f"{topic}-key", deadline)
            row.value_decoded, row.value_schema = await self._shown(
                row, row.value, row.value_size, f"{topic}-value", deadline
            )

    async def _shown(
        self, row: RecordRow, data: bytes | None, size: int, subject: str, deadline: float
    ) -> tuple[str | None, str | None]:
        if data is None or not _has_schema(data) or len(data) < size:
            return None, None
        try:
            known = await self._schema(read_schema_id(data), deadline)
            text, name = await _read(known, data)
        except NotDecodedError as e:
            row.not_decoded = str(e)
            return None, None
        return text, known.label(name, subject)

    async def json_of(self, data: bytes) -> str | None:
        """The JSON of a value; None for bytes without a schema, or with one that cannot be read."""
        if not _has_schema(data):
            return None
        try:
            deadline = asyncio.get_running_loop().time() + TIMEOUT_S
            return (await _read(await self._schema(read_schema_id(data), deadline), data))[0]
        except NotDecodedError:
            return None  # the row of the record says why, where it is shown

    async def _schema(self, schema_id: int, deadline: float) -> KnownSchema:
        """Raise NotDecodedError."""
        known = self._known.get(schema_id)
        if known is not None:
            return known
        if schema_id in self._refused:
            raise NotDecodedError(self._refused[schema_id])
        now = asyncio.get_running_loop().time()
        until, why = self._away.get(schema_id, (now, ""))
        if now < until:
            raise NotDecodedError(why)
        try:
            async with asyncio.timeout_at(deadline):
                made = await self._loaded(schema_id)
        except TimeoutError:
            why = f"the schema registry does not answer within {TIMEOUT_S:g} s"
        except RegistryError as e:
            why = f"{type(e).__name__}: {e}"
            if isinstance(e.__cause__, SchemaRegistryError) and e.__cause__.http_status_code == HTTP_NOT_FOUND:
                why = f"schema {schema_id} is not in the registry: {e.__cause__.error_message}"
                _put(self._refused, schema_id, why)
        except Exception as e:  # a schema that is none can fail anywhere in its parser
            why = f"schema {schema_id} cannot be used: {type(e).__name__}: {e}"
        else:
            _put(self._known, schema_id, made)
            return made
        _put(self._away, schema_id, (now + AWAY_S, why))
        raise NotDecodedError(why)

    async def _loaded(self, schema_id: int) -> KnownSchema:
        with explained(f"cannot load schema {schema_id}"):
            schema = await self._registry.get_schema(schema_id)
        kind = schema.schema_type or "AVRO"
        read: Read
        if kind == "AVRO":
            read = _Avro(self._avro, schema).read
        elif kind == "JSON":
            read = _Json(schema).read
        elif kind == "PROTOBUF":
            with explained(f"cannot load schema {schema_id} as a descriptor"):
                whole = await self._serialized.get_schema(schema_id, fmt=SERIALIZED)
                files = await self._imported(whole.references or ())
            read = _Protobuf(files, _file_descriptor(whole, "")).read
        else:
            raise ValueError(f"its type is {kind}")
        return KnownSchema(schema_id, kind, read, await self._versions(schema_id))

    async def _imported(self, references: Sequence[SchemaReference]) -> list[Any]:
        """The descriptors of the files that a file imports, each before those that need it."""
        found: dict[str, Any] = {}

        async def collect(wanted: Sequence[SchemaReference]) -> None:
            for each in wanted:
                name = str(each.name)
                if name not in found:
                    stored = await self._serialized.get_version(
                        str(each.subject), each.version or "latest", fmt=SERIALIZED
                    )
                    assert stored.schema is not None, "the registry sends the schema with a version"
                    await collect(stored.schema.references or ())
                    found[name] = _file_descriptor(stored.schema, name)

        await collect(references)
        return list(found.values())

    async def _versions(self, schema_id: int) -> tuple[tuple[str, int], ...]:
        """The subjects and versions of a schema. Old registries do not tell them."""
        try:
            with explained("cannot load the versions"):
                found = await self._registry.get_schema_versions(schema_id)
        except RegistryError as e:
            if not isinstance(e.__cause__, SchemaRegistryError):
                raise
            return ()
        return tuple(sorted((str(each.subject), int(each.version or 0)) for each in found))

    async def close(self) -> None:
        """Close the connections to the registry."""
        await self._registry.aclose()
        await self._serialized.aclose()


async def _read(known: KnownSchema, data: bytes) -> tuple[str, str]:
    try:
        return await known.read(data)
    except Exception as e:  # bytes of another schema can fail anywhere in a decoder
        raise NotDecodedError(f"{type(e).__name__}: {e}") from e


def _has_schema(data: bytes) -> bool:
    return len(data) > PREFIX.size and data[0] == MAGIC


def _put(kept: dict[int, Any], schema_id: int, value: object) -> None:
    """Keep a value; the oldest one goes when there are too many."""
    if len(kept) >= SCHEMAS_MAX:
        del kept[next(iter(kept))]
    kept[schema_id] = value


class _Avro:
    def __init__(self, avro: AvroDeserializer[object], schema: Schema) -> None:
        self._avro = avro
        parsed = json.loads(schema.schema_str or "")
        self._name = ""
        if isinstance(parsed, dict) and "name" in parsed:
            space = parsed.get("namespace")
            self._name = f"{space}.{parsed['name']}" if space and "." not in parsed["name"] else str(parsed["name"])

    async def read(self, data: bytes) -> tuple[str, str]:
        value = await self._avro.decode(data)
        return msgspec.json.encode(_with_names_of_floats(value), enc_hook=str).decode(), self._name


class _Json:
    def __init__(self, schema: Schema) -> None:
        parsed = json.loads(schema.schema_str or "")
        self._name = str(parsed.get("title") or "") if isinstance(parsed, dict) else ""

    async def read(self, data: bytes) -> tuple[str, str]:
        """The text as it is written."""
        body = data[PREFIX.size :]
        msgspec.json.decode(body, type=msgspec.Raw)
        return body.decode(), self._name


class _Protobuf:
    """Reads the messages of one file. imported: the descriptors of the files that it imports."""

    def __init__(self, imported: Sequence[Any], file: Any) -> None:
        from google.protobuf.descriptor_pool import DescriptorPool

        self._file, self._pool = file, DescriptorPool()
        known = {each.name: each for each in imported}
        added: set[str] = set()

        def add(each: Any) -> None:
            for name in each.dependency:
                if name not in added:
                    added.add(name)
                    add(known[name] if name in known else _well_known(name))
            self._pool.Add(each)

        add(file)

    async def read(self, data: bytes) -> tuple[str, str]:
        from google.protobuf.json_format import MessageToJson
        from google.protobuf.message_factory import GetMessageClass

        indexes, at = read_message_indexes(data, PREFIX.size)
        descriptor = self._pool.FindMessageTypeByName(self._full_name(indexes))
        message = GetMessageClass(descriptor).FromString(data[at:])
        text = MessageToJson(message, preserving_proto_field_name=True, indent=None, descriptor_pool=self._pool)
        return text, descriptor.full_name

    def _full_name(self, indexes: Sequence[int]) -> str:
        names = [self._file.package] if self._file.package else []
        inner = self._file.message_type
        for index in indexes:
            if not 0 <= index < len(inner):
                raise ValueError(f"the schema has no message at the path {list(indexes)}: it was written with another")
            names.append(inner[index].name)
            inner = inner[index].nested_type
        return ".".join(names)


def _file_descriptor(schema: Schema, name: str) -> Any:
    """The descriptor of a file. name: the one by which other files import it."""
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
    except ImportError as e:
        raise ValueError(extras.missing("Protobuf", e.name or "protobuf", "protobuf")) from None
    try:
        made = FileDescriptorProto.FromString(base64.b64decode(schema.schema_str or "", validate=True))
    except (binascii.Error, ValueError) as e:
        raise ValueError("the registry sends no descriptor: it does not know format=serialized") from e
    made.name = name or made.name or "schema.proto"
    return made


def _well_known(name: str) -> Any:
    """The descriptor of a file that each registry has, such as google/protobuf/timestamp.proto. Raises ValueError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if module.startswith("confluent."):
        module = f"confluent_kafka.schema_registry.{module}"
    if not module.startswith(("google.protobuf.", "google.type.", "confluent_kafka.schema_registry.confluent.")):
        raise ValueError(f"its file imports {name!r}, which the registry does not name")
    try:
        file = import_module(module).DESCRIPTOR
    except ImportError:
        raise ValueError(f"its file imports {name!r}, which is not installed here") from None
    return FileDescriptorProto.FromString(file.serialized_pb)


def _with_names_of_floats(value: object) -> object:
    """JSON has no NaN and no infinities: they become texts, and not null."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, dict):
        return {name: _with_names_of_floats(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_names_of_floats(each) for each in value]
    return value
