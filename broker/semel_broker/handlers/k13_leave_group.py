"""LeaveGroup (key 13): members leave their group at once, before their sessions end.

v0 to v2: one member, whose error is that of the response. v3 (KIP-345): several members, by member id or by instance id
alone. Each row of the answer carries exactly the identity of its row in the request, because clients look it up by
that.
"""

from collections.abc import Sequence

from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, LeaveGroupResponseMember
from semel_storage.internal_topics import CONSUMER_OFFSETS

from semel_broker.authorization.administration import OWN_GROUP
from semel_broker.authorization.requirements import Requirements, on_group
from semel_broker.context import RequestContext

MEMBERS_VERSION = 3

Identity = tuple[str, str | None]
"""(member id, instance id)."""


async def handle(request: LeaveGroupRequest, ctx: RequestContext) -> LeaveGroupResponse:
    if ctx.api_version < MEMBERS_VERSION:
        (code,) = await _leave(request.group_id, [(request.member_id, None)], ctx)
        return LeaveGroupResponse(error_code=code)
    identities: list[Identity] = [(member.member_id, member.group_instance_id) for member in request.members]
    codes = await _leave(request.group_id, identities, ctx)
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponseMember(member_id=member_id, group_instance_id=instance_id, error_code=code)
            for (member_id, instance_id), code in zip(identities, codes, strict=True)
        ]
    )


async def _leave(group_id: str, members: Sequence[Identity], ctx: RequestContext) -> list[ErrorCode]:
    """A code for each member. Before the first group is stored there is no member: this does not create the topic."""
    groups = ctx.broker.groups
    if group_id and ctx.broker.topics.get(CONSUMER_OFFSETS) is None:
        return [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]
    return await (await groups.shard(group_id)).leave(group_id, members)


NEEDS: Requirements = (on_group(Operation.READ),)
NOT_AUDITED = OWN_GROUP
