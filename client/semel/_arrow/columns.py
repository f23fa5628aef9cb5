"""PURE: records as Arrow batches of one schema: records that a consumer has handed out, and fetched columns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from semel._arrow.decode import COLUMNS, HEADERS, SCHEMA
from semel._arrow.objects import ObjectColumn, arrow_type, as_type
from semel.errors import RecordDeserializationError
from semel.serializers import NotReady
from semel.structs import ConsumerRecord

Deserializer = Callable[[bytes | None], Any]


class RecordColumns:
    """Makes record batches. Without deserializers all have the schema SCHEMA.

    With a `key_deserializer` or a `value_deserializer`, the columns `key` and `value` have the type of its values:
    value_schema, or else the type that the deserializer names (its attribute `value_type`), or else that of the values
    found. fixed: that of the first batch, for all later ones.
    """

    def __init__(
        self,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
        value_schema: Any,
        *,
        fixed: bool,
    ) -> None:
        """Raise TypeError for a `value_schema` that is none, ValueError for one without a deserializer."""
        declared = as_type(value_schema)
        if declared is not None and value_deserializer is None:
            raise ValueError("value_schema is the type of deserialized values: give a value_deserializer too")
        self._deserializers = {"key": key_deserializer, "value": value_deserializer}
        self._objects: dict[str, ObjectColumn] = {}
        if key_deserializer is not None:
            self._objects["key"] = ObjectColumn("key", _named_type(key_deserializer), fixed=fixed)
        if value_deserializer is not None:
            self._objects["value"] = ObjectColumn("value", declared or _named_type(value_deserializer), fixed=fixed)

    @property
    def empty(self) -> pa.RecordBatch:
        """No records, in the schema as far as it is known."""
        schema = SCHEMA
        for name, objects in self._objects.items():
            place = schema.get_field_index(name)
            schema = schema.set(place, pa.field(name, pa.null() if objects.type is None else objects.type))
        return pa.RecordBatch.from_pylist([], schema=schema)

    def table(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """One table of batches that this object has made. Raises ValueError if their types differ."""
        tables = [pa.Table.from_batches([each]) for each in batches or [self.empty]]
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException as e:
            raise ValueError(f"the batches have no common type: {e}. Give value_schema=, the type of the values") from e

    def of_records(self, records: Sequence[ConsumerRecord[Any, Any]]) -> pa.RecordBatch:
        """Records with the keys and values that the consumer has deserialized.

        Raises TypeError and ValueError, as `ObjectColumn.array`.
        """
        return self._batch(
            pa.array([record.topic for record in records], pa.string()),
            pa.array([record.partition for record in records], pa.int32()),
            pa.array([record.offset for record in records], pa.int64()),
            pa.array([record.timestamp for record in records], pa.int64()).cast(COLUMNS.field("timestamp").type),
            pa.array([record.timestamp_type for record in records], pa.int8()),
            self._column("key", [record.key for record in records]),
            self._column("value", [record.value for record in records]),
            _headers(records),
        )

    async def of_fetched(self, fetched: pa.RecordBatch) -> pa.RecordBatch:
        """Fetched records in the columns SCHEMA, with their keys and values deserialized. Waits for what a deserializer
        has to load.

        Raises RecordDeserializationError, and as `of_records`.
        """
        if not self._objects:
            return fetched
        key, value = await self._deserialized(fetched, "key"), await self._deserialized(fetched, "value")
        *others, headers = fetched.columns
        return self._batch(*others[:-2], key, value, headers)

    def _column(self, name: str, values: list[Any]) -> pa.Array:
        objects = self._objects.get(name)
        return pa.array(values, pa.binary()) if objects is None else objects.array(values)

    def _batch(self, *columns: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(list(columns), names=SCHEMA.names)

    async def _deserialized(self, fetched: pa.RecordBatch, name: Literal["key", "value"]) -> pa.Array:
        deserialize = self._deserializers[name]
        if deserialize is None:
            return fetched[name]
        data = fetched[name].to_pylist()
        made: list[Any] = []
        while len(made) < len(data):
            try:
                made.extend(map(deserialize, islice(data, len(made), None)))
            except NotReady as missing:
                loading = missing.load()
                await asyncio.wait([loading])  # others may wait for it too: it is not cancelled with this call
                loading.result()
            except Exception as e:
                raise RecordDeserializationError(name, _record(fetched, len(made)), e) from e
        return self._objects[name].array(made)


def _named_type(deserializer: Deserializer) -> pa.DataType | None:
    return arrow_type(getattr(deserializer, "value_type", Any))


def _record(fetched: pa.RecordBatch, row: int) -> ConsumerRecord[bytes | None, bytes | None]:
    """One of the fetched records, for an error."""
    found = fetched.slice(row, 1)
    timestamp = found["timestamp"].cast(pa.int64())
    (fields,) = found.set_column(3, "timestamp", timestamp).to_pylist()
    key, value = fields["key"], fields["value"]
    key_size, value_size = (-1 if data is None else len(data) for data in (key, value))
    headers = tuple((each["key"], each["value"]) for each in fields["headers"])
    return ConsumerRecord(
        fields["topic"], fields["partition"], fields["offset"], fields["timestamp"], fields["timestamp_type"],
        key, value, None, key_size, value_size, headers,
    )  # fmt: skip


def _headers(records: Sequence[ConsumerRecord[Any, Any]]) -> pa.Array:
    borders = np.zeros(len(records) + 1, dtype=np.int32)
    np.cumsum([len(record.headers) for record in records], out=borders[1:])
    pairs = list(chain.from_iterable(record.headers for record in records))
    keys = [_text(key) for key, _ in pairs]
    values = [value for _, value in pairs]
    made = pa.StructArray.from_arrays([pa.array(keys, pa.string()), pa.array(values, pa.binary())], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(borders), made, type=HEADERS)


def _text(key: str) -> str:
    """Bytes that are not UTF-8, which are surrogates here, become the replacement character, as in `decode`."""
    return key if key.isascii() else key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
