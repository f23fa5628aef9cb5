"""DescribeAcls (key 29): the access control entries that a filter selects, by resource.

Without an authorizer SECURITY_DISABLED, as in Kafka; MirrorMaker 2 and kafka-acls expect this answer. INVALID_REQUEST:
a filter with parts that this broker does not know.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

from semel_protocol.acls import AclFilter, Operation, PatternType, Permission, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k29_describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeAclsResponseAclDescription,
    DescribeAclsResponseResource,
)

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import Requirements, on_cluster
from semel_broker.context import RequestContext
from semel_broker.security.acl_store import AclStore


async def handle(request: DescribeAclsRequest, ctx: RequestContext) -> DescribeAclsResponse:
    found = acls_of(ctx).find(filter_of(request))
    return DescribeAclsResponse(
        resources=[
            DescribeAclsResponseResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=[
                    DescribeAclsResponseAclDescription(
                        principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
                    )
                    for acl in acls
                ],
            )
            for (kind, name, pattern), acls in groupby(
                found, key=lambda acl: (acl.resource_type, acl.name, acl.pattern)
            )
        ]
    )


def acls_of(ctx: RequestContext) -> AclStore:
    """The entries. Raises SECURITY_DISABLED without an authorizer."""
    if ctx.broker.acls is None:
        raise KafkaError(
            ErrorCode.SECURITY_DISABLED,
            "the broker has no authorizer: it has no ACLs, and every client may do everything. "
            "Set authorizer.class.name and super.users",
        )
    return ctx.broker.acls


def filter_of(asked: Any) -> AclFilter:
    """The filter of a request of DescribeAcls or DeleteAcls."""
    return AclFilter(
        known(ResourceType, asked.resource_type_filter),
        asked.resource_name_filter,
        known(PatternType, asked.pattern_type_filter),
        asked.principal_filter,
        asked.host_filter,
        known(Operation, asked.operation),
        known(Permission, asked.permission_type),
    )


def known(kind: Any, code: int) -> Any:
    """The member of an enumeration, UNKNOWN for another code."""
    try:
        return kind(code)
    except ValueError:
        return kind.UNKNOWN


NEEDS: Requirements = (on_cluster(Operation.DESCRIBE),)
NOT_AUDITED = CHANGES_NOTHING
