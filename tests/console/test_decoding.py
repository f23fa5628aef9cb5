"""With a schema registry the message browser shows Avro as JSON, and shows why a value cannot be read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from client.registry.fake_registry import FakeRegistry
from client.registry.messages import Item, Line, Order
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, Schema
from console.conftest import opened
from console.visitor import Visitor
from semel import Producer
from semel.registry.avro import AvroSerializer
from semel.registry.framing import prefix
from semel.registry.protobuf import ProtobufSerializer
from semel_broker.testing.in_process import EphemeralBroker
from semel_console.decoding import Decoder
from semel_console.guard import ConsoleGuard
from semel_console.link import ClusterLink

pytestmark = pytest.mark.real_time
SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "day", "type": {"type": "int", "logicalType": "date"}}],
}


@pytest.fixture
async def registry() -> AsyncIterator[FakeRegistry]:
    async with FakeRegistry() as made:
        yield made


@pytest.fixture
async def visitor(semel_broker: EphemeralBroker, registry: FakeRegistry) -> AsyncIterator[Visitor]:
    """A visitor of a console with the registry."""
    link, decoder = ClusterLink(opened(lambda: semel_broker.bootstrap_servers)), Decoder(registry.url)
    made = Visitor(link, ConsoleGuard(), decoder=decoder)
    await made.enter()
    yield made
    await link.close()
    await decoder.close()


async def test_avro_is_json_and_other_bytes_stay(
    semel_broker: EphemeralBroker, registry: FakeRegistry, visitor: Visitor
) -> None:
    semel_broker.create_topic("orders")
    client = AsyncSchemaRegistryClient({"url": registry.url})
    serializer = await AvroSerializer[dict[str, object]].load(client, SCHEMA, topic="orders")
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
        good = serializer({"item": "teapot", "day": 20_000})
        assert good is not None
        for value in (good, good[:-1], b"\0\0\0\0\x63unknown", b"plain text", None, b"\0"):
            await producer.send_and_wait("orders", value, partition=0)
    for _ in range(2):
        rows = (await visitor.facts("records", topic="orders", partition=0, **{"from": "0"}))["records"]
        decoded, cut, unknown, plain, null, short = rows
        assert decoded["value_decoded"] == '{"item":"teapot","day":"2024-10-04"}'
        assert decoded["value_schema"] == "Avro Order (orders-value version 1, id 1)"
        assert decoded["not_decoded"] is None
        assert (cut["value_decoded"], bool(cut["not_decoded"])) == (None, True)
        assert "schema 99 is not in the registry" in unknown["not_decoded"]
        assert [each["not_decoded"] for each in (plain, null, short)] == [None] * 3
    assert len([path for path in registry.asked("GET") if "/99" in path]) == 1  # not asked again for each look
    await client.aclose()


async def test_a_registry_that_is_gone_hides_no_record(
    semel_broker: EphemeralBroker, registry: FakeRegistry, visitor: Visitor
) -> None:
    semel_broker.create_topic("orders")
    registry.status = 401
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", b"\0\0\0\0\1value", partition=0)
    (row,) = (await visitor.facts("records", topic="orders", partition=0, **{"from": "0"}))["records"]
    assert row["value"]
    assert "RegistryError" in row["not_decoded"]


async def test_protobuf_and_json_with_a_schema_are_json(
    semel_broker: EphemeralBroker, registry: FakeRegistry, visitor: Visitor
) -> None:
    semel_broker.create_topic("orders")
    client = AsyncSchemaRegistryClient({"url": registry.url})
    order = await ProtobufSerializer.load(client, Order, topic="orders")  # its file imports that of Item
    inner = await ProtobufSerializer.load(client, Line, topic="orders", field="key")
    json_schema = Schema('{"title": "Parcel", "type": "object"}', "JSON")
    first = await client.register_schema("other-value", json_schema)
    assert await client.register_schema("orders-value", json_schema) == first
    parcel = prefix(first) + b'{"weight": 1.10}'
    made = Order(item=Item(name="teapot"), count=3)
    made.at.FromSeconds(1_764_364_800)
    value = order(made)
    assert value is not None
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", value, key=inner(Line(count=7)), partition=0)
        await producer.send_and_wait("orders", parcel, partition=0)
        await producer.send_and_wait("orders", value[:5] + b"\2\x12" + value[6:], partition=0)  # no such message
        await producer.send_and_wait("orders", parcel[:-1], partition=0)
        await producer.send_and_wait("orders", b'{"weight": 1.10}', partition=0)
    rows = (await visitor.facts("search", topic="orders", order="oldest"))["records"]
    message, json_row, no_message, no_json, _ = rows
    assert json.loads(message["value_decoded"]) == {
        "item": {"name": "teapot"},
        "count": 3,
        "at": "2025-11-28T21:20:00Z",
    }
    assert message["value_schema"] == "Protobuf shop.Order (orders-value version 1, id 2)"
    assert message["key_decoded"] == '{"count": 7}'
    assert message["key_schema"] == "Protobuf shop.Cart.Line (orders-key version 1, id 2)"
    assert json_row["value_decoded"] == '{"weight": 1.10}'
    assert json_row["value_schema"] == "JSON Schema Parcel (orders-value version 2, id 3)"
    assert "no message at the path" in no_message["not_decoded"]
    assert no_json["not_decoded"]
    for path, found in (("$.item.name == 'teapot'", [0]), ("$.weight == 1.1", [1, 4])):
        rows = (await visitor.facts("search", topic="orders", order="oldest", path=path))["records"]
        assert [each["offset"] for each in rows] == found
    await client.aclose()


async def test_a_registry_that_sends_protobuf_as_text_is_named(
    semel_broker: EphemeralBroker, registry: FakeRegistry, visitor: Visitor
) -> None:
    semel_broker.create_topic("orders")
    client = AsyncSchemaRegistryClient({"url": registry.url})
    text = await client.register_schema("orders-value", Schema('syntax = "proto3"; message A {}', "PROTOBUF"))
    async with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
        await producer.send_and_wait("orders", prefix(text) + b"\0\0", partition=0)
    (row,) = (await visitor.facts("search", topic="orders"))["records"]
    assert "format=serialized" in row["not_decoded"]
    await client.aclose()
