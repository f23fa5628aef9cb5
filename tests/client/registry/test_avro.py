"""Avro with a schema registry: ids are fetched once, unknown ones are loaded, and errors name the failure."""

from __future__ import annotations

import datetime
import decimal
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from client.consuming import take
from client.registry.fake_registry import FakeRegistry
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from semel import Consumer, Producer
from semel.errors import RecordDeserializationError
from semel.registry import RegistryError, RegistryUnavailableError
from semel.registry.avro import AvroDeserializer, AvroSerializer
from semel.registry.schemas import SubjectNames

pytestmark = pytest.mark.real_time  # the HTTP library needs the sockets of a real loop

ORDER: dict[str, Any] = {
    "type": "record",
    "namespace": "shop",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "count", "type": "int", "default": 1}],
}
GIFT = {**ORDER, "fields": [*ORDER["fields"], {"name": "card", "type": ["null", "string"], "default": None}]}


class AvroOrder(msgspec.Struct):
    item: str
    count: int = 1


@dataclass
class PlainOrder:
    item: str
    count: int


async def test_bytes_are_magic_id_and_avro(registry: AsyncSchemaRegistryClient) -> None:
    write = await AvroSerializer[AvroOrder].load(registry, ORDER, topic="orders")
    assert write(AvroOrder("cup", 2)) == b"\x00\x00\x00\x00\x01" + b"\x06cup\x04"
    assert write(None) is None
    read = AvroDeserializer(registry, AvroOrder)
    assert await read.decode(write(AvroOrder("cup", 2))) == AvroOrder("cup", 2)
    with pytest.raises(ValueError, match="nullable=True"):
        read(None)
    assert AvroDeserializer(registry, AvroOrder, nullable=True)(None) is None


@pytest.mark.parametrize("value", [AvroOrder("cup", 2), PlainOrder("cup", 2), {"item": "cup", "count": 2}])
async def test_structs_dataclasses_and_dicts_are_the_same_bytes(
    registry: AsyncSchemaRegistryClient, value: object
) -> None:
    write = await AvroSerializer[object].load(registry, ORDER, topic="orders")
    assert await AvroDeserializer(registry).decode(write(value)) == {"item": "cup", "count": 2}


@pytest.mark.parametrize(
    ("names", "topic", "field", "subject"),
    [
        ("topic", "orders", "value", "orders-value"),
        ("topic", "orders", "key", "orders-key"),
        ("record", None, "value", "shop.Order"),
        ("topic-record", "orders", "value", "orders-shop.Order"),
    ],
)
async def test_subjects_have_the_names_of_the_strategy(
    fake: FakeRegistry, registry: AsyncSchemaRegistryClient, names: SubjectNames, topic: str, field: Any, subject: str
) -> None:
    await AvroSerializer.load(registry, ORDER, topic=topic, field=field, subject_names=names)
    assert list(fake.subjects) == [subject]


@pytest.mark.parametrize("names", ["topic", "topic-record"])
async def test_a_name_that_needs_the_topic_says_so(registry: AsyncSchemaRegistryClient, names: SubjectNames) -> None:
    with pytest.raises(ValueError, match=r"needs a topic: give topic="):
        await AvroSerializer.load(registry, ORDER, subject_names=names)


async def test_without_auto_register_the_schema_has_to_be_there(
    fake: FakeRegistry, registry: AsyncSchemaRegistryClient
) -> None:
    with pytest.raises(RegistryError, match=r"subject 'orders-value', and auto_register=False.*Schema not found"):
        await AvroSerializer.load(registry, ORDER, topic="orders", auto_register=False)
    assert not fake.schemas
    known = await AvroSerializer.load(registry, ORDER, topic="orders")
    found = await AvroSerializer.load(registry, ORDER, topic="orders", auto_register=False)
    latest = await AvroSerializer[AvroOrder].load(registry, topic="orders")
    assert known.schema_id == found.schema_id == latest.schema_id
    assert latest(AvroOrder("cup")) == known({"item": "cup", "count": 1})


async def test_an_incompatible_schema_is_refused_with_the_registrys_words(
    fake: FakeRegistry, registry: AsyncSchemaRegistryClient
) -> None:
    fake.status = 409
    with pytest.raises(
        RegistryError, match=r"cannot register the schema of subject 'orders-value': HTTP status 409: as "
    ):
        await AvroSerializer.load(registry, ORDER, topic="orders")


async def test_logical_types_keep_their_python_types(registry: AsyncSchemaRegistryClient) -> None:
    class Payment(msgspec.Struct):
        at: datetime.datetime
        price: decimal.Decimal
        proof: bytes

    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "proof", "type": "bytes"},
    ]
    schema = {"type": "record", "name": "Payment", "fields": fields}
    payment = Payment(datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC), decimal.Decimal("12.50"), b"\x00\xff")
    write = await AvroSerializer[Payment].load(registry, schema, topic="payments")
    assert await AvroDeserializer(registry, Payment).decode(write(payment)) == payment


async def test_schemas_that_refer_to_others_are_read(fake: FakeRegistry, registry: AsyncSchemaRegistryClient) -> None:
    await AvroSerializer.load(registry, ORDER, subject_names="record")
    cart = {
        "type": "record",
        "name": "Cart",
        "fields": [{"name": "orders", "type": {"type": "array", "items": "shop.Order"}}],
    }
    references = [{"name": "shop.Order", "subject": "shop.Order", "version": 1}]
    fake._register(
        "carts-value", {"schema": msgspec.json.encode(cart).decode(), "schemaType": "AVRO", "references": references}
    )
    write = await AvroSerializer[object].load(registry, topic="carts")
    carts = {"orders": [{"item": "cup", "count": 2}]}
    assert await AvroDeserializer(registry).decode(write(carts)) == carts


