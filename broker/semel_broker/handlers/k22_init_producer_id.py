"""InitProducerId (key 22): a producer id and epoch, for an idempotent or a transactional producer.

Served: v0 to v4; v5 with transaction version 2; v6 with `transaction.two.phase.commit.enable`. Without a transactional
id the answer is a new id with epoch 0; `transaction_timeout_ms` is ignored, because clients put any value there. With
one, the earlier producer is fenced, and its open transaction is aborted before the answer. The id is bound to the
principal, or to the transactional id: no other producer can write with it (`producer_owners`).

v3 carries the producer's current id and epoch (KIP-360). v4 adds PRODUCER_FENCED (KIP-588). v6 adds two-phase commit
(KIP-939). Tagged fields of semel (from v2 on) carry the reason that an operator's tool gives, the step of a transaction
group that a member joins, and the error message.
"""

from __future__ import annotations

from semel_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from semel_protocol.refusals import refused

from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import Administration, AdministrativeChange, code_of_all, deed_on
from semel_broker.authorization.requirements import REFUSAL_OF, CheckedRequest, CustomRequirement, Requirements, Steps
from semel_broker.context import RequestContext
from semel_broker.coordination.errors import for_version
from semel_broker.coordination.producer_owners import owner_of


async def handle(request: InitProducerIdRequest, ctx: RequestContext) -> InitProducerIdResponse:
    if request.transactional_id == "":
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty; leave it out or give it a name")
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch must be given both or not at all")
    if request.transactional_id is None:
        producer_id = await ctx.broker.producer_ids.next(owner_of(None, ctx.principal))
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
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
        raise for_version(error, ApiKey.INIT_PRODUCER_ID, ctx.api_version) from None
    assert step.answer is not None
    return InitProducerIdResponse(
        producer_id=step.answer.producer_id,
        producer_epoch=step.answer.epoch,
        ongoing_txn_producer_id=step.kept.producer_id,
        ongoing_txn_producer_epoch=step.kept.epoch,
    )


# --- rights and audit ----------------------------------------------------------------------------------------


def _check(request: InitProducerIdRequest, ctx: RequestContext, access: Access) -> Steps:
    """Write on the transactional id; without one IdempotentWrite on the cluster, or Write on any topic (KIP-679)."""
    yield 1
    if request.transactional_id is not None:
        if access.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return CheckedRequest(request)
        why = access.refusal(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        return CheckedRequest(request, refused(request, REFUSAL_OF[ResourceType.TRANSACTIONAL_ID], why))
    if access.allows_any(Operation.WRITE, ResourceType.TOPIC) or access.allows(
        Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME
    ):
        return CheckedRequest(request)
    why = access.refusal(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME)
    return CheckedRequest(request, refused(request, REFUSAL_OF[ResourceType.CLUSTER], why))


def _fencing(request: InitProducerIdRequest, ctx: RequestContext) -> list[AdministrativeChange]:
    """It fences the earlier producer of the transactional id, and aborts its transaction."""
    name = request.transactional_id
    return (
        []
        if name is None
        else [deed_on(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name, ["fences an earlier producer"])]
    )


NEEDS: Requirements = (
    CustomRequirement(
        [
            (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "with a transactional id"),
            (Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, "without one; or Write on any topic"),
        ],
        _check,
    ),
)
AUDIT = Administration(_fencing, code_of_all)
