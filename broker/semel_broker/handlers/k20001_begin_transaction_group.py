"""BeginTransactionGroup (key 20001, of semel): begin the next step of a group of transactions that commit together.

Served: v0. Before the answer, the open transactions of the group are aborted and their producers fenced. The answer
names the last committed token, so that a restarted driver knows which work is done.
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
