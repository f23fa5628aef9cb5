"""AlterClientQuotas (key 49): set and remove quotas of users, client ids and addresses (KIP-546).

When answered, the quotas are durable and in force on this broker. Each entity is changed on its own. INVALID_REQUEST:
an unknown type or quota, a value that is not positive, an ip that is no address, an ip beside a user or client id; the
other entities of the request are changed.
"""

from __future__ import annotations

from semel_protocol.errors import KafkaError
from semel_protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntity,
    AlterClientQuotasResponseEntry,
)

from semel_broker.context import RequestContext
from semel_broker.security.quotas.validation import entity_of


async def handle(request: AlterClientQuotasRequest, ctx: RequestContext) -> AlterClientQuotasResponse:
    """One row per entity, in the order of the request."""
    rows = []
    slices = ctx.slices()
    for entry in request.entries:
        row = AlterClientQuotasResponseEntry(
            entity=[
                AlterClientQuotasResponseEntity(entity_type=part.entity_type, entity_name=part.entity_name)
                for part in entry.entity
            ]
        )
        rows.append(row)
        try:
            await _alter(entry, request.validate_only, ctx)
        except KafkaError as error:
            row.error_code, row.error_message = error.code, error.message
        if slices.is_over():
            await slices.next()
    return AlterClientQuotasResponse(entries=rows)


async def _alter(entry: AlterClientQuotasRequestEntry, validate_only: bool, ctx: RequestContext) -> None:
    entity = entity_of((part.entity_type, part.entity_name) for part in entry.entity)
    ops = [(op.key, op.value, op.remove) for op in entry.ops]
    await ctx.broker.quotas.alter(entity, ops, validate_only=validate_only)
    if not validate_only:
        changes = {op.key: None if op.remove else op.value for op in entry.ops}
        ctx.broker.log.info(
            "quota_altered", entity=str(entity), **changes, by=ctx.principal.name, host=ctx.principal.host
        )
