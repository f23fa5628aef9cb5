"""Access control entries: describe, create, delete. Any broker answers; the others follow within a moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from semel_protocol.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from semel_protocol.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse
from semel_protocol.messages.k30_create_acls import CreateAclsRequest, CreateAclsRequestCreation, CreateAclsResponse
from semel_protocol.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter, DeleteAclsResponse

from semel._net.calls import CallOutcomes, Calls
from semel._net.connection import Connection
from semel._net.retry import Deadline


async def describe_acls(calls: Calls, wanted: AclFilter, timeout_ms: float | None) -> list[Acl]:
    outcomes: CallOutcomes[AclFilter, list[Acl]] = CallOutcomes([wanted], lambda each: "describing ACLs")

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
        answer: DescribeAclsResponse = await calls.request(connection, request, deadline)
        if answer.error_code:
            outcomes.refused(wanted, answer.error_code, answer.error_message)
        else:
            found = [
                _acl(row.resource_type, row.resource_name, row.pattern_type, acl)
                for row in answer.resources
                for acl in row.acls
            ]
            outcomes.succeeded(wanted, sorted(found))

    return (await calls.on_controller(attempt, outcomes, what="describing ACLs", timeout_ms=timeout_ms))[wanted]


async def create_acls(calls: Calls, acls: Sequence[Acl], timeout_ms: float | None) -> None:
    outcomes: CallOutcomes[Acl, None] = CallOutcomes(acls, lambda acl: f"creating the ACL {acl}")

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        asked = list(outcomes.open)
        answer: CreateAclsResponse = await calls.request(
            connection, CreateAclsRequest(creations=[_creation(acl) for acl in asked]), deadline
        )
        for acl, row in zip(asked, answer.results, strict=False):
            if row.error_code:
                outcomes.refused(acl, row.error_code, row.error_message)
            else:
                outcomes.succeeded(acl, None)

    await calls.on_controller(attempt, outcomes, what="creating ACLs", timeout_ms=timeout_ms)


async def delete_acls(calls: Calls, filters: Iterable[AclFilter], timeout_ms: float | None) -> list[Acl]:
    outcomes: CallOutcomes[AclFilter, list[Acl]] = CallOutcomes(filters, lambda each: "deleting ACLs")

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        asked = list(outcomes.open)
        answer: DeleteAclsResponse = await calls.request(
            connection, DeleteAclsRequest(filters=[_filter(each) for each in asked]), deadline
        )
        for each, row in zip(asked, answer.filter_results, strict=False):
            if row.error_code:
                outcomes.refused(each, row.error_code, row.error_message)
            else:
                outcomes.succeeded(
                    each,
                    [_acl(acl.resource_type, acl.resource_name, acl.pattern_type, acl) for acl in row.matching_acls],
                )

    deleted = await calls.on_controller(attempt, outcomes, what="deleting ACLs", timeout_ms=timeout_ms)
    return sorted({acl for found in deleted.values() for acl in found})


def _creation(acl: Acl) -> CreateAclsRequestCreation:
    return CreateAclsRequestCreation(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _filter(wanted: AclFilter) -> DeleteAclsRequestFilter:
    return DeleteAclsRequestFilter(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def _acl(kind: int, name: str, pattern: int, row: Any) -> Acl:
    """The entry of a row of either response: their fields have the same names."""
    return Acl(
        ResourceType(kind),
        name,
        PatternType(pattern),
        row.principal,
        row.host,
        Operation(row.operation),
        Permission(row.permission_type),
    )
