"""OffsetForLeaderEpoch (key 23) of a follower, v4: where an epoch ended here, as for clients.

Followers are told where logs part by their fetches, so they have nothing to ask. They do ask, for nothing, when they
have partitions to add to a fetch that waits for data: then that is answered at once.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from semel_protocol.messages.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from semel_broker.context import RequestContext
from semel_broker.handlers import k23_offset_for_leader_epoch
from semel_broker.replication.sessions import Sessions


def handle(
    sessions: Sessions, request: OffsetForLeaderEpochRequest, ctx: RequestContext
) -> Coroutine[Any, Any, OffsetForLeaderEpochResponse]:
    sessions.nudge(request.replica_id)
    return k23_offset_for_leader_epoch.handle(request, ctx)
