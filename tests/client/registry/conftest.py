"""Fixtures: a schema registry in this process, and a client of it that tries each request once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from client.registry.fake_registry import FakeRegistry
from confluent_kafka.schema_registry import AsyncSchemaRegistryClient


@pytest.fixture
async def fake() -> AsyncIterator[FakeRegistry]:
    async with FakeRegistry() as registry:
        yield registry


@pytest.fixture
async def registry(fake: FakeRegistry) -> AsyncIterator[AsyncSchemaRegistryClient]:
    client = AsyncSchemaRegistryClient({"url": fake.url, "max.retries": 0})
    yield client
    await client.aclose()
