"""IncrementalAlterConfigs (key 44): edits the settings of topics, brokers, groups and client metrics (KIP-339).

When answered, the change is durable and in force on open logs. Broker "" means all brokers. UNKNOWN_TOPIC_OR_PARTITION:
no such topic. INVALID_CONFIG: an unknown setting, an invalid value, or a broker setting that cannot change at run time.
INVALID_REQUEST: another resource type or broker, an unknown operation, or a setting given twice.
"""

from semel_protocol.acls import Operation
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseResource,
)

from semel_broker.authorization.administration import Administration
from semel_broker.authorization.requirements import Requirements
from semel_broker.config.edits import Edit
from semel_broker.context import RequestContext
from semel_broker.handlers.config_rights import alterations, codes_of_resources, on_resources
from semel_broker.topics.resource_configs import ResourceConfigs


async def handle(request: IncrementalAlterConfigsRequest, ctx: RequestContext) -> IncrementalAlterConfigsResponse:
    """One row per resource, in the order of the request; each is altered wholly or not at all."""
    resources = ResourceConfigs(ctx.broker.config, ctx.broker.store, ctx.broker.topics)
    rows = []
    slices = ctx.slices()
    for asked in request.resources:
        if slices.is_over():
            await slices.next()
        row = IncrementalAlterConfigsResponseResource(
            resource_type=asked.resource_type, resource_name=asked.resource_name
        )
        try:
            edits = [Edit(config.name, config.config_operation, config.value) for config in asked.configs]
            await resources.edit(row.resource_type, row.resource_name, edits, validate_only=request.validate_only)
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
        rows.append(row)
    return IncrementalAlterConfigsResponse(responses=rows)


NEEDS: Requirements = (on_resources(Operation.ALTER_CONFIGS, IncrementalAlterConfigsRequest),)
AUDIT = Administration(alterations, codes_of_resources)
