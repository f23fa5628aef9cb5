"""EndTxn (key 26): commit or abort; answered when every partition has its marker.

Served: v0 and v1; up to v5 with transaction version 2. v2 adds PRODUCER_FENCED (KIP-588). v5 bumps the epoch with each
transaction and returns it (KIP-890), with a new producer id when the epochs of the old one are exhausted. A tagged
field of semel carries the error message (from v3 on). Below v5 only the newest connection of a producer may end its
transaction: the request itself does not say which transaction it belongs to.
"""

from __future__ import annotations

from semel_protocol.acls import Operation
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse

from semel_broker.authorization.administration import OWN_RECORDS
from semel_broker.authorization.requirements import Requirements, on_transactional_id
from semel_broker.context import RequestContext
from semel_broker.coordination.errors import for_version
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.requests import BUMPING_VERSION, End
from semel_broker.txn.model.state import check_named

BUMPS_SINCE = 5


async def handle(request: EndTxnRequest, ctx: RequestContext) -> EndTxnResponse:
    bumps = ctx.api_version >= BUMPS_SINCE
    ask = End(
        producer=ProducerIdentity(request.producer_id, request.producer_epoch),
        commit=request.committed,
        version=BUMPING_VERSION if bumps else 0,
    )
    try:
        check_named(request.transactional_id)
        shard = await ctx.broker.transactions.shards.ready(request.transactional_id)
        producer = await shard.end(request.transactional_id, ask, connection=0 if bumps else ctx.connection)
    except KafkaError as error:
        raise for_version(error, ApiKey.END_TXN, ctx.api_version) from None
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


NEEDS: Requirements = (on_transactional_id(Operation.WRITE),)
NOT_AUDITED = OWN_RECORDS
