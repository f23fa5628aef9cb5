"""ListConfigResources (key 74): the names of resources that have settings, by type.

v0 is ListClientMetricsResources (KIP-1000): client metrics alone. v1 has topics (2), brokers (4), loggers of brokers
(8), client metrics (16) and groups (32); an empty list asks for all types (KIP-1142). A group is listed if it was given
settings. Loggers have no settings, so none is listed.
UNSUPPORTED_VERSION: another type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k74_list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListConfigResourcesResponseConfigResource,
)

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements, on_cluster
from semel_broker.context import RequestContext
from semel_broker.topics import dynamic_configs
from semel_broker.topics.resource_configs import SettingsResourceType

BROKER_LOGGER = 8
TYPES_SINCE = 1


async def handle(request: ListConfigResourcesRequest, ctx: RequestContext) -> ListConfigResourcesResponse:
    served = _NAMES if ctx.api_version >= TYPES_SINCE else _NAMES_OF_V0
    wanted = sorted({*request.resource_types}) or served
    if not served.keys() >= {*wanted}:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found = [(kind, name) for kind in wanted for name in served[kind](ctx)]
    return ListConfigResourcesResponse(config_resources=await ctx.slices().each(found, _row))


def _row(found: tuple[int, str]) -> ListConfigResourcesResponseConfigResource:
    kind, name = found
    return ListConfigResourcesResponseConfigResource(resource_type=kind, resource_name=name)


def _topics(ctx: RequestContext) -> list[str]:
    return ctx.broker.topics.names()


def _brokers(ctx: RequestContext) -> list[str]:
    return [str(each.node_id) for each in ctx.broker.advertised_brokers.with_recent(ctx.listener)]


def _groups(ctx: RequestContext) -> list[str]:
    return dynamic_configs.groups_with_settings(ctx.broker.feed.image)


def _client_metrics(ctx: RequestContext) -> list[str]:
    return [*dynamic_configs.client_metrics(ctx.broker.feed.image)]


def _none(ctx: RequestContext) -> list[str]:
    return []


_NAMES: Mapping[int, Callable[[RequestContext], list[str]]] = {
    SettingsResourceType.TOPIC: _topics,
    SettingsResourceType.BROKER: _brokers,
    BROKER_LOGGER: _none,
    SettingsResourceType.CLIENT_METRICS: _client_metrics,
    SettingsResourceType.GROUP: _groups,
}
_NAMES_OF_V0: Mapping[int, Callable[[RequestContext], list[str]]] = {
    SettingsResourceType.CLIENT_METRICS: _client_metrics
}


NEEDS: Requirements = (on_cluster(Operation.DESCRIBE_CONFIGS),)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
