"""Puts the requirements before the handlers: a handler gets only what its caller is allowed to do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, cast

from semel_protocol.schema import Message

from semel_broker.answers import InOrder
from semel_broker.authorization.access import Access, Note
from semel_broker.authorization.audit_refusal import NoAccess, refusing
from semel_broker.authorization.requirements import Complete, Requirements, VisibleRows, check_all
from semel_broker.context import Answer, Handler, RequestContext
from semel_broker.security.authorizer import Authorizer


def guarded(
    handlers: Mapping[int, Handler],
    needs: Mapping[int, Requirements],
    authorizer: Authorizer,
    note: Note,
    permitted: Mapping[int, Note] | None = None,
    is_behind: Callable[[], bool] = lambda: False,
    in_order: Collection[int] = (),
) -> dict[int, Handler]:
    """The handlers behind their requirements. `needs`: of each API. `permitted`: gets what is allowed to the requests
    of these APIs. `is_behind`: whether the requests of these APIs are refused now, see `audit.log.required`.
    `in_order`: APIs whose requests hold back later ones of the connection while their check takes long.

    Raises KeyError for an API whose requirements are not known.
    """
    noted = permitted or {}
    return {
        key: _guarded(key, handler, needs[key], authorizer, note, noted.get(key), is_behind, holds=key in in_order)
        if needs[key]
        else handler
        for key, handler in handlers.items()
    }


def _guarded(
    key: int,
    handler: Handler,
    requirements: Requirements,
    authorizer: Authorizer,
    note: Note,
    permitted: Note | None,
    is_behind: Callable[[], bool],
    *,
    holds: bool,
) -> Handler:
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
            return InOrder(rest) if holds else rest
        return _go_on(handler, ctx, *done)

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
