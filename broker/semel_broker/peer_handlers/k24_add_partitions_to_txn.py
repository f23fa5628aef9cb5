"""AddPartitionsToTxn (key 24) of another broker, v4 and v5: whether its producers may write to these partitions
(KIP-890).

One request asks about many transactions. With `verify_only` each is verified; without it the partitions are added
(transaction version 2). A row that would wait longer than `peer_hold_ms_max`, behind the end of the producer's last
transaction, is answered with CONCURRENT_TRANSACTIONS, so that it does not delay the other rows. Its work continues, and
the next request finds it done.
"""

from __future__ import annotations

from asyncio import Task, get_running_loop, wait

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
    AddPartitionsToTxnResponseTransaction,
)

from semel_broker.context import RequestContext
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.metadata import TopicPartition
from semel_broker.txn.model.requests import BUMPING_VERSION
from semel_broker.txn.shard import TransactionShard

Codes = dict[TopicPartition, ErrorCode]


async def handle(request: AddPartitionsToTxnRequest, ctx: RequestContext) -> AddPartitionsToTxnResponse:
    loop = get_running_loop()
    looking: list[Task[Codes]] = [loop.create_task(_codes(row, ctx)) for row in request.transactions]
    if looking:
        await wait(looking, timeout=ctx.broker.config.limits.peer_hold_ms_max / 1000)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            _response(row, task.result() if task.done() else {})
            for row, task in zip(request.transactions, looking, strict=True)
        ]
    )


async def _codes(row: AddPartitionsToTxnRequestTransaction, ctx: RequestContext) -> Codes:
    transactions = ctx.broker.transactions
    partitions = [(topic.name, index) for topic in row.topics for index in topic.partitions]
    producer = ProducerIdentity(row.producer_id, row.producer_epoch)
    try:
        shard = await transactions.shards.ready(row.transactional_id)
        if row.verify_only:
            return {each: _verdict(shard, row.transactional_id, producer, each) for each in partitions}
        await shard.add_partitions(row.transactional_id, producer, partitions, version=BUMPING_VERSION)
    except KafkaError as error:
        return dict.fromkeys(partitions, error.code)
    return dict.fromkeys(partitions, ErrorCode.NONE)


def _verdict(
    shard: TransactionShard, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition
) -> ErrorCode:
    try:
        shard.verify(transactional_id, producer, partition)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _response(row: AddPartitionsToTxnRequestTransaction, codes: Codes) -> AddPartitionsToTxnResponseTransaction:
    return AddPartitionsToTxnResponseTransaction(
        transactional_id=row.transactional_id,
        topic_results=[
            AddPartitionsToTxnResponseTopic(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponsePartition(
                        partition_index=index,
                        partition_error_code=codes.get((topic.name, index), ErrorCode.CONCURRENT_TRANSACTIONS),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in row.topics
        ],
    )
