"""Produce (key 0): append one record batch to each partition named.

Served: v3 to v7 (one layout; zstd from v7); with transaction version 2 up to v13. v8 adds an error message and the
records at fault. v10 adds the present leader to NOT_LEADER_OR_FOLLOWER (KIP-951). v11 adds TRANSACTION_ABORTABLE. v12
adds the partitions to the transaction by itself (KIP-890). v13 names topics by id: UNKNOWN_TOPIC_ID if there is no such
topic, also if it is deleted and created anew while the request waits (KIP-516).

- acks=all: answered when the high watermark has passed the batches. If that takes longer than `timeout_ms`, the answer
  is REQUEST_TIMED_OUT; the producer's retry is then acknowledged.
- acks=1: answered when the batches are durable on this broker, without a timeout and independent of followers
  (`docs/decisions/0018-acks-1-waits-for-the-disk.md`).
- acks=0: never answered; an error closes the connection.

Most appends happen without a wait. Then only durability is awaited, and the connection starts its next request at once.
Four kinds of request wait before their appends, and hold back the later requests of the connection: one with very many
batches, one whose records take long to check (`k00_records`), one whose coordinator must first be asked
(`k00_transactional`), and one whose batches take long to recompress (`k00_recompressed`).
"""

from __future__ import annotations

from semel_protocol.acls import Operation, ResourceType
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k00_produce import ProduceRequest, ProduceResponse
from semel_protocol.refusals import refused
from semel_protocol.schema import Message

from semel_broker.answers import CloseConnectionError
from semel_broker.authorization.access import Access
from semel_broker.authorization.administration import OWN_RECORDS
from semel_broker.authorization.requirements import (
    REFUSAL_OF,
    CheckedRequest,
    CustomRequirement,
    Requirements,
    Steps,
    on_topics,
    on_transactional_id,
)
from semel_broker.context import RequestContext
from semel_broker.handlers import k00_recompressed as recompressed
from semel_broker.handlers.k00_appends import answered, append
from semel_broker.handlers.k00_records import ACKS_NONE
from semel_broker.handlers.k00_transactional import BY_ID_FROM


async def handle(request: ProduceRequest, ctx: RequestContext) -> ProduceResponse | None:
    if ctx.api_version >= BY_ID_FROM:
        for topic in request.topic_data:
            topic.name = ctx.broker.topics.name_of(topic.topic_id) or ""
    if ctx.broker.topics.recompressing:
        context = recompressed.at_once(request, ctx)
        if context is None:
            return await recompressed.one_by_one(request, ctx)
        ctx = context
    appended = await append(request, ctx)
    ctx.order.next_may_start = True
    return await answered(appended, request, ctx)


def _refuse_all(request: ProduceRequest, code: ErrorCode, why: str) -> Message:
    if request.acks == ACKS_NONE:
        raise CloseConnectionError("not_authorized", code=code.name)
    return refused(request, code, why)


def _unanswered(request: ProduceRequest, ctx: RequestContext, access: Access) -> Steps:
    """acks=0 has no response that could carry a refusal: the connection is closed."""
    if request.acks == ACKS_NONE:
        for topic in request.topic_data:
            yield 1
            has_id = ctx.api_version >= BY_ID_FROM
            name = ctx.broker.topics.name_of(topic.topic_id) if has_id else topic.name
            if name is None:
                raise CloseConnectionError("refused", code=ErrorCode.UNKNOWN_TOPIC_ID.name)
            if not access.allows(Operation.WRITE, ResourceType.TOPIC, name):
                raise CloseConnectionError("not_authorized", code=REFUSAL_OF[ResourceType.TOPIC].name, topic=name)
    return CheckedRequest(request)


NEEDS: Requirements = (
    CustomRequirement([], _unanswered),
    on_transactional_id(Operation.WRITE, _refuse_all),
    on_topics(Operation.WRITE, ProduceRequest),
)
NOT_AUDITED = OWN_RECORDS
