"""Settings of topics and brokers: describe, alter. A broker's own settings are requested from that broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from semel_protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
)
from semel_protocol.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)
from semel_protocol.messages.k74_list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

from semel._admin.types import (
    ConfigDescription,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigSynonym,
)
from semel._net.calls import CallOutcomes, Calls, settled
from semel._net.connection import Connection
from semel._net.pool import ConnectionPurpose
from semel._net.retry import Deadline
from semel.errors import KafkaConfigurationError, UnsupportedVersionError, error_for

SET, DELETE = 0, 1
ConfigKey = tuple[ConfigResourceType, str]


async def describe_configs(
    calls: Calls, resources: Sequence[ConfigResource], include_synonyms: bool, include_documentation: bool
) -> list[ConfigDescription]:
    async def of_node(node_id: int, part: list[ConfigResource]) -> dict[ConfigKey, ConfigDescription]:
        outcomes: CallOutcomes[ConfigKey, ConfigDescription] = CallOutcomes(map(_key, part), _what)
        request = DescribeConfigsRequest(
            resources=[_described(resource) for resource in part],
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
        )

        async def attempt(deadline: Deadline) -> None:
            connection = await _connection(calls, node_id)
            answer: DescribeConfigsResponse = await calls.request(connection, request, deadline)
            for row in answer.results:
                key = (ConfigResourceType(row.resource_type), row.resource_name)
                if row.error_code:
                    outcomes.refused(key, row.error_code, row.error_message)
                else:
                    outcomes.succeeded(key, ConfigDescription(*key, {c.name: _entry(c) for c in row.configs}))
            outcomes.check()

        await calls.retrying(attempt, what="describing settings")
        return calls.results(outcomes)

    parts = _by_node(resources)
    answers = await asyncio.gather(*(of_node(node, part) for node, part in parts.items()), return_exceptions=True)
    found = {key: row for part in settled(dict(zip(parts, answers, strict=True))).values() for key, row in part.items()}
    return [found[_key(resource)] for resource in resources]


async def alter_configs(
    calls: Calls, resources: Sequence[ConfigResource], validate_only: bool
) -> dict[ConfigKey, None]:
    async def of_node(node_id: int, part: list[ConfigResource]) -> dict[ConfigKey, None]:
        rows = {_key(resource): _altered(resource) for resource in part}
        outcomes: CallOutcomes[ConfigKey, None] = CallOutcomes(rows, _what)

        async def attempt(deadline: Deadline) -> None:
            connection = await _connection(calls, node_id)
            request = IncrementalAlterConfigsRequest(
                resources=[rows[key] for key in outcomes.open], validate_only=validate_only
            )
            answer: IncrementalAlterConfigsResponse = await calls.request(connection, request, deadline)
            for row in answer.responses:
                key = (ConfigResourceType(row.resource_type), row.resource_name)
                if row.error_code:
                    outcomes.refused(key, row.error_code, row.error_message)
                else:
                    outcomes.succeeded(key, None)
            outcomes.check()

        await calls.retrying(attempt, what="altering settings", outcomes=outcomes)
        return calls.results(outcomes)

    if len({_key(resource): None for resource in resources}) != len(resources):
        raise KafkaConfigurationError("alter_configs names a resource twice: put all its settings into one")
    parts = _by_node(resources)
    answers = await asyncio.gather(*(of_node(node, part) for node, part in parts.items()), return_exceptions=True)
    done = settled(dict(zip(parts, answers, strict=True)))
    return {key: row for part in done.values() for key, row in part.items()}


async def list_config_resources(calls: Calls, wanted: Sequence[ConfigResourceType]) -> list[ConfigResource]:
    async def attempt(deadline: Deadline) -> list[ConfigResource]:
        connection = await _connection(calls, ANY)
        if {*wanted} != {ConfigResourceType.CLIENT_METRICS} and not connection.serves(ListConfigResourcesRequest, 1):
            raise UnsupportedVersionError(
                f"listing resources with settings: {connection.name} lists none but those of client metrics (KIP-1142)"
            )
        request = ListConfigResourcesRequest(resource_types=_types(connection, wanted))
        answer: ListConfigResourcesResponse = await calls.request(connection, request, deadline)
        if answer.error_code:
            raise error_for(answer.error_code, "listing resources with settings")
        known = {*ConfigResourceType}
        return [
            ConfigResource(ConfigResourceType(row.resource_type), row.resource_name)
            for row in answer.config_resources
            if row.resource_type in known
        ]

    found = await calls.retrying(attempt, what="listing resources with settings")
    return sorted(found, key=_key)


def _types(connection: Connection, wanted: Sequence[ConfigResourceType]) -> list[int]:
    """The types in the request: a broker that lists client metrics alone is not told of types."""
    return [*map(int, wanted)] if connection.serves(ListConfigResourcesRequest, 1) else []


ANY = -1


def _by_node(resources: Sequence[ConfigResource]) -> dict[int, list[ConfigResource]]:
    """The resources by the broker to ask; ANY for those that every broker has."""
    parts: dict[int, list[ConfigResource]] = {}
    for resource in resources:
        node_id = ANY
        if resource.resource_type is ConfigResourceType.BROKER and resource.name:
            if not resource.name.isascii() or not resource.name.isdigit():
                raise KafkaConfigurationError(f"broker {resource.name!r}: a broker is named by its id, such as '0'")
            node_id = int(resource.name)
        parts.setdefault(node_id, []).append(resource)
    return parts


async def _connection(calls: Calls, node_id: int) -> Connection:
    if node_id == ANY:
        picture = calls.cluster.metadata
        if picture.controller_id in picture.brokers:
            return await calls.cluster.controller_connection()
        return await calls.cluster.any_connection()
    if node_id not in calls.cluster.metadata.brokers:
        await calls.cluster.refresh()
    if node_id not in calls.cluster.metadata.brokers:
        known = ", ".join(map(str, sorted(calls.cluster.metadata.brokers)))
        raise KafkaConfigurationError(f"there is no broker {node_id}; the brokers are {known}")
    return await calls.cluster.connection(node_id, ConnectionPurpose.CONTROL)


def _key(resource: ConfigResource) -> ConfigKey:
    return (ConfigResourceType(resource.resource_type), resource.name)


def _what(key: ConfigKey) -> str:
    return f"settings of {key[0].name.lower()} {key[1]!r}"


def _described(resource: ConfigResource) -> DescribeConfigsRequestResource:
    return DescribeConfigsRequestResource(
        resource_type=resource.resource_type,
        resource_name=resource.name,
        configuration_keys=None if resource.configs is None else list(resource.configs),
    )


def _altered(resource: ConfigResource) -> IncrementalAlterConfigsRequestResource:
    if not isinstance(resource.configs, Mapping):
        raise KafkaConfigurationError(f"{_what(_key(resource))}: alter_configs needs configs={{name: value or None}}")
    return IncrementalAlterConfigsRequestResource(
        resource_type=resource.resource_type,
        resource_name=resource.name,
        configs=[
            IncrementalAlterConfigsRequestConfig(
                name=name, config_operation=DELETE if value is None else SET, value=value
            )
            for name, value in resource.configs.items()
        ],
    )


def _entry(row: DescribeConfigsResponseConfig) -> ConfigEntry:
    return ConfigEntry(
        name=row.name,
        value=row.value,
        source=ConfigSource(row.config_source),
        is_read_only=row.read_only,
        is_sensitive=row.is_sensitive,
        synonyms=tuple(ConfigSynonym(s.name, s.value, ConfigSource(s.source)) for s in row.synonyms),
        documentation=row.documentation,
    )
