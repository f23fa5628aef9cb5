"""ForgetTransactionGroup (key 20004, of semel): forget a decided group and its members, whose names are not used again.

Served: v0. Answered when the tombstones are durable. CONCURRENT_TRANSACTIONS while a member still waits for markers:
the driver asks again.
"""

from __future__ import annotations

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.messages.k20004_forget_transaction_group import (
    ForgetTransactionGroupRequest,
    ForgetTransactionGroupResponse,
)

from semel_broker.authorization.administration import Administration, AdministrativeChange, code_of_all, deed_on
from semel_broker.authorization.requirements import Requirements
from semel_broker.context import RequestContext
from semel_broker.handlers.k20001_begin_transaction_group import group_prefix, on_transaction_group


async def handle(request: ForgetTransactionGroupRequest, ctx: RequestContext) -> ForgetTransactionGroupResponse:
    await ctx.broker.transactions.groups.forget(request.group, request.group_epoch)
    return ForgetTransactionGroupResponse()


# --- rights and audit ----------------------------------------------------------------------------------------


def _forgotten(request: ForgetTransactionGroupRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    return [
        deed_on(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, group_prefix(request.group), ["the group is forgotten"])
    ]


NEEDS: Requirements = (on_transaction_group(Operation.WRITE),)
AUDIT = Administration(_forgotten, code_of_all)
