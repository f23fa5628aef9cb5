"""SyncGroup (key 14): the leader sends the assignments of a generation; each member is answered with its own.

Answered once the leader's assignments are durable. v3 adds the instance id, v5 the protocol that the member assumes
(INCONSISTENT_GROUP_PROTOCOL without it).
"""

from semel_protocol.acls import Operation
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse

from semel_broker.authorization.administration import OWN_GROUP
from semel_broker.authorization.requirements import Requirements, on_group
from semel_broker.context import RequestContext
from semel_broker.groups.requests import Sync

PROTOCOL_VERSION = 5


async def handle(request: SyncGroupRequest, ctx: RequestContext) -> SyncGroupResponse:
    if ctx.api_version >= PROTOCOL_VERSION and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"SyncGroup v{ctx.api_version} names no protocol: send the type and name that JoinGroup returned",
        )
    ask = Sync(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation_id=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={row.member_id: row.assignment for row in request.assignments},
    )
    shard = await ctx.broker.groups.shard_of_member(request.group_id, request.member_id)
    synced = await shard.sync(request.group_id, ask)
    return SyncGroupResponse(
        protocol_type=synced.protocol_type, protocol_name=synced.protocol, assignment=synced.assignment
    )


NEEDS: Requirements = (on_group(Operation.READ),)
NOT_AUDITED = OWN_GROUP
