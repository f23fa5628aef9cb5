"""ListTransactions (key 66): the transactional ids of this coordinator that the sender may describe (KIP-664).

Served: v0 to v2. `duration_filter` (v1): only transactions that are open for longer, in ms. `transactional_id_pattern`
(v2, KIP-1152): only ids that match as a whole, in RE2's syntax, or INVALID_REGULAR_EXPRESSION. An empty filter matches
all. Unknown state names are returned in a list of their own.

An id is matched after everything else has let it pass, above all the right to describe it: a match is the largest part
of the work.
"""

from __future__ import annotations

from collections.abc import Callable

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseTransaction,
)

from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import CustomRequirement, Requirements, checked_by_handler
from semel_broker.context import RequestContext
from semel_broker.handlers.describable import may_describe
from semel_broker.regex import compiled
from semel_broker.txn.model.metadata import TransactionMetadata, TransactionState

STATES = {state.label: state for state in TransactionState}


async def handle(request: ListTransactionsRequest, ctx: RequestContext) -> ListTransactionsResponse:
    pattern = compiled(request.transactional_id_pattern) if request.transactional_id_pattern else None
    unknown = [name for name in request.state_filters if name not in STATES]
    rows: list[ListTransactionsResponseTransaction] = []
    if request.state_filters and len(unknown) == len(request.state_filters):
        return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)
    slices, is_wanted = ctx.slices(), _filter(request, ctx)
    is_visible = may_describe(ctx, ResourceType.TRANSACTIONAL_ID)
    for txn in await ctx.broker.transactions.listing(slices):
        steps = 1
        if is_wanted(txn) and is_visible(txn.transactional_id):
            if pattern is not None:
                steps += pattern.steps(txn.transactional_id)
            if pattern is None or pattern.matches(txn.transactional_id):
                rows.append(_row(txn))
        if slices.is_over(steps):
            await slices.next()
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=rows)


def _filter(request: ListTransactionsRequest, ctx: RequestContext) -> Callable[[TransactionMetadata], bool]:
    states = {STATES[name] for name in request.state_filters if name in STATES}
    producers = set(request.producer_id_filters)
    open_for_ms, now_ms = request.duration_filter, ctx.broker.world.now_ms()

    def is_wanted(txn: TransactionMetadata) -> bool:
        return (
            (not states or txn.state in states)
            and (not producers or txn.identity.producer_id in producers or txn.producer_id in producers)
            and (open_for_ms < 0 or (txn.start_ms >= 0 and now_ms - txn.start_ms > open_for_ms))
        )

    return is_wanted


def _row(txn: TransactionMetadata) -> ListTransactionsResponseTransaction:
    return ListTransactionsResponseTransaction(
        transactional_id=txn.transactional_id,
        producer_id=txn.producer_id,
        transaction_state=txn.state.label,
    )


NEEDS: Requirements = (
    CustomRequirement([(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "each row shown")], checked_by_handler),
)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
