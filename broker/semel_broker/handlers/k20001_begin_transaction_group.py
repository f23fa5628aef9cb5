"""BeginTransactionGroup (key 20001, of semel): begin the next step of a group of transactions that commit together.

Served: v0. Before the answer, the open transactions of the group are aborted and their producers fenced. The answer
names the last committed token, so that a restarted driver knows which work is done.
"""

from __future__ import annotations

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.messages.k20001_begin_transaction_group import (
    BeginTransactionGroupRequest,
    BeginTransactionGroupResponse,
)

from semel_broker.authorization.administration import OWN_RECORDS
from semel_broker.authorization.requirements import RequestRequirement, Requirements
from semel_broker.context import RequestContext
from semel_broker.txn.model.group_state import Begin


async def handle(request: BeginTransactionGroupRequest, ctx: RequestContext) -> BeginTransactionGroupResponse:
    ask = Begin(group=request.group, owner=request.owner, client=ctx.client, timeout_ms=request.timeout_ms)
    group = await ctx.broker.transactions.groups.begin(ask)
    return BeginTransactionGroupResponse(
        group_epoch=group.epoch, decided_token=group.decided_token, decided_epoch=group.decided_epoch
    )


# --- rights and audit ----------------------------------------------------------------------------------------


def group_prefix(group: str) -> str:
    """The transactional id that stands for a transaction group: the prefix of its members."""
    return f"{group}/"


def on_transaction_group(operation: Operation) -> RequestRequirement:
    """An operation on the transaction group of the request."""
    return RequestRequirement(operation, ResourceType.TRANSACTIONAL_ID, lambda request: group_prefix(request.group))


NEEDS: Requirements = (on_transaction_group(Operation.WRITE),)
NOT_AUDITED = OWN_RECORDS
