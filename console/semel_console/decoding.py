"""Shows Avro as JSON: keys and values that begin with the id of a schema, which a schema registry has (`--registry`).

Needs `semel[avro]`. Protobuf cannot be read without its generated class.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable

import msgspec
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from semel.registry.avro import AvroDeserializer
from semel.registry.framing import MAGIC, PREFIX, read_schema_id

from semel_console.facts.records import RecordRow

TIMEOUT_S = 3.0
"""The longest wait for the schemas of one answer. What is not there then is shown undecoded."""
REFUSED_MAX = 1_000


class Decoder:
    """Adds the decoded texts to rows. url: of the schema registry."""

    def __init__(self, url: str) -> None:
        self._registry = AsyncSchemaRegistryClient({"url": url})
        self._avro: AvroDeserializer[object] = AvroDeserializer(self._registry)
        self._refused: dict[int, str] = {}
        """Why a schema cannot be read, by its id. Eight bytes of a number look like a value of a schema, too."""

    async def add(self, rows: Iterable[RecordRow]) -> None:
        """Fill `key_decoded`, `value_decoded` and `not_decoded`."""
        deadline = asyncio.get_running_loop().time() + TIMEOUT_S
        for row in rows:
            row.key_decoded = await self._decoded(row, row.key, row.key_size, deadline)
            row.value_decoded = await self._decoded(row, row.value, row.value_size, deadline)

    async def _decoded(self, row: RecordRow, data: bytes | None, size: int, deadline: float) -> str | None:
        if data is None or len(data) <= PREFIX.size or data[0] != MAGIC or len(data) < size:
            return None
        schema_id = read_schema_id(data)
        if schema_id in self._refused:
            row.not_decoded = self._refused[schema_id]
            return None
        try:
            async with asyncio.timeout_at(deadline):
                value = await self._avro.decode(data)
            return msgspec.json.encode(_with_names_of_floats(value), enc_hook=str).decode()
        except TimeoutError:
            row.not_decoded = f"the schema registry does not answer within {TIMEOUT_S:g} s"
        except Exception as e:  # bytes that are no Avro can fail anywhere in the decoder
            row.not_decoded = f"{type(e).__name__}: {e}"
            if "is not in the registry" in row.not_decoded and len(self._refused) < REFUSED_MAX:
                self._refused[schema_id] = row.not_decoded
        return None

    async def close(self) -> None:
        """Close the connections to the registry."""
        await self._registry.aclose()


def _with_names_of_floats(value: object) -> object:
    """JSON has no NaN and no infinities: they become texts, and not null."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, dict):
        return {name: _with_names_of_floats(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_names_of_floats(each) for each in value]
    return value
