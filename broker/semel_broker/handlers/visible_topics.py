"""The topics that the sender of a request may describe, for requests that do not name them."""

from __future__ import annotations

from collections.abc import Callable

from semel_protocol.acls import Operation, ResourceType

from semel_broker.context import RequestContext


def may_describe(ctx: RequestContext) -> Callable[[str], bool]:
    """Whether the sender may describe a topic."""
    acls, principal = ctx.broker.acls, ctx.principal
    if acls is None:
        return lambda topic: True
    return lambda topic: acls.authorizer.allows(principal, Operation.DESCRIBE, ResourceType.TOPIC, topic)
