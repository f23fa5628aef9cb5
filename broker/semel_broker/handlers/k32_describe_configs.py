"""DescribeConfigs (key 32): the settings of topics (2), brokers (4), client metrics (16) and groups (32).

Each value has its source.

v1 adds sources and synonyms (KIP-226); v3 adds types and, if asked for, documentation (KIP-569). Broker "" means all
brokers and has only the settings altered for all. UNKNOWN_TOPIC_OR_PARTITION: no such topic. INVALID_TOPIC_EXCEPTION:
an illegal topic name. The value of a secret is null. INVALID_REQUEST: another resource type, or another broker.
"""

from collections.abc import Iterable

from semel_protocol.acls import Operation
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
    DescribeConfigsResponseConfig,
    DescribeConfigsResponseResult,
    DescribeConfigsResponseSynonym,
)
from semel_protocol.visible import encodable

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements
from semel_broker.config.loading import ConfigSource
from semel_broker.context import RequestContext
from semel_broker.handlers.config_rights import on_resources
from semel_broker.topics.resource_configs import Described, ResourceConfigs


async def handle(request: DescribeConfigsRequest, ctx: RequestContext) -> DescribeConfigsResponse:
    """One row per resource, in the order of the request."""
    resources = ResourceConfigs(ctx.broker.config, ctx.broker.store, ctx.broker.topics)
    results = []
    slices = ctx.slices()
    for asked in _distinct(request.resources):
        result = DescribeConfigsResponseResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
        try:
            found = resources.describe(asked.resource_type, asked.resource_name, asked.configuration_keys)
            result.configs = [_row(described, request) for described in found]
            result.error_message = ""  # Kafka sends "" where there is no message
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        if slices.is_over(1 + len(result.configs)):
            await slices.next()
    return DescribeConfigsResponse(results=results)


def _distinct(resources: Iterable[DescribeConfigsRequestResource]) -> Iterable[DescribeConfigsRequestResource]:
    """Each resource once, because the answer is far longer than the request."""
    return {(row.resource_type, row.resource_name): row for row in resources}.values()


def _row(described: Described, request: DescribeConfigsRequest) -> DescribeConfigsResponseConfig:
    value = described.value
    is_secret = value.setting.doc.is_secret
    synonyms = [
        DescribeConfigsResponseSynonym(
            name=level.setting.name, value=None if is_secret else encodable(level.value), source=level.source
        )
        for level in described.synonyms
        if level.value is not None
    ]
    return DescribeConfigsResponseConfig(
        name=value.setting.name,
        value=None if is_secret or value.value is None else encodable(value.value),
        is_sensitive=is_secret,
        read_only=described.read_only,
        is_default=value.source == ConfigSource.DEFAULT,
        config_source=value.source,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=value.setting.kind,
        documentation=value.setting.documentation if request.include_documentation else None,
    )


NEEDS: Requirements = (on_resources(Operation.DESCRIBE_CONFIGS, DescribeConfigsRequest),)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
