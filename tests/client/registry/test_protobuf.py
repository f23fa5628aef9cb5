"""Protobuf with a schema registry: the path of the message, imported files, and what is refused."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from client.registry.fake_registry import FakeRegistry
from client.registry.messages import Cart, Item, Line, Order
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from semel import Consumer, Producer
from semel.errors import RecordDeserializationError
from semel.registry import RegistryError
from semel.registry.protobuf import ProtobufDeserializer, ProtobufSerializer

pytestmark = pytest.mark.real_time  # the HTTP library needs the sockets of a real loop


@pytest.mark.parametrize(
    ("kind", "path"), [(Item, "00"), (Order, "00"), (Cart, "02 02"), (Line, "04 02 00")], ids=lambda each: str(each)
)
async def test_the_path_of_the_message_follows_the_id(
    registry: AsyncSchemaRegistryClient, kind: Any, path: str
) -> None:
    write: Any = await ProtobufSerializer.load(registry, kind, topic="t")
    data = write(kind())
    assert data == b"\0" + write.schema_id.to_bytes(4, "big") + bytes.fromhex(path)
    assert ProtobufDeserializer(kind)(data) == kind()


async def test_imported_files_are_registered_first_and_known_ones_not(
    fake: FakeRegistry, registry: AsyncSchemaRegistryClient
) -> None:
    await ProtobufSerializer.load(registry, Order, topic="orders")
    assert list(fake.subjects) == ["shop/item.proto", "orders-value"]
    imported, own = fake.schemas
    assert base64.b64decode(imported["schema"]) == Item.DESCRIPTOR.file.serialized_pb
    assert own["references"] == [{"name": "shop/item.proto", "subject": "shop/item.proto", "version": 1}]
    assert own["schemaType"] == "PROTOBUF"


async def test_without_auto_register_nothing_is_registered(
    fake: FakeRegistry, registry: AsyncSchemaRegistryClient
) -> None:
    with pytest.raises(RegistryError, match=r"subject 'shop/item.proto', and auto_register=False"):
        await ProtobufSerializer.load(registry, Order, topic="orders", auto_register=False)
    assert not fake.schemas
    known = await ProtobufSerializer.load(registry, Order, subject_names="record")
    again = await ProtobufSerializer.load(registry, Order, subject_names="record", auto_register=False)
    assert known.schema_id == again.schema_id
    assert "shop.Order" in fake.subjects


async def test_messages_of_another_class_are_refused(registry: AsyncSchemaRegistryClient) -> None:
    write: Any = await ProtobufSerializer.load(registry, Order, topic="orders")
    assert write(None) is None
    with pytest.raises(TypeError, match="is Item, not Order"):
        write(Item(name="cup"))


async def test_messages_travel_and_a_bad_one_is_skipped_by_its_error(
    bootstrap: str, registry: AsyncSchemaRegistryClient
) -> None:
    write: Any = await ProtobufSerializer.load(registry, Order, topic="orders")
    order = Order(item=Item(name="cup"), count=2)
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for data in (write(order), b"\0\0\0\0\1\x04\x80", b"\0\0\0\0\1\xff\xff\xff\xff\x0f", b"cup", write(order)):
            await producer.send_and_wait("orders", data, partition=0)
    read: ProtobufDeserializer[Any] = ProtobufDeserializer(Order)
    async with Consumer(
        "orders", bootstrap_servers=bootstrap, auto_offset_reset="earliest", value_deserializer=read
    ) as consumer:
        assert (await consumer.getone()).value == order
        for words in ("path of its message is incomplete", "path of its message has -", "begins with 63 75 70"):
            with pytest.raises(RecordDeserializationError, match=words) as caught:
                await consumer.getone()
            consumer.seek(caught.value.topic_partition, caught.value.record.offset + 1)
        assert (await consumer.getone()).value == order