async def test_readers_get_defaults_of_their_own_schema(registry: AsyncSchemaRegistryClient) -> None:
    write = await AvroSerializer[object].load(registry, ORDER, topic="orders")
    read = AvroDeserializer(registry, reader_schema=GIFT)
    assert await read.decode(write({"item": "cup", "count": 2})) == {"item": "cup", "count": 2, "card": None}


# With a producer and a consumer


async def test_a_schema_is_registered_and_loaded_once(
    bootstrap: str, fake: FakeRegistry, registry: AsyncSchemaRegistryClient
) -> None:
    other = AsyncSchemaRegistryClient({"url": fake.url, "max.retries": 0})
    write = await AvroSerializer[AvroOrder].load(registry, ORDER, topic="orders")
    async with Producer(bootstrap_servers=bootstrap, value_serializer=write) as producer:
        for number in range(50):
            await producer.send("orders", AvroOrder("cup", number))
    async with consumer_of(bootstrap, AvroDeserializer(other, AvroOrder)) as consumer:
        assert [record.value.count for record in await take(consumer, 50)] == list(range(50))
    assert len(fake.asked("POST")) == 1
    assert fake.asked("GET") == ["/schemas/ids/1"]


async def test_a_topic_may_hold_several_schemas(bootstrap: str, registry: AsyncSchemaRegistryClient) -> None:
    orders = await AvroSerializer[AvroOrder].load(registry, ORDER, topic="orders")
    gifts = await AvroSerializer[object].load(registry, GIFT, topic="orders")
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("orders", orders(AvroOrder("cup")))
        await producer.send_and_wait("orders", gifts({"item": "pot", "card": "Hello"}))
        await producer.send_and_wait("orders", orders(AvroOrder("spoon")))
    async with consumer_of(bootstrap, AvroDeserializer(registry)) as consumer:
        values = [record.value for record in await take(consumer, 3)]
    assert values == [
        {"item": "cup", "count": 1},
        {"item": "pot", "count": 1, "card": "Hello"},
        {"item": "spoon", "count": 1},
    ]


async def test_without_the_registry_the_consumer_raises_and_continues_later(
    bootstrap: str, fake: FakeRegistry, registry: AsyncSchemaRegistryClient
) -> None:
    write = await AvroSerializer[AvroOrder].load(registry, ORDER, topic="orders")
    async with Producer(bootstrap_servers=bootstrap, value_serializer=write) as producer:
        await producer.send_and_wait("orders", AvroOrder("cup"))
    other = AsyncSchemaRegistryClient({"url": fake.url, "max.retries": 0})
    async with consumer_of(bootstrap, AvroDeserializer(other, AvroOrder)) as consumer:
        fake.status = 503
        for _ in range(2):
            with pytest.raises(RegistryUnavailableError, match="cannot load schema 1: HTTP status 503"):
                await consumer.getone()
        fake.status = 0
        assert (await consumer.getone()).value == AvroOrder("cup")


async def test_a_slow_registry_does_not_hold_a_call_beyond_its_timeout(
    bootstrap: str, fake: FakeRegistry, registry: AsyncSchemaRegistryClient
) -> None:
    write = await AvroSerializer[AvroOrder].load(registry, ORDER, topic="orders")
    async with Producer(bootstrap_servers=bootstrap, value_serializer=write) as producer:
        await producer.send_and_wait("orders", AvroOrder("cup"))
    other = AsyncSchemaRegistryClient({"url": fake.url, "max.retries": 0})
    async with consumer_of(bootstrap, AvroDeserializer(other, AvroOrder)) as consumer:
        fake.gate.clear()
        assert await consumer.getmany(timeout_ms=300) == {}
        assert await consumer.getmany(timeout_ms=300) == {}
        fake.gate.set()
        assert (await consumer.getone()).value == AvroOrder("cup")
    assert fake.asked("GET") == ["/schemas/ids/1"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'{"item":"cup"}', "begins with 7b 22 69 74 65, not with the magic byte 00"),
        (b"", "begins with nothing"),
        (b"\0\0\0\0\x63\0", "its schema 99 is not in the registry: Schema not found"),
        (b"\0\0\0\0\1\x06cup\4\0", "1 bytes follow the value"),
        (b"\0\0\0\0\1\x06", "at offset 0: the value cannot be deserialized"),
        (None, "it is null"),
    ],
)
async def test_other_bytes_are_refused_by_record(
    bootstrap: str, registry: AsyncSchemaRegistryClient, data: bytes | None, words: str
) -> None:
    write = await AvroSerializer[AvroOrder].load(registry, ORDER, topic="orders")
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("orders", data, partition=0)
        await producer.send_and_wait("orders", write(AvroOrder("cup")), partition=0)
    async with consumer_of(bootstrap, AvroDeserializer(registry, AvroOrder)) as consumer:
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match=words) as caught:
                await consumer.getone()
        consumer.seek(caught.value.topic_partition, caught.value.record.offset + 1)
        assert (await consumer.getone()).value == AvroOrder("cup")


def consumer_of(bootstrap: str, read: AvroDeserializer[Any]) -> Consumer[bytes | None, Any]:
    return Consumer("orders", bootstrap_servers=bootstrap, auto_offset_reset="earliest", value_deserializer=read)
