"""InitProducerId (key 22): a producer id and epoch, for idempotence alone or for transactions.

Served: v0 to v4, v5 with transaction version 2, v6 with `transaction.two.phase.commit.enable`. Without a transactional
id: a new id with epoch 0, whatever `transaction_timeout_ms` says (clients put anything there). With one: whoever had
it before is fenced, and its open transaction aborted before the answer. v3 brings what the producer has (KIP-360), v4
knows PRODUCER_FENCED (KIP-588), v6 two-phase commit (KIP-939). In tagged fields of our own an operator's tool says why
it asks, and a member of a transaction group which step of it it takes part in; errors carry their words in another (all
from v2 on).
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from semel_broker.context import RequestContext
from semel_broker.coordination.errors import INIT_PRODUCER_ID, for_version


async def handle(request: InitProducerIdRequest, ctx: RequestContext) -> InitProducerIdResponse:
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty; leave it out or give it a name")
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch must be given both or not at all")
    if request.transactional_id is None:
        return InitProducerIdResponse(producer_id=await ctx.broker.producer_ids.next(), producer_epoch=0)
    try:
        step = await ctx.broker.transactions.init_producer_id(
            request.transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
            client=ctx.client,
            enable_2pc=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
            note=request.reason,
            group_epoch=request.group_epoch,
        )
    except KafkaError as error:
        raise for_version(error, INIT_PRODUCER_ID, ctx.api_version) from None
    assert step.answer is not None
    return InitProducerIdResponse(
        producer_id=step.answer.producer_id,
        producer_epoch=step.answer.epoch,
        ongoing_txn_producer_id=step.kept.producer_id,
        ongoing_txn_producer_epoch=step.kept.epoch,
    )
