"""Fetch (key 1) of a follower, v15: stored batches, unchanged, up to the end of the log.

A fetch names the offset at which the follower continues, so the follower has everything below it. The leader notes this
before it waits for data, and may move the high watermark (KIP-101). The fetch also names the follower's leader epoch
and the epoch of its last batch. Where the logs diverge, the answer carries `diverging_epoch` instead of data (KIP-595),
and the offset does not count. The fetch carries the epoch of the follower's registration (KIP-903).

Fetches are incremental: see `replication.sessions`. Session epoch 0 begins a session; each later request carries the
next epoch.

Answered as soon as a partition has data, an error or a divergence, otherwise after `max_wait_ms`. High watermarks that
the follower does not know travel with the answer, but do not trigger it. The first partition with data gives at least
one whole batch, also above the limits.
"""

from __future__ import annotations

from asyncio import get_running_loop

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k01_fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)

from semel_broker.context import RequestContext
from semel_broker.replication.sessions import FetchSession, Place, Sessions


async def handle(sessions: Sessions, request: FetchRequest, ctx: RequestContext) -> FetchResponse:
    session = sessions.take(request)
    bytes_max = min(request.max_bytes, ctx.broker.config.replica_fetch_response_max_bytes)
    found = session.news(bytes_max)
    if found or request.max_wait_ms <= 0:
        return _response(session, found)
    loop = get_running_loop()
    deadline = loop.call_later(request.max_wait_ms / 1000, session.end_wait)
    try:
        while True:
            await session.wait(loop.create_future())
            found = session.news(bytes_max)
            if found or session.is_wait_ended:
                return _response(session, found)
    finally:
        deadline.cancel()


def _response(session: FetchSession, found: list[tuple[Place, FetchResponsePartition]]) -> FetchResponse:
    if session.is_closed:
        raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"fetch session {session.number} is over")
    topics: dict[bytes, FetchResponseTopic] = {}
    for (topic_id, _), row in (*found, *session.rest()):
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchResponseTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(row)
    return FetchResponse(session_id=session.number, responses=list(topics.values()))
