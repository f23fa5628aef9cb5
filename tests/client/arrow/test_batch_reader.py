"""The BatchReader's tables: each committed record of topics and ranges, in typed columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from client.consuming import tp
from client.registry.fake_registry import FakeRegistry
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from semel import Admin, BatchReader, NewTopic, Producer, RecordsToDelete, TopicPartition
from semel._arrow.decode import SCHEMA
from semel.errors import (
    IllegalStateError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    UnknownTopicOrPartitionError,
)
from semel.registry.avro import AvroDeserializer, AvroSerializer
from semel.serializers import JsonDeserializer, JsonSerializer, StringDeserializer


class Order(msgspec.Struct, rename="camel"):
    item_name: str
    count: int = 1
    tags: list[str] = []


async def fill(bootstrap: str) -> None:
    """t-0: 0, 1, 2 at seconds 0, 1, 2; 30 aborted ones and their marker; c0, c1, c2 and theirs. t-1: one with all."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 2)])
    async with (
        Producer(bootstrap_servers=bootstrap) as plain,
        Producer(bootstrap_servers=bootstrap, transactional_id="x") as producer,
    ):
        for n in range(3):
            await plain.send_and_wait("t", b"%d" % n, partition=0, timestamp_ms=n * 1000)
        await plain.send_and_wait("t", None, key=b"k", partition=1, timestamp_ms=5, headers=[("h", b"1"), ("i", None)])
        await producer.begin_transaction()
        for _ in range(30):
            await producer.send("t", b"aborted", partition=0)
        await producer.flush()
        await producer.abort_transaction()
        async with producer.transaction():
            for n in range(3):
                await producer.send("t", b"c%d" % n, partition=0)


def reader(bootstrap: str, **settings: Any) -> BatchReader:
    return BatchReader(bootstrap_servers=bootstrap, **settings)


COMMITTED = [b"0", b"1", b"2", b"c0", b"c1", b"c2"]


async def test_a_topic_is_a_table_of_its_committed_records(bootstrap: str) -> None:
    await fill(bootstrap)
    async with reader(bootstrap) as one:
        table = await one.to_arrow("t")
        assert table.schema == SCHEMA
        table.validate(full=True)
        assert table["value"].to_pylist() == [*COMMITTED, None]
        assert table["offset"].to_pylist() == [0, 1, 2, 34, 35, 36, 0]
        assert table.slice(1, 1).to_pylist() == [
            {
                "topic": "t", "partition": 0, "offset": 1, "timestamp": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
                "timestamp_type": 0, "key": None, "value": b"1", "headers": [],
            }
        ]  # fmt: skip
        (last,) = table.slice(6).to_pylist()
        assert (last["partition"], last["key"], last["value"]) == (1, b"k", None)
        assert last["headers"] == [{"key": "h", "value": b"1"}, {"key": "i", "value": None}]
    async with reader(bootstrap, isolation_level="read_uncommitted") as one:
        assert (await one.to_arrow("t")).num_rows == 37


async def test_a_range_is_given_by_offsets_times_and_partitions(bootstrap: str) -> None:
    await fill(bootstrap)
    async with reader(bootstrap) as one:

        async def values(*sources: str | TopicPartition, **range_: Any) -> list[bytes | None]:
            found: list[bytes | None] = (await one.to_arrow(*sources, **range_))["value"].to_pylist()
            return found

        second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
        assert await values(tp(0)) == COMMITTED
        assert await values(tp(1), tp(0), "t", end=1) == [None, b"0"], "each partition once, in the order given"
        assert await values("t", start=1, end=35) == [b"1", b"2", b"c0"]
        assert await values("t", start=1, end=1 << 60) == COMMITTED[1:], "it never waits for records to come"
        assert await values("t", start={tp(0): 36}) == [b"c2", None]
        assert await values(tp(0), start=second, end=second.replace(second=2)) == [b"1"]
        assert await values(tp(0), start=second.replace(microsecond=1), end=3) == [b"2"]
        assert await values("t", start=datetime(2200, 1, 1, tzinfo=UTC)) == []
        assert (await one.to_arrow("t", start=100)).schema == SCHEMA


async def test_batches_come_fetch_by_fetch_with_bounded_memory(bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, linger_ms=1, max_batch_size=500) as producer:
        for n in range(500):
            await producer.send("t", b"%d" % n, partition=0)
    async with reader(bootstrap, max_partition_fetch_bytes=1000) as one:
        found = [batch async for batch in one.arrow_batches("t")]
        assert len(found) > 5
        assert {batch.schema for batch in found} == {SCHEMA}
        assert [v for batch in found for v in batch["value"].to_pylist()] == [b"%d" % n for n in range(500)]


async def produce_json(bootstrap: str, *values: Any) -> None:
    async with Producer(bootstrap_servers=bootstrap, value_serializer=JsonSerializer[Any](), max_batch_size=1) as one:
        for value in values:
            await one.send_and_wait("t", value, key=b"k", partition=0)


async def test_structs_are_a_struct_column_also_without_records(bootstrap: str) -> None:
    await produce_json(bootstrap, Order("tea", 2, ["hot"]), Order("cup"))
    wanted = pa.struct([("itemName", pa.string()), ("count", pa.int64()), ("tags", pa.list_(pa.string()))])
    async with reader(bootstrap) as one:
        orders = JsonDeserializer(Order)
        table = await one.to_arrow("t", value_deserializer=orders, key_deserializer=StringDeserializer())
        assert table.schema.field("value").type == wanted
        assert table.schema.field("key").type == pa.string()
        assert table["value"].to_pylist() == [
            {"itemName": "tea", "count": 2, "tags": ["hot"]},
            {"itemName": "cup", "count": 1, "tags": []},
        ]
        assert (await one.to_arrow("t", start=9, value_deserializer=orders)).schema.field("value").type == wanted


