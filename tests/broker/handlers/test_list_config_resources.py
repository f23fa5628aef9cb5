"""ListConfigResources: the names of resources that have settings, by type (KIP-1142)."""

from __future__ import annotations

from typing import Any

import pytest
from broker.harness import Wire
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from semel_protocol.messages.k74_list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE = 0, 1


async def listed(wire: Wire, *types: int, version: int = 1) -> list[tuple[int, str]]:
    answer = await wire.call(ListConfigResourcesRequest(resource_types=list(types)), version)
    assert answer.error_code == 0
    return [(row.resource_type, row.resource_name) for row in answer.config_resources]


async def alter_group(wire: Wire, group: str, operation: int) -> None:
    row = IncrementalAlterConfigsRequestConfig(
        name="consumer.session.timeout.ms", config_operation=operation, value="50000"
    )
    resource = IncrementalAlterConfigsRequestResource(resource_type=GROUP, resource_name=group, configs=[row])
    answer: Any = await wire.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 0)
    assert answer.responses[0].error_code == 0


@pytest.fixture
async def ready(wire: Wire) -> Wire:
    """A broker with two topics and a group with settings."""
    for name in ("u", "t"):
        await wire.create_topic(name)
    await alter_group(wire, "g", SET)
    return wire


async def test_an_empty_list_asks_for_all_types(ready: Wire) -> None:
    assert await listed(ready) == [(TOPIC, "t"), (TOPIC, "u"), (BROKER, "0"), (GROUP, "g")]


async def test_only_the_types_that_were_asked_for_are_listed_each_once(ready: Wire) -> None:
    assert await listed(ready, GROUP, BROKER, GROUP) == [(BROKER, "0"), (GROUP, "g")]
    assert await listed(ready, BROKER_LOGGER, CLIENT_METRICS) == []


async def test_a_group_is_listed_while_it_has_settings(ready: Wire) -> None:
    await alter_group(ready, "f", SET)
    assert await listed(ready, GROUP) == [(GROUP, "f"), (GROUP, "g")]
    await alter_group(ready, "g", DELETE)
    assert await listed(ready, GROUP) == [(GROUP, "f")]


@pytest.mark.parametrize("kinds", [[1], [TOPIC, 64]])
async def test_a_type_without_settings_refuses_the_request(ready: Wire, kinds: list[int]) -> None:
    answer = await ready.call(ListConfigResourcesRequest(resource_types=kinds), 1)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_version_0_lists_client_metrics_alone(ready: Wire) -> None:
    assert await listed(ready, version=0) == []
