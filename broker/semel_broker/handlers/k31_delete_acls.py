"""DeleteAcls (key 31): remove the access control entries that filters select; the answer lists them.

The filters select among all entries of the cluster, also those that another broker has just answered. An entry that two
filters select is in both lists, as in Kafka. When answered, the entries are gone for good and no longer in force on
this broker. A CreateAcls that was answered with REQUEST_TIMED_OUT before creates nothing afterwards. SECURITY_DISABLED:
there is no authorizer. INVALID_REQUEST: a filter with parts that this broker does not know. REQUEST_TIMED_OUT: the
cluster's store cannot be reached.
"""

from __future__ import annotations

from collections.abc import Sequence

from semel_protocol.acls import CLUSTER_NAME, Acl, Operation, ResourceType
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k31_delete_acls import (
    DeleteAclsRequest,
    DeleteAclsRequestFilter,
    DeleteAclsResponse,
    DeleteAclsResponseFilterResult,
    DeleteAclsResponseMatchingAcl,
)

from semel_broker.authorization.administration import Administration, AdministrativeChange, Codes, deed_on
from semel_broker.authorization.requirements import Requirements, on_cluster
from semel_broker.context import RequestContext
from semel_broker.handlers.k29_describe_acls import acls_of, filter_of
from semel_broker.handlers.k30_create_acls import shown_acl


async def handle(request: DeleteAclsRequest, ctx: RequestContext) -> DeleteAclsResponse:
    """One row per filter, in the order of the request."""
    results = [DeleteAclsResponseFilterResult() for _ in request.filters]
    try:
        await _delete(request.filters, results, ctx)
    except KafkaError as error:
        for result in results:
            if not result.error_code:
                result.error_code, result.error_message, result.matching_acls = error.code, error.message, []
    return DeleteAclsResponse(filter_results=results)


async def _delete(
    filters: Sequence[DeleteAclsRequestFilter], results: Sequence[DeleteAclsResponseFilterResult], ctx: RequestContext
) -> None:
    """Fill the results. Raises what concerns all of them."""
    acls = acls_of(ctx)
    await acls.settle()
    doomed: dict[Acl, None] = {}
    slices = ctx.slices()
    for asked, result in zip(filters, results, strict=True):
        try:
            found = acls.find(filter_of(asked))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        doomed |= dict.fromkeys(found)
        result.matching_acls = [_row(acl) for acl in found]
        if slices.is_over(1 + len(found)):
            await slices.next()
    await acls.delete(doomed)
    for acl in doomed:
        ctx.broker.log.info("acl_deleted", acl=str(acl), by=ctx.principal.name, host=ctx.principal.host)


def _row(acl: Acl) -> DeleteAclsResponseMatchingAcl:
    return DeleteAclsResponseMatchingAcl(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


# --- rights and audit ----------------------------------------------------------------------------------------


def _deletions(request: DeleteAclsRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    return [
        deed_on(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, key=at) for at, _ in enumerate(request.filters)
    ]


def _codes(response: DeleteAclsResponse, deeds: list[AdministrativeChange]) -> Codes:
    """The response has the entries that the filters have found."""
    for deed, row in zip(deeds, response.filter_results, strict=False):
        deed.changes = [f"without {shown_acl(each, each.pattern_type)}" for each in row.matching_acls] or [
            "no entry found"
        ]
    return {at: row.error_code for at, row in enumerate(response.filter_results)}


NEEDS: Requirements = (on_cluster(Operation.ALTER),)
AUDIT = Administration(_deletions, _codes)
