"""ListTransactions (key 66): the transactional ids of this coordinator (KIP-664).

Served: v0 to v2. `duration_filter` (v1): only transactions that are open for longer, in ms. `transactional_id_pattern`
(v2, KIP-1152): only ids that match as a whole, in RE2's syntax, or INVALID_REGULAR_EXPRESSION. An empty filter matches
all. Unknown state names are returned in a list of their own.
"""

from __future__ import annotations

from semel_protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransaction,
)

from semel_broker.context import RequestContext
from semel_broker.regex import compiled
from semel_broker.txn.model.metadata import TransactionMetadata, TransactionState

STEPS_PER_MATCH = 4
"""A match counts as so many steps of a slice."""
STATES = {state.label: state for state in TransactionState}


async def handle(request: ListTransactionsRequest, ctx: RequestContext) -> ListTransactionsResponse:
    pattern = compiled(request.transactional_id_pattern) if request.transactional_id_pattern else None
    unknown = [name for name in request.state_filters if name not in STATES]
    states = [STATES[name] for name in request.state_filters if name in STATES]
    found = []
    if states or not unknown:
        found = await ctx.broker.transactions.listing(
            states=states, producer_ids=request.producer_id_filters, open_for_ms=request.duration_filter
        )
    slices, rows = ctx.slices(), []
    for txn in found:
        if pattern is None or pattern.matches(txn.transactional_id):
            rows.append(_row(txn))
        if slices.is_over(1 if pattern is None else STEPS_PER_MATCH):
            await slices.next()
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)


def _row(txn: TransactionMetadata) -> ListTransactionsResponseTransaction:
    return ListTransactionsResponseTransaction(
        transactional_id=txn.transactional_id,
        producer_id=txn.producer_id,
        transaction_state=txn.state.label,
    )
