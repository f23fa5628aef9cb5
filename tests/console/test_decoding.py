"""With a schema registry the message browser shows Avro as JSON, and shows why a value cannot be read."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from client.registry.fake_registry import FakeRegistry
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient
from console.conftest import opened
from console.visitor import Visitor
from semel import Producer
from semel.registry.avro import AvroSerializer
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