async def test_dicts_have_all_fields_that_were_found_and_a_schema_chooses(bootstrap: str) -> None:
    await produce_json(bootstrap, {"a": 1}, {"a": 2.5, "b": "x"}, None)
    async with reader(bootstrap, max_partition_fetch_bytes=1) as one:
        json = JsonDeserializer[Any](nullable=True)
        assert (await one.to_arrow("t", value_deserializer=json))["value"].to_pylist() == [
            {"a": 1.0, "b": None},
            {"a": 2.5, "b": "x"},
            None,
        ]
        schema = pa.schema([("b", pa.string())])
        chosen = [b async for b in one.arrow_batches("t", value_deserializer=json, value_schema=schema)]
        assert [v for b in chosen for v in b["value"].to_pylist()] == [{"b": None}, {"b": "x"}, None]
        with pytest.raises(ValueError, match=r"column value is struct<a: int64> in the first.*Give value_schema="):
            [b async for b in one.arrow_batches("t", value_deserializer=json)]


async def test_objects_without_columns_are_named(bootstrap: str) -> None:
    await produce_json(bootstrap, {"a": 1}, {"a": "x"})
    async with reader(bootstrap) as one:
        with pytest.raises(TypeError, match=r"value is object, which is no column.*Give a deserializer"):
            await one.to_arrow("t", value_deserializer=lambda data: object())
        with pytest.raises(ValueError, match=r"the column value cannot be made.*Give value_schema="):
            await one.to_arrow("t", value_deserializer=JsonDeserializer[Any]())
        with pytest.raises(RecordDeserializationError, match="t-0 at offset 1: the value cannot be deserialized") as e:
            await one.to_arrow("t", value_deserializer=JsonDeserializer(dict[str, int]))
        assert (e.value.record.key, e.value.record.value) == (b"k", b'{"a":"x"}')


async def test_batches_without_a_common_type_are_named(bootstrap: str) -> None:
    await produce_json(bootstrap, {"a": 1}, {"a": "x"})
    async with reader(bootstrap, max_partition_fetch_bytes=1) as one:
        with pytest.raises(ValueError, match=r"no common type: .*value.*Give value_schema="):
            await one.to_arrow("t", value_deserializer=JsonDeserializer[Any]())


@pytest.mark.real_time  # the HTTP library needs the sockets of a real loop
async def test_avro_waits_for_the_schemas_of_the_registry(bootstrap: str) -> None:
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}'
    async with FakeRegistry() as fake:
        registry = AsyncSchemaRegistryClient({"url": fake.url})
        serializer = await AvroSerializer[Any].load(registry, schema, topic="t")
        async with Producer(bootstrap_servers=bootstrap, value_serializer=serializer) as producer:
            await producer.send_and_wait("t", {"item": "tea"}, partition=0)
        async with reader(bootstrap) as one:
            table = await one.to_arrow("t", value_deserializer=AvroDeserializer(registry))
            assert table["value"].to_pylist() == [{"item": "tea"}]


async def test_deleted_records_fail_a_range_that_names_them_and_no_other(bootstrap: str) -> None:
    await fill(bootstrap)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.delete_records({tp(0): RecordsToDelete(before_offset=2)})
    async with reader(bootstrap) as one:
        assert (await one.to_arrow(tp(0)))["value"].to_pylist() == COMMITTED[2:]
        with pytest.raises(OffsetOutOfRangeError, match="0 is gone"):
            await one.to_arrow(tp(0), start=0)


async def test_records_that_are_deleted_while_they_are_read_are_left_out(bootstrap: str) -> None:
    await fill(bootstrap)
    async with Admin(bootstrap_servers=bootstrap) as admin, reader(bootstrap) as one:
        bounds = one.bounds

        async def bounds_before_the_deletion(partitions: Any) -> Any:
            found = await bounds(partitions)
            await admin.delete_records({tp(0): RecordsToDelete(before_offset=35)})
            return found

        one.bounds = bounds_before_the_deletion  # type: ignore[method-assign]
        assert (await one.to_arrow(tp(0)))["value"].to_pylist() == [b"c1", b"c2"]


async def test_wrong_arguments_are_named(bootstrap: str) -> None:
    await fill(bootstrap)
    async with reader(bootstrap) as one:
        for arguments, error, words in (
            ({"start": datetime(2026, 1, 1)}, ValueError, "start=.* has no time zone"),  # noqa: DTZ001
            ({"start": -1}, ValueError, "start=-1: offsets start at 0"),
            ({"end": {tp(7): 1}}, ValueError, "end has an offset for .*partition=7.*which is not read"),
            ({"value_schema": pa.schema([])}, ValueError, "give a value_deserializer too"),
            ({"value_schema": "x"}, TypeError, "value_schema='x'"),
        ):
            with pytest.raises(error, match=words):
                await one.to_arrow("t", **arguments)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="name a topic or a partition"):
            await one.to_arrow()
        for source in ("nope", tp(0, "nope")):
            with pytest.raises(UnknownTopicOrPartitionError, match="there is no topic 'nope'"):
                await one.to_arrow("t", source)
        with pytest.raises(UnknownTopicOrPartitionError, match="there is no partition 2 of 't': it has 2"):
            await one.to_arrow(tp(2))
    with pytest.raises(IllegalStateError):
        await one.to_arrow("t")


async def test_without_pyarrow_the_error_names_the_extra(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr("semel._arrow.import_module", missing)
    async with reader(bootstrap) as one:
        with pytest.raises(ModuleNotFoundError, match=r"to_arrow needs the package 'pyarrow'.*\[arrow\]"):
            await one.to_arrow("t")
