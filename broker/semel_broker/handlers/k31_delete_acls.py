"""DeleteAcls (key 31): remove the access control entries that filters select; the answer lists them.

When answered, they are gone for good and no longer in force on this broker. SECURITY_DISABLED: there is no authorizer.
INVALID_REQUEST: a filter with parts that this broker does not know.
"""

from __future__ import annotations

from semel_protocol.acls import Acl
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k31_delete_acls import (
    DeleteAclsRequest,
    DeleteAclsRequestFilter,
    DeleteAclsResponse,
    DeleteAclsResponseFilterResult,
    DeleteAclsResponseMatchingAcl,
)

from semel_broker.context import RequestContext
from semel_broker.handlers.k29_describe_acls import acls_of, filter_of


async def handle(request: DeleteAclsRequest, ctx: RequestContext) -> DeleteAclsResponse:
    """One row per filter, in the order of the request."""
    return DeleteAclsResponse(filter_results=[await _delete(asked, ctx) for asked in request.filters])


async def _delete(asked: DeleteAclsRequestFilter, ctx: RequestContext) -> DeleteAclsResponseFilterResult:
    result = DeleteAclsResponseFilterResult()
    try:
        acls = acls_of(ctx)
        found = acls.find(filter_of(asked))
        await acls.delete(found)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    for acl in found:
        ctx.broker.log.info("acl_deleted", acl=str(acl), by=ctx.principal.name, host=ctx.principal.host)
    result.matching_acls = [_row(acl) for acl in found]
    return result


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
