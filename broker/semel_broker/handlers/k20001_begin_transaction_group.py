"""BeginTransactionGroup (key 20001): the next step of a group of transactions that commit as one. semel's own.

Served: v0. Whatever the group has open is aborted, and its producers are fenced, before the answer. It says what was
committed last, so that a driver that comes back knows what it need not do again.
"""

from __future__ import annotations

from semel_protocol.messages.k20001_begin_transaction_group import (
    BeginTransactionGroupRequest,
    BeginTransactionGroupResponse,
)

from semel_broker.context import RequestContext
from semel_broker.txn.model.group_state import Begin


async def handle(request: BeginTransactionGroupRequest, ctx: RequestContext) -> BeginTransactionGroupResponse:
    ask = Begin(group=request.group, owner=request.owner, client=ctx.client, timeout_ms=request.timeout_ms)
    group = await ctx.broker.transactions.groups.begin(ask)
    return BeginTransactionGroupResponse(
        group_epoch=group.epoch, decided_token=group.decided_token, decided_epoch=group.decided_epoch
    )
