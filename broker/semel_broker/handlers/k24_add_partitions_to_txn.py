"""AddPartitionsToTxn (key 24): add partitions to the transaction, all of them or none.

Served: v0 to v3. If one partition cannot be added, its row carries the error, and the other rows carry
OPERATION_NOT_ATTEMPTED. v4 and later are for requests between brokers and are not served to clients.
"""

from __future__ import annotations

from collections.abc import Callable

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
)
from semel_protocol.refusals import refused_row
from semel_protocol.schema import Message

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import OWN_RECORDS
from semel_broker.authorization.requirements import REFUSAL_OF, CheckedRequest, CustomRequirement, Requirements, Steps
from semel_broker.context import RequestContext
from semel_broker.coordination.errors import for_version
from semel_broker.topics.topics import Topics
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.state import check_named


async def handle(request: AddPartitionsToTxnRequest, ctx: RequestContext) -> AddPartitionsToTxnResponse:
    partitions = [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
    topics = ctx.broker.topics
    refusals = await ctx.slices().each(partitions, lambda partition: _refusal(*partition, topics))
    codes = dict(zip(partitions, refusals, strict=True))
    if any(codes.values()):
        return _response(request, {each: code or ErrorCode.OPERATION_NOT_ATTEMPTED for each, code in codes.items()})
    transactional_id = request.v3_and_below_transactional_id
    producer = ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    code = ErrorCode.NONE
    try:
        check_named(transactional_id)
        shard = await ctx.broker.transactions.shards.ready(transactional_id)
        await shard.add_partitions(transactional_id, producer, partitions, connection=ctx.connection)
    except KafkaError as error:
        code = for_version(error, ApiKey.ADD_PARTITIONS_TO_TXN, ctx.api_version).code
    return _response(request, dict.fromkeys(partitions, code))


def _refusal(name: str, index: int, topics: Topics) -> ErrorCode:
    topic = topics.get(name)
    if topic is None or not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic.is_internal else ErrorCode.NONE


def _response(
    request: AddPartitionsToTxnRequest, codes: dict[tuple[str, int], ErrorCode]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnResponseTopic(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnResponsePartition(
                        partition_index=index, partition_error_code=codes[topic.name, index]
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


# --- rights and audit ----------------------------------------------------------------------------------------


def _check(request: AddPartitionsToTxnRequest, ctx: RequestContext, access: Access) -> Steps:
    """Write on the transactional id and on each topic. All partitions are added, or none."""
    yield 1
    if not access.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return CheckedRequest(request, _refused(request, lambda name: REFUSAL_OF[ResourceType.TRANSACTIONAL_ID]))
    refused: set[str] = set()
    for topic in request.v3_and_below_topics:
        yield 1
        if not access.allows(Operation.WRITE, ResourceType.TOPIC, topic.name):
            refused.add(topic.name)
    if not refused:
        return CheckedRequest(request)
    return CheckedRequest(
        request,
        _refused(
            request,
            lambda name: REFUSAL_OF[ResourceType.TOPIC] if name in refused else ErrorCode.OPERATION_NOT_ATTEMPTED,
        ),
    )


def _refused(request: AddPartitionsToTxnRequest, code_of: Callable[[str], ErrorCode]) -> Message:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            refused_row(AddPartitionsToTxnResponseTopic, topic, code_of(topic.name))
            for topic in request.v3_and_below_topics
        ]
    )


NEEDS: Requirements = (
    CustomRequirement(
        [(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, ""), (Operation.WRITE, ResourceType.TOPIC, "each row")],
        _check,
    ),
)
NOT_AUDITED = OWN_RECORDS
