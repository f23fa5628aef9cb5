"""OffsetForLeaderEpoch (key 23) of a follower, v4: the end offset of a leader epoch, as for clients.

Fetches already tell followers where logs diverge. A follower sends this request, without partitions, only when it wants
to add partitions to a fetch that waits for data: the leader then answers that fetch at once.
"""

from __future__ import annotations

from semel_protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from semel_broker.context import RequestContext
from semel_broker.handlers import k23_offset_for_leader_epoch
from semel_broker.replication.sessions import Sessions


async def handle(
    sessions: Sessions, request: OffsetForLeaderEpochRequest, ctx: RequestContext
) -> OffsetForLeaderEpochResponse:
    sessions.end_wait(request.replica_id)
    return await k23_offset_for_leader_epoch.handle(request, ctx)
