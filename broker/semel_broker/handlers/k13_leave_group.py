"""LeaveGroup (key 13): members leave their group at once, before their sessions end.

v0 to v2: one member, whose error is that of the response. v3 (KIP-345): several members, by member id or by instance id
alone. Each row of the answer carries exactly the identity of its row in the request, because clients look it up by
that.
"""

from semel_protocol.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, LeaveGroupResponseMember

from semel_broker.context import RequestContext

MEMBERS_VERSION = 3


async def handle(request: LeaveGroupRequest, ctx: RequestContext) -> LeaveGroupResponse:
    groups = ctx.broker.groups
    if ctx.api_version < MEMBERS_VERSION:
        (code,) = await groups.leave(request.group_id, [(request.member_id, None)])
        return LeaveGroupResponse(error_code=code)
    identities = [(member.member_id, member.group_instance_id) for member in request.members]
    codes = await groups.leave(request.group_id, identities)
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponseMember(member_id=member_id, group_instance_id=instance_id, error_code=code)
            for (member_id, instance_id), code in zip(identities, codes, strict=True)
        ]
    )
