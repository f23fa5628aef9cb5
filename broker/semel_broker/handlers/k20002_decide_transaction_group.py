"""DecideTransactionGroup (key 20002, of semel): commit or abort together the transactions of one step of a group.

Served: v0. Answered when every partition has its marker. After a lost answer the driver repeats the commit, at the
group's current coordinator; the token shows that it was decided.
"""

from __future__ import annotations

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.messages.k20002_decide_transaction_group import (
    DecideTransactionGroupRequest,
    DecideTransactionGroupResponse,
)

from semel_broker.authorization.administration import Administration, AdministrativeChange, code_of_all, deed_on
from semel_broker.authorization.requirements import Requirements
from semel_broker.context import RequestContext
from semel_broker.handlers.k20001_begin_transaction_group import group_prefix, on_transaction_group
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


# --- rights and audit ----------------------------------------------------------------------------------------


def _decisions(request: DecideTransactionGroupRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    decided = "commit" if request.committed else "abort"
    changes = [f"{decided} of {each.transactional_id}" for each in request.transactions]
    return [deed_on(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, group_prefix(request.group), changes or [decided])]


NEEDS: Requirements = (on_transaction_group(Operation.WRITE),)
AUDIT = Administration(_decisions, code_of_all)
