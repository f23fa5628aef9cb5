"""The resources that the sender of a request may describe, for requests that do not name them."""

from __future__ import annotations

from collections.abc import Callable

from semel_protocol.acls import Operation, ResourceType

from semel_broker.context import RequestContext


def may_describe(ctx: RequestContext, kind: ResourceType) -> Callable[[str], bool]:
    """Whether the sender may describe the resource of this type and name."""
    acls, principal = ctx.broker.acls, ctx.principal
    if acls is None:
        return lambda name: True
    return lambda name: acls.authorizer.allows(principal, Operation.DESCRIBE, kind, name)
