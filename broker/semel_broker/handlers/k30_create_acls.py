"""CreateAcls (key 30): store access control entries. An entry that exists already is no error.

When answered, the entries are durable and in force on this broker. SECURITY_DISABLED: there is no authorizer.
INVALID_REQUEST: an entry that means nothing; the other entries of the request are stored. POLICY_VIOLATION: there are
too many.
"""

from __future__ import annotations

from typing import Any

from semel_protocol.acls import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k30_create_acls import (
    CreateAclsRequest,
    CreateAclsRequestCreation,
    CreateAclsResponse,
    CreateAclsResponseResult,
)

from semel_broker.authorization.administration import Administration, AdministrativeChange, codes_by_position, deed_on
from semel_broker.authorization.requirements import Requirements, on_cluster
from semel_broker.context import RequestContext
from semel_broker.handlers.k29_describe_acls import acls_of, known


async def handle(request: CreateAclsRequest, ctx: RequestContext) -> CreateAclsResponse:
    """One row per entry, in the order of the request."""
    results: list[CreateAclsResponseResult] = []
    accepted: list[Acl] = []
    slices = ctx.slices()
    if ctx.broker.acls is not None and ctx.broker.acls.is_full:
        await ctx.broker.acls.catch_up()  # other brokers may have deleted some
    for asked in request.creations:
        result = CreateAclsResponseResult()
        try:
            acls = acls_of(ctx)
            acls.check(acl := _acl(asked))
            accepted.append(acl)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        if slices.is_over():
            await slices.next()
    if accepted:
        await _store(accepted, results, ctx)
    return CreateAclsResponse(results=results)


async def _store(accepted: list[Acl], results: list[CreateAclsResponseResult], ctx: RequestContext) -> None:
    try:
        await acls_of(ctx).create(accepted)
    except KafkaError as error:
        for result in results:
            if not result.error_code:
                result.error_code, result.error_message = error.code, error.message
        return
    for acl in accepted:
        ctx.broker.log.info("acl_created", acl=str(acl), by=ctx.principal.name, host=ctx.principal.host)


def _acl(asked: CreateAclsRequestCreation) -> Acl:
    return Acl(
        known(ResourceType, asked.resource_type),
        asked.resource_name,
        known(PatternType, asked.resource_pattern_type),
        asked.principal,
        asked.host,
        known(Operation, asked.operation),
        known(Permission, asked.permission_type),
    )


# --- rights and audit ----------------------------------------------------------------------------------------


def _creations(request: CreateAclsRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    return [
        deed_on(
            Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, [shown_acl(row, row.resource_pattern_type)], key=at
        )
        for at, row in enumerate(request.creations)
    ]


def shown_acl(row: Any, pattern: int) -> str:
    """The entry of a row, as a line of the audit has it."""
    try:
        kinds = ResourceType(row.resource_type), PatternType(pattern)
        acl = Acl(
            kinds[0],
            row.resource_name,
            kinds[1],
            row.principal,
            row.host,
            Operation(row.operation),
            Permission(row.permission_type),
        )
    except ValueError:
        return "an entry with unknown numbers"
    return str(acl)


NEEDS: Requirements = (on_cluster(Operation.ALTER),)
AUDIT = Administration(_creations, codes_by_position("results"))
