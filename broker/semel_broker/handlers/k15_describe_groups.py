"""DescribeGroups (key 15): state and members of classic groups.

An unknown group, and one of the consumer protocol, is "Dead": without an error up to v5, with GROUP_ID_NOT_FOUND from
v6 on (KIP-1043). ConsumerGroupDescribe describes groups of the consumer protocol.

Metadata and assignments of members are shown while the group is Stable. v3 adds authorized operations (KIP-430), v4 the
instance id.
"""

from typing import Any

from semel_protocol.acls import Operation, ResourceType, every_operation
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k15_describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseMember,
)
from semel_protocol.refusals import refused_row
from semel_protocol.schema import Message

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import CheckedRequest, CustomRequirement, Requirements, Steps, on_each
from semel_broker.context import RequestContext
from semel_broker.groups.classic.group import ClassicMembership, GroupState

NOT_FOUND_VERSION = 6


async def handle(request: DescribeGroupsRequest, ctx: RequestContext) -> DescribeGroupsResponse:
    """One row per group, in the order of the request."""
    slices = ctx.slices()
    groups = []
    for group_id in dict.fromkeys(request.groups):
        groups.append(group := await _describe(group_id, ctx))
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = every_operation(ResourceType.GROUP)
        if slices.is_over(1 + len(group.members)):
            await slices.next()
    return DescribeGroupsResponse(groups=groups)


async def _describe(group_id: str, ctx: RequestContext) -> DescribeGroupsResponseGroup:
    try:
        shard = await ctx.broker.groups.shards.ready_if_any(group_id)
    except KafkaError as error:
        return refused_row(DescribeGroupsResponseGroup, group_id, error.code)
    found = shard.groups.get(group_id) if shard is not None else None
    if found is None:
        return _not_found(group_id, f"there is no group {group_id}", ctx)
    if (group := found.of(ClassicMembership)) is None:
        return _not_found(group_id, f"{group_id} is a group of the consumer protocol: use ConsumerGroupDescribe", ctx)
    stable = group.state is GroupState.STABLE
    return DescribeGroupsResponseGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type,
        protocol_data=(group.protocol or "") if stable else "",
        members=_members(group, stable, round(ctx.broker.world.monotonic() * 1000)),
    )


def _not_found(group_id: str, why: str, ctx: RequestContext) -> DescribeGroupsResponseGroup:
    dead = DescribeGroupsResponseGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if ctx.api_version >= NOT_FOUND_VERSION:
        dead.error_code, dead.error_message = ErrorCode.GROUP_ID_NOT_FOUND, why
    return dead


def _members(group: ClassicMembership, stable: bool, now_ms: int) -> list[DescribeGroupsResponseMember]:
    return [
        DescribeGroupsResponseMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata_for(group.protocol) if stable else b"",
            member_assignment=member.assignment if stable else b"",
            silent_ms=-1 if member.is_new else max(-1, now_ms - member.expires_ms + member.session_timeout_ms),
        )
        for member in group.members.values()
    ]


# --- rights and audit ----------------------------------------------------------------------------------------


_ROWS = on_each(Operation.DESCRIBE, ResourceType.GROUP, DescribeGroupsRequest)


def _check(request: DescribeGroupsRequest, ctx: RequestContext, access: Access) -> Steps:
    """Describe on each group; with the authorized operations if the request asks for them (KIP-430)."""
    permitted = yield from _ROWS.check(request, ctx, access)
    if not request.include_authorized_operations:
        return permitted

    def with_operations(response: Any) -> Message:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = access.operations(ResourceType.GROUP, group.group_id)
        made: Message = response
        return made

    return CheckedRequest(permitted.request, permitted.answer, [*permitted.complete, with_operations])


NEEDS: Requirements = (CustomRequirement([(Operation.DESCRIBE, ResourceType.GROUP, "each row")], _check),)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
