"""CreateAcls (key 30): SECURITY_DISABLED for each entry, as in Kafka without an authorizer."""

from __future__ import annotations

from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k30_create_acls import CreateAclsRequest, CreateAclsResponse, CreateAclsResponseResult

from semel_broker.context import RequestContext
from semel_broker.handlers.k29_describe_acls import NO_AUTHORIZER


def handle(request: CreateAclsRequest, ctx: RequestContext) -> CreateAclsResponse:
    refused = CreateAclsResponseResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
