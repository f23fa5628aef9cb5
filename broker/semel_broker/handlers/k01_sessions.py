"""What stands around the handler of Fetch: the check of rights after a wait, and fetch sessions.

A Fetch may wait for records for as long as its client wants. If rights change meanwhile, it is checked and answered
again.

A fetch session (KIP-227) makes a full fetch of an incremental one, and leaves out of the answer what is known. It
stands outside of the authorizer, so that each fetch of a session is authorised anew for all of its partitions.

| session epoch | the fetch |
|---|---|
| -1 | is full; a session that it names ends |
| 0 | is full and begins a session if there is room; a session that it names ends |
| others | names the changes only, and continues the session if it has this epoch |
"""

from __future__ import annotations

from typing import Final, cast

from msgspec.structs import replace
from semel_protocol.fields import first_version
from semel_protocol.messages.k01_fetch import FetchRequest, FetchRequestTopic, FetchResponse
from semel_protocol.schema import Message

from semel_broker.context import Handler, RequestContext
from semel_broker.partitions.fetch_sessions import FetchSession
from semel_broker.security.authorizer import Authorizer

LAST, FIRST = -1, 0
"""Epochs of full fetches."""
SESSIONS_SINCE: Final = 7
BY_ID_FROM: Final = first_version(FetchRequestTopic, "topic_id")
ROWS_AT_ONCE_MAX: Final = 256


def checked_when_ready(fetch: Handler, authorizer: Authorizer) -> Handler:
    """The guarded handler of Fetch, whose answers have what the client may read when they are ready."""

    async def handle(request: FetchRequest, ctx: RequestContext) -> Message | None:
        topics = request.topics
        while True:
            changes = authorizer.changes
            response = await fetch(request, ctx)
            if authorizer.changes == changes:
                return response
            if ctx.answers is not None:
                ctx.answers.unreserve()
            request.topics, request.max_wait_ms = topics, 0

    return handle


def with_sessions(fetch: Handler) -> Handler:
    """The handler of Fetch, with sessions."""

    async def handle(request: FetchRequest, ctx: RequestContext) -> Message | None:
        session = _session(request, ctx)
        if session is None:
            return await fetch(request, ctx)
        whole = replace(request, topics=session.topics(), session_id=0, session_epoch=LAST)
        response = cast("FetchResponse", await fetch(whole, ctx))
        slices, news = ctx.slices(is_long=session.count > ROWS_AT_ONCE_MAX), []
        for topic in response.responses:
            news.append(session.news(topic))
            if slices.is_over(1 + len(topic.partitions)):
                await slices.next()
        response.session_id = session.session_id
        if request.session_epoch != FIRST:
            response.responses = [topic for topic in news if topic is not None]
        return response

    return handle


def _session(request: FetchRequest, ctx: RequestContext) -> FetchSession | None:
    """The session of a fetch; None: it has none. Raises as `FetchSessions.used`."""
    epoch, has_ids = request.session_epoch, ctx.api_version >= BY_ID_FROM
    if ctx.api_version < SESSIONS_SINCE or (epoch == LAST and request.session_id <= 0):
        return None
    sessions, owner = ctx.broker.fetch_sessions, ctx.principal.name
    if epoch in (LAST, FIRST):
        sessions.remove(request.session_id, owner)
        return None if epoch == LAST else sessions.create(owner, request.topics, has_ids=has_ids)
    forgotten = request.forgotten_topics_data
    session = sessions.used(request.session_id, epoch, owner, request.topics, forgotten, has_ids=has_ids)
    if not session.count:
        sessions.remove(session.session_id, owner)
        request.topics = []
        return None
    return session
