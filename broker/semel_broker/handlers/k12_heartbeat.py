"""Heartbeat (key 12): a member is alive.

While the group rebalances the answer is REBALANCE_IN_PROGRESS, so that the member joins again. v3 adds the instance id
(KIP-345), v4 is flexible.
"""

from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse

from semel_broker.authorization.administration import OWN_GROUP
from semel_broker.authorization.requirements import Requirements, on_group
from semel_broker.context import RequestContext


async def handle(request: HeartbeatRequest, ctx: RequestContext) -> HeartbeatResponse:
    shard = await ctx.broker.groups.shard_of_member(request.group_id, request.member_id)
    shard.heartbeat(request.group_id, request.generation_id, request.member_id, request.group_instance_id)
    return HeartbeatResponse(error_code=ErrorCode.NONE)


NEEDS: Requirements = (on_group(Operation.READ),)
NOT_AUDITED = OWN_GROUP
