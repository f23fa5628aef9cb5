"""DescribeAcls (key 29): SECURITY_DISABLED, as in Kafka without an authorizer.

MirrorMaker 2 and kafka-acls expect this answer.
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse

from semel_broker.context import RequestContext

NO_AUTHORIZER = "the broker has no authorizer: it has no ACLs, and every client may do everything"


def handle(request: DescribeAclsRequest, ctx: RequestContext) -> DescribeAclsResponse:
    """SECURITY_DISABLED for each filter: there is no authorizer."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
