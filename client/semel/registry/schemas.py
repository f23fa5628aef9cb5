"""The schemas of a registry: the subject and the id of a schema, and the schema of an id, which is loaded once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryError

from semel.errors import KafkaError, RetriableError
from semel.serializers import NotReady

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

T = TypeVar("T")
Field = Literal["key", "value"]
SubjectNames = Literal["topic", "record", "topic-record"]
"""How subjects are named: `<topic>-value` or `<topic>-key`, the full name of the record, or `<topic>-<full name>`."""
HTTP_NOT_FOUND = 404
HTTP_TOO_MANY = 429
HTTP_SERVER_ERROR = 500


class RegistryError(KafkaError):
    """The schema registry refused a request. `__cause__` is the exception of its client."""


class RegistryUnavailableError(RegistryError, RetriableError):
    """The schema registry cannot be reached, or has a problem of its own."""

    advice = "Check the url of the registry's client and that the registry runs, then try again"


def subject_of(names: SubjectNames, topic: str | None, field: Field, record: str) -> str:
    """The subject of a schema. record: its full name. Raises ValueError without a topic where the name needs one."""
    if names == "record":
        return record
    if not topic:
        raise ValueError(f"subject_names={names!r} needs a topic: give topic=, or subject_names='record'")
    if names == "topic":
        return f"{topic}-{field}"
    if names == "topic-record":
        return f"{topic}-{record}"
    raise ValueError(f"subject_names={names!r}: give 'topic', 'record' or 'topic-record'")


@contextmanager
def explained(attempted: str) -> Iterator[None]:
    """Turn exceptions of the registry's client into RegistryError, RegistryUnavailableError."""
    try:
        yield
    except SchemaRegistryError as e:
        is_temporary = e.http_status_code >= HTTP_SERVER_ERROR or e.http_status_code == HTTP_TOO_MANY
        kind = RegistryUnavailableError if is_temporary else RegistryError
        raise kind(f"{attempted}: HTTP status {e.http_status_code}: {e.error_message}") from e
    except Exception as e:
        if not type(e).__module__.startswith("httpx"):  # the registry's client chooses httpx or httpx2
            raise
        raise RegistryUnavailableError(f"{attempted}: {type(e).__name__}: {e}") from e


async def schema_id_of(
    registry: AsyncSchemaRegistryClient, subject: str, schema: Schema, *, auto_register: bool
) -> int:
    """The id of a schema under a subject. Registers it there, or requires it to be registered.

    Raises RegistryError, for example for a schema that is incompatible with the subject's versions, and
    RegistryUnavailableError.
    """
    if auto_register:
        with explained(f"cannot register the schema of subject {subject!r}"):
            return await registry.register_schema(subject, schema)
    with explained(f"cannot find the schema of subject {subject!r}, and auto_register=False"):
        found = await registry.lookup_schema(subject, schema)
    assert found.schema_id is not None, "the registry sends the id of a schema that it found"
    return found.schema_id


async def latest_of(registry: AsyncSchemaRegistryClient, subject: str) -> tuple[int, Schema]:
    """Id and schema of the subject's latest version. Raises RegistryError, RegistryUnavailableError."""
    with explained(f"cannot load the latest schema of subject {subject!r}"):
        found = await registry.get_latest_version(subject)
    assert found.schema_id is not None, "the registry sends the id with a version"
    assert found.schema is not None, "the registry sends the schema with a version"
    return found.schema_id, found.schema


async def referenced(registry: AsyncSchemaRegistryClient, schema: Schema) -> list[str]:
    """The texts of the schemas that this one refers to, each before those that need it."""
    texts: dict[tuple[str | None, int | None], str] = {}

    async def collect(references: list[SchemaReference] | None) -> None:
        for each in references or ():
            if (each.subject, each.version) not in texts:
                found = await registry.get_version(str(each.subject), each.version or "latest")
                assert found.schema is not None, "the registry sends the schema with a version"
                await collect(found.schema.references)
                texts[each.subject, each.version] = found.schema.schema_str or ""

    await collect(schema.references)
    return list(texts.values())


class SchemasById(Generic[T]):
    """Schemas as a deserializer needs them, by id. Each is loaded once; a load that failed is tried again."""

    def __init__(self, registry: AsyncSchemaRegistryClient, prepare: Callable[[Schema], Awaitable[T]]) -> None:
        self._registry, self._prepare = registry, prepare
        self._ready: dict[int, T] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._refused: dict[int, str] = {}

    def get(self, schema_id: int) -> T:
        """The schema. Raises NotReady before it is loaded, ValueError when the registry does not have it."""
        if schema_id in self._ready:
            return self._ready[schema_id]
        if schema_id in self._refused:
            raise ValueError(self._refused.pop(schema_id))  # the next call asks the registry again
        raise NotReady(lambda: self.load(schema_id))

    def load(self, schema_id: int) -> asyncio.Task[None]:
        """Start to load a schema, or return the load in progress.

        Raises RegistryUnavailableError, and RegistryError when the registry refuses to answer.
        """
        task = self._loading.get(schema_id)
        if task is None:
            task = self._loading[schema_id] = asyncio.get_running_loop().create_task(self._load(schema_id))
            task.add_done_callback(lambda done: self._end(schema_id, done))
        return task

    def _end(self, schema_id: int, done: asyncio.Task[None]) -> None:
        del self._loading[schema_id]
        if not done.cancelled():
            done.exception()  # no call may wait for it any more

    async def _load(self, schema_id: int) -> None:
        try:
            with explained(f"cannot load schema {schema_id}"):
                self._ready[schema_id] = await self._prepare(await self._registry.get_schema(schema_id))
        except RegistryError as e:
            if not isinstance(e.__cause__, SchemaRegistryError) or e.__cause__.http_status_code != HTTP_NOT_FOUND:
                raise
            self._refused[schema_id] = f"its schema {schema_id} is not in the registry: {e.__cause__.error_message}"
