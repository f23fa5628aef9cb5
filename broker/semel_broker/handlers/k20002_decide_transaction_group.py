"""DecideTransactionGroup (key 20002, of semel): commit or abort together the transactions of one step of a group.

Served: v0. Answered when every partition has its marker. After a lost answer the driver repeats the commit, at the
group's current coordinator; the token shows that it was decided.
"""

from __future__ import annotations

from semel_protocol.messages.k20002_decide_transaction_group import (
    DecideTransactionGroupRequest,
    DecideTransactionGroupResponse,
)

from semel_broker.context import RequestContext
from semel_broker.txn.model.group_state import Decide
from semel_broker.txn.model.identity import ProducerIdentity


async def handle(request: DecideTransactionGroupRequest, ctx: RequestContext) -> DecideTransactionGroupResponse:
    ask = Decide(
        group=request.group,
        epoch=request.group_epoch,
        token=request.token,
        commit=request.committed,
        transactions=[
            (row.transactional_id, ProducerIdentity(row.producer_id, row.producer_epoch))
            for row in request.transactions
        ],
        client=ctx.client,
    )
    decision = await ctx.broker.transactions.groups.decide(ask)
    assert decision.group is not None
    return DecideTransactionGroupResponse(
        already_decided=decision.already, decided_epoch=decision.group.decided_epoch if request.committed else -1
    )
