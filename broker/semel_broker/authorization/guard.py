"""Puts the requirements before the handlers: a handler gets only what its caller is allowed to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from semel_protocol.schema import Message

from semel_broker.authorization.access import Access, Note
from semel_broker.authorization.audit_refusal import NoAccess, refusing
from semel_broker.authorization.requirements import Requirements, VisibleRows, check_all
from semel_broker.context import Handler, RequestContext
from semel_broker.security.authorizer import Authorizer


def guarded(
    handlers: Mapping[int, Handler],
    needs: Mapping[int, Requirements],
    authorizer: Authorizer,
    note: Note,
    permitted: Mapping[int, Note] | None = None,
    is_behind: Callable[[], bool] = lambda: False,
) -> dict[int, Handler]:
    """The handlers behind their requirements. `needs`: of each API. `permitted`: gets what is allowed to the requests
    of these APIs. `is_behind`: whether the requests of these APIs are refused now, see `audit.log.required`.

    Raises KeyError for an API whose requirements are not known.
    """
    noted = permitted or {}
    return {
        key: _guarded(key, handler, needs[key], authorizer, note, noted.get(key), is_behind) if needs[key] else handler
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
) -> Handler:
    async def handle(request: Any, ctx: RequestContext) -> Message | None:
        access = Access(authorizer, ctx, key, request, note, permitted)
        if permitted is not None and is_behind():
            steps = refusing(requirements, request, ctx, NoAccess(access, ctx, key, request))
        else:
            steps = check_all(request, ctx, access, requirements)
        checked, answer, complete = await ctx.slices().finish(steps)
        if answer is not None:
            return answer
        response = await handler(checked, ctx)
        if not complete or response is None:
            return response
        slices = ctx.slices()
        for each in complete:
            response = await slices.finish(each.steps(response)) if isinstance(each, VisibleRows) else each(response)
        return response

    return handle
