"""AddOffsetsToTxn (key 25): add the offsets of a consumer group to the transaction.

Served: v0. It adds the partition of `__consumer_offsets` that holds the group.
"""

from __future__ import annotations

from semel_protocol.errors import KafkaError
from semel_protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

from semel_broker.context import RequestContext
from semel_broker.txn.model.refusals import for_version

FENCED_SINCE = 2


async def handle(request: AddOffsetsToTxnRequest, ctx: RequestContext) -> AddOffsetsToTxnResponse:
    try:
        await ctx.broker.transactions.add_group(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
            connection=ctx.connection,
        )
    except KafkaError as error:
        raise for_version(error, knows_fenced=ctx.api_version >= FENCED_SINCE) from None
    return AddOffsetsToTxnResponse()
