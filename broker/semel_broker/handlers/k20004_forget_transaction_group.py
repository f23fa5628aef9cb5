"""ForgetTransactionGroup (key 20004, of semel): forget a decided group and its members, whose names are not used again.

Served: v0. Answered when the tombstones are durable. CONCURRENT_TRANSACTIONS while a member still waits for markers:
the driver asks again.
"""

from __future__ import annotations

from semel_protocol.messages.k20004_forget_transaction_group import (
    ForgetTransactionGroupRequest,
    ForgetTransactionGroupResponse,
)

from semel_broker.context import RequestContext


async def handle(request: ForgetTransactionGroupRequest, ctx: RequestContext) -> ForgetTransactionGroupResponse:
    await ctx.broker.transactions.groups.forget(request.group, request.group_epoch)
    return ForgetTransactionGroupResponse()
