"""ListTransactions (key 66): the transactional ids of this coordinator (KIP-664).

Served: v0 and v1 (`duration_filter`: only transactions that are open for longer, in ms). An empty filter matches all.
Unknown state names are returned in a list of their own.
"""

from __future__ import annotations

from semel_protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransaction,
)

from semel_broker.context import RequestContext
from semel_broker.txn.model.metadata import TransactionMetadata, TransactionState

STATES = {state.label: state for state in TransactionState}


async def handle(request: ListTransactionsRequest, ctx: RequestContext) -> ListTransactionsResponse:
    unknown = [name for name in request.state_filters if name not in STATES]
    states = [STATES[name] for name in request.state_filters if name in STATES]
    found = []
    if states or not unknown:
        found = await ctx.broker.transactions.listing(
            states=states, producer_ids=request.producer_id_filters, open_for_ms=request.duration_filter
        )
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=await ctx.slices().each(found, _row),
    )


def _row(txn: TransactionMetadata) -> ListTransactionsResponseTransaction:
    return ListTransactionsResponseTransaction(
        transactional_id=txn.transactional_id,
        producer_id=txn.producer_id,
        transaction_state=txn.state.label,
    )
