"""EDGE: one test, in an environment with confluent-kafka: `app.py BOOTSTRAP REGISTRY_URL NAME`."""

# mypy: ignore-errors

from __future__ import annotations

import asyncio
import json
import sys
import uuid

from confluent_kafka import Consumer as TheirConsumer
from confluent_kafka import Producer as TheirProducer
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer as TheirAvroDeserializer
from confluent_kafka.schema_registry.avro import AvroSerializer as TheirAvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer as TheirProtobufDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer as TheirProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from semel import Consumer, Producer
from semel.registry import RegistryError
from semel.registry.avro import AvroDeserializer, AvroSerializer
from semel.registry.protobuf import ProtobufDeserializer, ProtobufSerializer

ORDER = {
    "type": "record",
    "namespace": "shop",
    "name": "Order",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "count", "type": "int"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
GIFT = {**ORDER, "name": "Gift"}
ORDERS = [{"item": f"item {n}", "count": n, "note": None if n % 2 else "Zürich"} for n in range(100)]


def protobuf_classes() -> tuple[type, type]:
    """Item in shop/item.proto, and Line nested in the second message of shop/order.proto, which imports it."""
    field, label = FieldDescriptorProto, FieldDescriptorProto.LABEL_OPTIONAL
    text = field(name="name", number=1, type=field.TYPE_STRING, label=label)
    item = field(name="item", number=1, type=field.TYPE_MESSAGE, type_name=".shop.Item", label=label)
    count = field(name="count", number=2, type=field.TYPE_INT32, label=label)
    line = DescriptorProto(name="Line", field=[item, count])
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    items = [DescriptorProto(name="Item", field=[text])]
    carts = [DescriptorProto(name="Empty"), DescriptorProto(name="Cart", field=[text], nested_type=[line])]
    pool.Add(FileDescriptorProto(name="shop/item.proto", package="shop", syntax="proto3", message_type=items))
    pool.Add(
        FileDescriptorProto(
            name="shop/order.proto",
            package="shop",
            syntax="proto3",
            dependency=["shop/item.proto", "google/protobuf/timestamp.proto"],
            message_type=carts,
        )
    )
    return tuple(GetMessageClass(pool.FindMessageTypeByName(name)) for name in ("shop.Item", "shop.Cart.Line"))


Item, Line = protobuf_classes()
LINES = [Line(item=Item(name=f"item {n}"), count=n) for n in range(100)]


class RecordFormat:
    """A format: the serializers of both clients for a topic, and the values to send."""

    def __init__(self, name: str, url: str, topic: str) -> None:
        self.ours, self.theirs = AsyncSchemaRegistryClient({"url": url}), SchemaRegistryClient({"url": url})
        self.topic, self.context = topic, SerializationContext(topic, MessageField.VALUE)
        self.is_avro = name == "avro"
        self.values = ORDERS if self.is_avro else LINES

    async def our_serializer(self):
        if self.is_avro:
            return await AvroSerializer.load(self.ours, ORDER, topic=self.topic)
        return await ProtobufSerializer.load(self.ours, Line, topic=self.topic)

    def our_deserializer(self):
        return AvroDeserializer(self.ours) if self.is_avro else ProtobufDeserializer(Line)

    def their_serializer(self):
        if self.is_avro:
            return TheirAvroSerializer(self.theirs, json.dumps(ORDER))
        return TheirProtobufSerializer(Line, self.theirs, {"use.deprecated.format": False})

    def their_deserializer(self):
        if self.is_avro:
            return TheirAvroDeserializer(self.theirs)
        # Given the registry it asks for the schema in a binary form, which Karapace fails to make of nested messages.
        return TheirProtobufDeserializer(Line, {"use.deprecated.format": False})


async def we_write(kind: RecordFormat, bootstrap: str) -> None:
    async with Producer(bootstrap_servers=bootstrap, value_serializer=await kind.our_serializer()) as producer:
        for value in kind.values:
            await producer.send(kind.topic, value, partition=0)
    settings = {"bootstrap.servers": bootstrap, "group.id": kind.topic, "auto.offset.reset": "earliest"}
    consumer, read, found = TheirConsumer(settings), kind.their_deserializer(), []
    consumer.subscribe([kind.topic])
    while len(found) < len(kind.values):
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} records arrived"
        assert message.error() is None, message.error()
        found.append(read(message.value(), kind.context))
    consumer.close()
    assert found == kind.values


async def they_write(kind: RecordFormat, bootstrap: str) -> None:
    producer, write = TheirProducer({"bootstrap.servers": bootstrap}), kind.their_serializer()
    for value in kind.values:
        producer.produce(kind.topic, write(value, kind.context), partition=0)
    assert producer.flush(60) == 0
    found = []
    async with Consumer(
        kind.topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        value_deserializer=kind.our_deserializer(),
    ) as consumer:
        while len(found) < len(kind.values):
            found.append((await consumer.getone()).value)
    assert found == kind.values


async def both_write_the_same(kind: RecordFormat) -> None:
    ours, theirs = await kind.our_serializer(), kind.their_serializer()
    for value in kind.values:
        assert ours(value) == theirs(value, kind.context)


async def refused(kind: RecordFormat) -> None:
    await kind.our_serializer()
    try:
        await AvroSerializer.load(kind.ours, {**ORDER, "fields": [{"name": "x", "type": "int"}]}, topic=kind.topic)
    except RegistryError as error:
        refusal = str(error)
    else:
        refusal = "the schema was registered"
    assert "HTTP status 409" in refusal, refusal


async def survived(kind: RecordFormat) -> None:
    known = await kind.ours.get_subjects()
    assert any(subject.startswith("test-") for subject in known), known
    assert (await kind.ours.get_schema(1)).schema_str
    write = await AvroSerializer.load(kind.ours, GIFT, topic=kind.topic)
    assert await AvroDeserializer(kind.ours).decode(write(ORDERS[0])) == ORDERS[0]


async def main(bootstrap: str, url: str, name: str) -> None:
    format_name, _, what = name.partition(": ")
    kind = RecordFormat(format_name, url, f"test-{uuid.uuid4().hex[:8]}")
    if what.startswith("semel writes"):
        await we_write(kind, bootstrap)
    elif what.startswith("confluent-kafka writes"):
        await they_write(kind, bootstrap)
    elif what.startswith("both"):
        await both_write_the_same(kind)
    elif what.startswith("an incompatible"):
        await refused(kind)
    else:
        await survived(kind)


asyncio.run(main(*sys.argv[1:]))
