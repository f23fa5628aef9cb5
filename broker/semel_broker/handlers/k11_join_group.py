"""JoinGroup (key 11): join a group or its next generation; answered when that generation begins.

v0 has no rebalance timeout: the session timeout stands in. From v4 a new dynamic member is first answered with
MEMBER_ID_REQUIRED and its id. v5 adds static members. v7 returns the protocol type. v9 may tell a returning leader to
skip the assignment.

A new member whose connection closes while it waits is removed again: the group does not wait for it, and does not
assign partitions to it. (Kafka keeps it until its session ends.)
"""

from semel_protocol.acls import Operation
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember

from semel_broker.authorization.administration import OWN_GROUP
from semel_broker.authorization.requirements import Requirements, on_group
from semel_broker.context import RequestContext
from semel_broker.groups.requests import Join, MemberIdRequiredError

MEMBER_ID_REQUIRED_VERSION = 4
NULLABLE_PROTOCOL_VERSION = 7
SKIP_ASSIGNMENT_VERSION = 9


async def handle(request: JoinGroupRequest, ctx: RequestContext) -> JoinGroupResponse:
    groups = ctx.broker.groups
    session_ms, rebalance_ms = request.session_timeout_ms, request.rebalance_timeout_ms
    ask = Join(
        member_id=request.member_id,
        new_member_id="" if request.member_id else groups.new_member_id(request.group_instance_id or ctx.client_id),
        instance_id=request.group_instance_id,
        client_id=ctx.client_id,
        client_host=f"/{ctx.client_host}",  # as Java prints an address; tools expect it
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms if rebalance_ms < 0 else rebalance_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        must_return=ctx.api_version >= MEMBER_ID_REQUIRED_VERSION,
        may_skip_assignment=ctx.api_version >= SKIP_ASSIGNMENT_VERSION,
    )
    try:
        groups.check_ids(request.group_id, request.member_id, request.group_instance_id)
        joined = await (await groups.shard(request.group_id)).join(request.group_id, ask, ctx.parting)
    except MemberIdRequiredError as error:
        return _refused(error, error.member_id, ctx)
    except KafkaError as error:
        return _refused(error, request.member_id, ctx)
    return JoinGroupResponse(
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ],
    )


def _refused(error: KafkaError, member_id: str, ctx: RequestContext) -> JoinGroupResponse:
    no_protocol = None if ctx.api_version >= NULLABLE_PROTOCOL_VERSION else ""
    return JoinGroupResponse(error_code=error.code, protocol_name=no_protocol, member_id=member_id)


NEEDS: Requirements = (on_group(Operation.READ),)
NOT_AUDITED = OWN_GROUP
LONG_ANSWER = True
