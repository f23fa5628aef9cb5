"""AlterClientQuotas (key 49): set and remove quotas of users, client ids and addresses (KIP-546).

When answered, the quotas are durable and in force on this broker. Each entity is changed on its own. INVALID_REQUEST:
an unknown type or quota, a value that is not positive, an ip that is no address, an ip beside a user or client id; the
other entities of the request are changed.
"""

from __future__ import annotations

from typing import Any

from semel_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntry,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntity,
    AlterClientQuotasResponseEntry,
)

from semel_broker.authorization.administration import Administration, AdministrativeChange, Codes, deed_on
from semel_broker.authorization.requirements import Requirements, on_cluster
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


# --- rights and audit ----------------------------------------------------------------------------------------


def _changes(request: AlterClientQuotasRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    if request.validate_only:
        return []
    return [
        deed_on(
            Operation.ALTER_CONFIGS,
            ResourceType.CLUSTER,
            CLUSTER_NAME,
            [
                f"{_shown_entity(entry)}: {each.key} {'is removed' if each.remove else f'= {each.value:g}'}"
                for each in entry.ops
            ],
            key=_shown_entity(entry),
        )
        for entry in request.entries
    ]


def _codes(response: AlterClientQuotasResponse, deeds: list[AdministrativeChange]) -> Codes:
    return {_shown_entity(row): row.error_code for row in response.entries}


def _shown_entity(entry: Any) -> str:
    """The entity of a row of a request or a response, as text."""
    parts = sorted(((part.entity_type, part.entity_name) for part in entry.entity), key=lambda part: part[0])
    return ", ".join(f"{kind} {'<default>' if name is None else name}" for kind, name in parts)


NEEDS: Requirements = (on_cluster(Operation.ALTER_CONFIGS),)
AUDIT = Administration(_changes, _codes)
