"""InitProducerId (key 22): a producer id and epoch for an idempotent producer.

Served: v0 to v4, without a transactional id: a new id with epoch 0, whatever `transaction_timeout_ms` says (clients put
anything there). With one: UNSUPPORTED_VERSION, which every client takes for final, until transactions are served;
a retriable code would let it try for ever.
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from semel_broker.context import RequestContext


async def handle(request: InitProducerIdRequest, ctx: RequestContext) -> InitProducerIdResponse:
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty; leave it out or give it a name")
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch must be given both or not at all")
    if request.transactional_id is not None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "transactions are not served by this broker")
    return InitProducerIdResponse(producer_id=await ctx.broker.producer_ids.next(), producer_epoch=0)
