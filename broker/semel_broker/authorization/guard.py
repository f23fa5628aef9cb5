"""Puts the checks of the table before the handlers: a handler gets only what its caller is allowed to do.

A Fetch may wait for records for as long as its client wants. If rights change meanwhile, it is checked and answered
again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from semel_protocol.messages.k01_fetch import FetchRequest, FetchRequestTopic, FetchResponse
from semel_protocol.schema import Message

from semel_broker.answers import InOrder
from semel_broker.authorization.access import Access, Note
from semel_broker.authorization.audit_refusal import NoAccess, refusing
from semel_broker.authorization.requirements import Complete, VisibleRows, check_all
from semel_broker.authorization.rules import RULES
from semel_broker.context import RequestContext
from semel_broker.handlers import Answer, Handler
from semel_broker.security.authorizer import Authorizer

PRODUCE, FETCH = 0, 1


def guarded(
    handlers: Mapping[int, Handler],
    authorizer: Authorizer,
    note: Note,
    permitted: Mapping[int, Note] | None = None,
    is_behind: Callable[[], bool] = lambda: False,
) -> dict[int, Handler]:
    """The handlers behind their requirements. `permitted`: gets what is allowed to the requests of these APIs.
    `is_behind`: whether the requests of these APIs are refused now, see `audit.log.required`.

    Raises KeyError for an API that the table does not have.
    """
    noted = permitted or {}
    return {
        key: _guarded(key, handler, authorizer, note, noted.get(key), is_behind) if RULES[key] else handler
        for key, handler in handlers.items()
    }


def _guarded(
    key: int,
    handler: Handler,
    authorizer: Authorizer,
    note: Note,
    permitted: Note | None,
    is_behind: Callable[[], bool],
) -> Handler:
    requirements = RULES[key]

    def handle(request: Any, ctx: RequestContext) -> Answer:
        access = Access(authorizer, ctx, key, request, note, permitted)
        if permitted is not None and is_behind():
            steps = refusing(requirements, request, ctx, NoAccess(access, ctx, key, request))
        else:
            steps = check_all(request, ctx, access, requirements)
        slices = ctx.slices()
        done = slices.advance(steps)
        if done is None:
            rest = _in_slices(handler, ctx, steps)
            return InOrder(rest) if key == PRODUCE else rest
        return _go_on(handler, ctx, *done)

    return _until_answered(handle, authorizer) if key == FETCH else handle


def _until_answered(fetch: Handler, authorizer: Authorizer) -> Handler:
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


async def _in_slices(handler: Handler, ctx: RequestContext, steps: Any) -> Message | None:
    """A request with very many resources: other requests are answered between the slices of its check."""
    answer = _go_on(handler, ctx, *await ctx.slices().finish(steps))
    if answer is None or isinstance(answer, Message):
        return answer
    return cast("Message | None", await (answer.answer if isinstance(answer, InOrder) else answer))


def _go_on(
    handler: Handler, ctx: RequestContext, request: Message, answer: Message | None, complete: list[Complete]
) -> Answer:
    if answer is not None:
        return answer
    made = handler(request, ctx)
    if not complete or made is None:
        return made
    if isinstance(made, Message):
        return _completed(made, complete)
    if isinstance(made, InOrder):
        return InOrder(_when_answered(made.answer, complete, ctx))
    return _when_answered(made, complete, ctx)


async def _when_answered(
    answer: Awaitable[Message | None], complete: list[Complete], ctx: RequestContext
) -> Message | None:
    response = await answer
    if response is None:
        return None
    slices = ctx.slices()
    for each in complete:
        response = await slices.finish(each.steps(response)) if isinstance(each, VisibleRows) else each(response)
    return response


def _completed(response: Message, complete: list[Complete]) -> Message:
    for each in complete:
        response = each(response)
    return response
