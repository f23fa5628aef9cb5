"""AddOffsetsToTxn (key 25): add the offsets of a consumer group to the transaction.

Served: v0 to v4. It adds the partition of `__consumer_offsets` that holds the group.
"""

from __future__ import annotations

from semel_protocol.acls import Operation
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import KafkaError
from semel_protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

from semel_broker.authorization.administration import OWN_RECORDS
from semel_broker.authorization.requirements import Requirements, on_group, on_transactional_id
from semel_broker.context import RequestContext
from semel_broker.coordination.errors import for_version
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.state import check_named


async def handle(request: AddOffsetsToTxnRequest, ctx: RequestContext) -> AddOffsetsToTxnResponse:
    transactions = ctx.broker.transactions
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        check_named(request.transactional_id)
        partition = await transactions.partition_of_group(request.group_id)
        shard = await transactions.shards.ready(request.transactional_id)
        await shard.add_partitions(request.transactional_id, producer, [partition], connection=ctx.connection)
    except KafkaError as error:
        raise for_version(error, ApiKey.ADD_OFFSETS_TO_TXN, ctx.api_version) from None
    return AddOffsetsToTxnResponse()


NEEDS: Requirements = (on_transactional_id(Operation.WRITE), on_group(Operation.READ))
NOT_AUDITED = OWN_RECORDS
