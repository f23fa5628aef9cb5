"""DeleteAcls (key 31): SECURITY_DISABLED for each filter, as in Kafka without an authorizer."""

from __future__ import annotations

from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k31_delete_acls import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResponseFilterResult,
)

from semel_broker.context import RequestContext
from semel_broker.handlers.k29_describe_acls import NO_AUTHORIZER


def handle(request: DeleteAclsRequest, ctx: RequestContext) -> DeleteAclsResponse:
    refused = DeleteAclsResponseFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
