"""DescribeTransactions (key 65): the state of transactional ids (KIP-664), their owners, and their fence ledger.

Served: v0. Tagged fields of semel carry the owner, the ledger and the step of the transaction group. An id that has
expired recently is answered with TRANSACTIONAL_ID_NOT_FOUND and the last lines of its ledger.
"""

from __future__ import annotations

from typing import Any

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseFence,
    DescribeTransactionsResponseTopic,
    DescribeTransactionsResponseTransaction,
)
from semel_protocol.schema import Message

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import CHANGES_NOTHING
from semel_broker.authorization.requirements import CheckedRequest, CustomRequirement, Requirements, Steps, on_each
from semel_broker.context import RequestContext
from semel_broker.txn.coordinator import TransactionCoordinator
from semel_broker.txn.model.ledger import FenceRecord
from semel_broker.txn.model.records import by_topic
from semel_broker.txn.model.state import check_named


async def handle(request: DescribeTransactionsRequest, ctx: RequestContext) -> DescribeTransactionsResponse:
    transactions = ctx.broker.transactions
    slices = ctx.slices()
    states = []
    for name in dict.fromkeys(request.transactional_ids):
        states.append(await _describe(name, transactions))
        if slices.is_over():
            await slices.next()
    return DescribeTransactionsResponse(transaction_states=states)


async def _describe(name: str, transactions: TransactionCoordinator) -> DescribeTransactionsResponseTransaction:
    fences = [_fence(fence) for fence in transactions.fences(name)]
    try:
        check_named(name)
        txn = (await transactions.shards.ready(name)).describe(name)
    except KafkaError as error:
        return DescribeTransactionsResponseTransaction(
            transactional_id=name, error_code=error.code, error_message=error.message, fences=fences
        )
    return DescribeTransactionsResponseTransaction(
        transactional_id=name,
        transaction_state=txn.state.label,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=[
            DescribeTransactionsResponseTopic(topic=topic, partitions=indexes)
            for topic, indexes in by_topic(txn.partitions).items()
        ],
        client_id=txn.owner.client_id,
        client_host=txn.owner.host,
        last_update_time_ms=txn.last_update_ms,
        fences=fences,
        group_epoch=txn.group_epoch,
    )


def _fence(fence: FenceRecord) -> DescribeTransactionsResponseFence:
    return DescribeTransactionsResponseFence(
        at_ms=fence.at_ms,
        reason=fence.reason.name.lower(),
        old_producer_id=fence.old.producer_id,
        old_epoch=fence.old.epoch,
        new_producer_id=fence.new.producer_id,
        new_epoch=fence.new.epoch,
        client_id=fence.by.client_id,
        client_host=fence.by.host,
        note=fence.note,
        text=fence.text,
    )


# --- rights and audit ----------------------------------------------------------------------------------------


_ROWS = on_each(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, DescribeTransactionsRequest)


def _check(request: DescribeTransactionsRequest, ctx: RequestContext, access: Access) -> Steps:
    """Describe on each transactional id. Topics without Describe are left out of a transaction's list."""
    permitted = yield from _ROWS.check(request, ctx, access)

    def visible_topics(response: Any) -> Message:
        for transaction in response.transaction_states:
            transaction.topics = [
                topic
                for topic in transaction.topics
                if access.allows_quietly(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
            ]
        shown: Message = response
        return shown

    return CheckedRequest(permitted.request, permitted.answer, [*permitted.complete, visible_topics])


NEEDS: Requirements = (
    CustomRequirement(
        [
            (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "each row"),
            (Operation.DESCRIBE, ResourceType.TOPIC, "each topic shown"),
        ],
        _check,
    ),
)
NOT_AUDITED = CHANGES_NOTHING
LONG_ANSWER = True
