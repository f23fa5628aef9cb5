"""Serializers write Kafka's own formats, and deserializers refuse what they cannot read, null included."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from client.consuming import take
from semel import Consumer, Producer
from semel.errors import RecordDeserializationError
from semel.serializers import (
    Deserializer,
    IntegerDeserializer,
    IntegerSerializer,
    JsonDeserializer,
    JsonSerializer,
    LongDeserializer,
    LongSerializer,
    StringDeserializer,
    StringSerializer,
)


class JsonOrder(msgspec.Struct):
    item: str
    count: int = 1


PAIRS: list[tuple[Any, Any, Any, bytes]] = [
    (JsonSerializer(), JsonDeserializer(JsonOrder), JsonOrder("teapot"), b'{"item":"teapot","count":1}'),
    (JsonSerializer(), JsonDeserializer(), {"a": [1, None]}, b'{"a":[1,null]}'),
    (JsonSerializer(), JsonDeserializer(list[JsonOrder]), [JsonOrder("cup", 2)], b'[{"item":"cup","count":2}]'),
    (StringSerializer(), StringDeserializer(), "Zürich", "Zürich".encode()),
    (IntegerSerializer(), IntegerDeserializer(), -2, b"\xff\xff\xff\xfe"),
    (LongSerializer(), LongDeserializer(), 1 << 40, b"\x00\x00\x01\x00\x00\x00\x00\x00"),
]


@pytest.mark.parametrize(("write", "read", "value", "data"), PAIRS)
def test_values_are_written_in_kafkas_format_and_read_back(write: Any, read: Any, value: Any, data: bytes) -> None:
    assert write(value) == data
    assert read(data) == value


@pytest.mark.parametrize("write", [JsonSerializer(), StringSerializer(), IntegerSerializer(), LongSerializer()])
def test_none_is_written_as_null(write: Any) -> None:
    assert write(None) is None


@pytest.mark.parametrize("kind", [JsonDeserializer, StringDeserializer, IntegerDeserializer, LongDeserializer])
def test_null_is_refused_unless_it_is_allowed(kind: type[Deserializer[Any]]) -> None:
    with pytest.raises(ValueError, match=r"null.*nullable=True"):
        kind()(None)
    assert kind(nullable=True)(None) is None


@pytest.mark.parametrize(
    ("read", "data", "words"),
    [
        (JsonDeserializer(JsonOrder), b'{"item":5}', r"Expected `str`, got `int` - at `\$.item`"),
        (JsonDeserializer(JsonOrder), b"teapot", "malformed"),
        (StringDeserializer(), b"\xff", "invalid start byte"),
        (IntegerDeserializer(), b"\0\0\0", "it has 3 bytes: IntegerDeserializer reads 4"),
        (LongDeserializer(), b"\0\0\0\0", "it has 4 bytes: LongDeserializer reads 8"),
    ],
)
def test_other_bytes_are_refused_with_a_reason(read: Any, data: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(data)


@pytest.mark.parametrize(("write", "most"), [(IntegerSerializer(), 1 << 31), (LongSerializer(), 1 << 63)])
def test_numbers_that_do_not_fit_are_refused(write: Any, most: int) -> None:
    write(most - 1)
    write(-most)
    with pytest.raises(OverflowError):
        write(most)


async def test_typed_records_travel_and_a_bad_one_is_skipped_by_its_error(bootstrap: str) -> None:
    async with Producer(
        bootstrap_servers=bootstrap, key_serializer=StringSerializer(), value_serializer=JsonSerializer[JsonOrder]()
    ) as producer:
        await producer.send_and_wait("orders", JsonOrder("teapot"), "one")
    async with Producer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("orders", b'{"item":"cup","count":"two"}', b"two")
        await producer.send_and_wait("orders", b'{"item":"spoon"}', b"three")
    consumer = Consumer(
        "orders",
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        key_deserializer=StringDeserializer(),
        value_deserializer=JsonDeserializer(JsonOrder),
    )
    async with consumer:
        assert [(r.key, r.value) for r in await take(consumer, 1)] == [("one", JsonOrder("teapot"))]
        with pytest.raises(RecordDeserializationError, match=r"orders-0 at offset 1: the value .*\$\.count") as caught:
            await consumer.getone()
        consumer.seek(caught.value.topic_partition, caught.value.record.offset + 1)
        assert [(r.key, r.value) for r in await take(consumer, 1)] == [("three", JsonOrder("spoon"))]
