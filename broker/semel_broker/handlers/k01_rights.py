"""Fetch under an authorizer: if rights change while a Fetch waits, it is checked and answered again.

A Fetch may wait for records for as long as its client wants.
"""

from __future__ import annotations

from semel_protocol.messages.k01_fetch import FetchRequest
from semel_protocol.schema import Message

from semel_broker.context import Handler, RequestContext
from semel_broker.security.authorizer import Authorizer


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
