"""Programs that type checkers accept, with the types that they infer. `make check` gives it to mypy and to pyright.

It is not run.
"""

from __future__ import annotations

import asyncio
from typing import Any, assert_type

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from semel import Consumer, ConsumerRecord, KafkaError, Producer, RecordMetadata, TopicPartition, errors
from semel.aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from semel.registry.avro import AvroDeserializer, AvroSerializer
from semel.serializers import (
    JsonDeserializer,
    JsonSerializer,
    LongDeserializer,
    StringDeserializer,
    StringSerializer,
)


class TypedOrder:
    pass


def to_bytes(order: TypedOrder) -> bytes:
    return b""


def to_order(data: bytes | None) -> TypedOrder:
    return TypedOrder()


def to_text(data: bytes | None) -> str:
    return ""


async def without_serializers() -> None:
    async with Producer(bootstrap_servers="localhost:9092", linger_ms=5) as producer:
        assert_type(producer, Producer[bytes | None, bytes | None])
        assert_type(await producer.send("t", b"value", b"key"), asyncio.Future[RecordMetadata])
        assert_type(await producer.send_and_wait("t", None, b"key"), RecordMetadata)
    async with Consumer("t", group_id="g") as consumer:
        assert_type(consumer, Consumer[bytes | None, bytes | None])
        record = await consumer.getone()
        assert_type(record, ConsumerRecord[bytes | None, bytes | None])
        assert_type(record.value, bytes | None)


async def values_alone() -> None:
    async with Producer(value_serializer=to_bytes) as producer:
        assert_type(producer, Producer[bytes | None, TypedOrder])
        await producer.send("t", TypedOrder(), key=b"key")
        producer.create_batch().append(value=TypedOrder(), key=b"key")
    async with Consumer("t", value_deserializer=to_order, group_id="g") as consumer:
        assert_type(consumer, Consumer[bytes | None, TypedOrder])
        async for record in consumer:
            assert_type(record, ConsumerRecord[bytes | None, TypedOrder])
        assert_type(await consumer.getmany(), dict[TopicPartition, list[ConsumerRecord[bytes | None, TypedOrder]]])


async def keys_alone() -> None:
    assert_type(Producer(key_serializer=str.encode), Producer[str, bytes | None])
    consumer = Consumer("t", key_deserializer=to_text)
    assert_type(consumer, Consumer[str, bytes | None])
    assert_type((await consumer.getone()).key, str)


def both() -> None:
    assert_type(Producer(key_serializer=str.encode, value_serializer=to_bytes), Producer[str, TypedOrder])
    assert_type(Consumer("t", key_deserializer=to_text, value_deserializer=to_order), Consumer[str, TypedOrder])


def settings_as_a_dict(settings: dict[str, Any]) -> None:
    assert_type(Producer(**settings), Producer[Any, Any])
    assert_type(Consumer("t", **settings), Consumer[Any, Any])


async def bare_names_are_complete(producer: Producer, consumer: Consumer, record: ConsumerRecord) -> None:
    await producer.send("t", "anything", 7)
    assert_type(record.value, Any)
    assert_type((await consumer.getone()).value, Any)


async def a_bare_name_takes_each(record: ConsumerRecord[str, TypedOrder]) -> None:
    consumer = Consumer("t", value_deserializer=to_order)
    await bare_names_are_complete(Producer(value_serializer=to_bytes), consumer, record)


def variance(orders: Consumer[str, TypedOrder], everything: Producer[object, object]) -> None:
    any_values: Consumer[object, object] = orders
    of_orders: Producer[str, TypedOrder] = everything
    del any_values, of_orders


async def under_the_names_of_aiokafka() -> None:
    async with AIOKafkaConsumer("t", value_deserializer=to_order) as consumer:
        assert_type((await consumer.getone()).value, TypedOrder)
    producer = AIOKafkaProducer(value_serializer=to_bytes)
    await producer.start()
    await producer.send("t", TypedOrder())


async def errors_are_exported(producer: Producer) -> None:
    try:
        await producer.flush()
    except errors.ProducerFenced as fenced:
        print(fenced.message)
    except errors.KafkaError as error:
        assert_type(error, KafkaError)
        print(error.retriable)


def serializers() -> None:
    assert_type(Producer(value_serializer=JsonSerializer[TypedOrder]()), Producer[bytes | None, TypedOrder | None])
    only_orders: Producer[bytes | None, TypedOrder] = Producer(value_serializer=JsonSerializer())
    assert_type(Producer(key_serializer=StringSerializer()), Producer[str | None, bytes | None])
    assert_type(Consumer("t", value_deserializer=JsonDeserializer(TypedOrder)), Consumer[bytes | None, TypedOrder])
    assert_type(
        Consumer("t", value_deserializer=JsonDeserializer(TypedOrder, nullable=True)),
        Consumer[bytes | None, TypedOrder | None],
    )
    assert_type(Consumer("t", value_deserializer=JsonDeserializer()), Consumer[bytes | None, Any])
    assert_type(
        Consumer("t", value_deserializer=JsonDeserializer(list[TypedOrder])), Consumer[bytes | None, list[TypedOrder]]
    )
    assert_type(Consumer("t", value_deserializer=JsonDeserializer(TypedOrder | int)), Consumer[bytes | None, Any])
    assert_type(
        Consumer("t", key_deserializer=StringDeserializer(), value_deserializer=LongDeserializer(nullable=True)),
        Consumer[str, int | None],
    )
    del only_orders


async def with_a_registry(registry: AsyncSchemaRegistryClient) -> None:
    serializer = await AvroSerializer[TypedOrder].load(registry, "{}", topic="orders")
    assert_type(Producer(value_serializer=serializer), Producer[bytes | None, TypedOrder | None])
    assert_type(
        Consumer("t", value_deserializer=AvroDeserializer(registry, TypedOrder)), Consumer[bytes | None, TypedOrder]
    )
    assert_type(Consumer("t", value_deserializer=AvroDeserializer(registry)), Consumer[bytes | None, Any])
    nullable = AvroDeserializer(registry, TypedOrder, nullable=True)
    assert_type(Consumer("t", value_deserializer=nullable), Consumer[bytes | None, TypedOrder | None])
