"""Fetch under an authorizer: if rights change while a Fetch waits, it is checked and answered again.

A Fetch may wait for records for as long as its client wants.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, cast

from semel_protocol.messages.k01_fetch import FetchRequest, FetchRequestTopic, FetchResponse
from semel_protocol.schema import Message

from semel_broker.context import Answer, Handler, RequestContext
from semel_broker.security.authorizer import Authorizer


def checked_when_ready(fetch: Handler, authorizer: Authorizer) -> Handler:
    """The guarded handler of Fetch, whose answers have what the client may read when they are ready."""

    def handle(request: FetchRequest, ctx: RequestContext) -> Answer:
        changes, topics = authorizer.changes, request.topics
        answer = fetch(request, ctx)
        if isinstance(answer, Message):
            return answer
        return when_ready(cast("Awaitable[FetchResponse]", answer), changes, topics, request, ctx)

    async def when_ready(
        answer: Awaitable[FetchResponse],
        changes: int,
        topics: list[FetchRequestTopic],
        request: FetchRequest,
        ctx: RequestContext,
    ) -> FetchResponse:
        response = await answer
        if authorizer.changes == changes:
            return response
        if ctx.answers is not None:
            ctx.answers.unreserve()
        request.topics, request.max_wait_ms = topics, 0
        again = handle(request, ctx)
        return cast("FetchResponse", again if isinstance(again, Message) else await cast("Awaitable[Any]", again))

    return handle
