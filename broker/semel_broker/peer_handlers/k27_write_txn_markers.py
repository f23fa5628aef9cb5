"""WriteTxnMarkers (key 27) of another broker, v1: transactions that it coordinates have ended in partitions led here.

A marker is answered when it is committed and its decision has taken effect. A marker that takes longer than
`peer_hold_ms_max` is answered with REQUEST_TIMED_OUT, so that it does not delay the others; it stays written, and a
retry is answered like the first try. The newest connection of a broker wins. Otherwise a request that the broker gave
up and repeated over another connection could arrive late and end the next transaction of a producer with the same epoch
(transaction version 1).
"""

from __future__ import annotations

from asyncio import Future, wait

from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponsePartition,
    WriteTxnMarkersResponseTopic,
)

from semel_broker.context import RequestContext
from semel_broker.scheduling.turns import OPENING_STEPS
from semel_broker.txn.markers.channel import Entry, Marker
from semel_broker.txn.markers.remote_destination import entries_of
from semel_broker.txn.model.metadata import TopicPartition

Codes = dict[Entry, ErrorCode]


async def handle(request: WriteTxnMarkersRequest, ctx: RequestContext) -> WriteTxnMarkersResponse:
    transactions = ctx.broker.transactions
    transactions.markers_arrived_over(ctx.client_id, ctx.connection)
    markers: dict[TopicPartition, list[Marker]] = {}
    for row in request.markers:
        marker, partitions = entries_of(row)
        for partition in partitions:
            markers.setdefault(partition, []).append(marker)
    codes: Codes = {}
    late: dict[Future[list[ErrorCode]], list[Entry]] = {}
    slices = ctx.slices()
    for partition, here in markers.items():  # each partition by itself, so that a slow one does not delay the others
        entries = [(marker, partition) for marker in here]
        answer = transactions.markers.here.write(entries)
        if isinstance(answer, list):
            codes.update(zip(entries, answer, strict=True))
        else:
            late[answer] = entries
        if slices.is_over(OPENING_STEPS):  # a marker may have to open its partition's log
            await slices.next()
            transactions.markers_arrived_over(ctx.client_id, ctx.connection)
    if late:
        await wait(list(late), timeout=ctx.broker.config.limits.peer_hold_ms_max / 1000)
    for answer, entries in late.items():
        if answer.done():
            codes.update(zip(entries, answer.result(), strict=True))
    return WriteTxnMarkersResponse(markers=[_response(row, codes) for row in request.markers])


def _response(row: WriteTxnMarkersRequestMarker, codes: Codes) -> WriteTxnMarkersResponseMarker:
    marker, _ = entries_of(row)
    return WriteTxnMarkersResponseMarker(
        producer_id=row.producer_id,
        topics=[
            WriteTxnMarkersResponseTopic(
                name=topic.name,
                partitions=[
                    WriteTxnMarkersResponsePartition(
                        partition_index=index,
                        error_code=codes.get((marker, (topic.name, index)), ErrorCode.REQUEST_TIMED_OUT),
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in row.topics
        ],
    )
