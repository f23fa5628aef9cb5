"""AlterConfigs (key 33): replace all settings of topics and brokers (KIP-133).

A setting that is not named returns to its default. Clients should use IncrementalAlterConfigs (key 44). Errors are
those of key 44.
"""

from semel_protocol.acls import Operation
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlterConfigsResponseResource,
)

from semel_broker.authorization.administration import Administration
from semel_broker.authorization.requirements import Requirements
from semel_broker.config.edits import replaced
from semel_broker.context import RequestContext
from semel_broker.handlers.config_rights import alterations, codes_of_resources, on_resources
from semel_broker.topics.resource_configs import ResourceConfigs


async def handle(request: AlterConfigsRequest, ctx: RequestContext) -> AlterConfigsResponse:
    """One row per resource, in the order of the request; each is altered wholly or not at all."""
    resources = ResourceConfigs(ctx.broker.config, ctx.broker.store, ctx.broker.topics)
    rows = []
    slices = ctx.slices()
    for asked in request.resources:
        if slices.is_over():
            await slices.next()
        row = AlterConfigsResponseResource(resource_type=asked.resource_type, resource_name=asked.resource_name)
        try:
            configs = replaced([(config.name, config.value) for config in asked.configs])
            await resources.replace(row.resource_type, row.resource_name, configs, validate_only=request.validate_only)
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
        rows.append(row)
    return AlterConfigsResponse(responses=rows)


NEEDS: Requirements = (on_resources(Operation.ALTER_CONFIGS, AlterConfigsRequest),)
AUDIT = Administration(alterations, codes_of_resources)
