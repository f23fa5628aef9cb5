"""Markers that another broker writes into the partitions it leads, sent as WriteTxnMarkers.

A request names a transaction once, with all its partitions. The response has the same order.
"""

from __future__ import annotations

from asyncio import Future, get_running_loop
from collections.abc import Sequence

from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
    WriteTxnMarkersResponse,
)

from semel_broker.txn.markers.channel import Entry, Marker
from semel_broker.txn.markers.peer_calls import MARKERS_VERSION, PeerCalls
from semel_broker.txn.model.identity import ProducerIdentity
from semel_broker.txn.model.metadata import TopicPartition


class RemoteDestination:
    """The broker `node_id`. `timeout_ms`: of a request."""

    is_here = False

    def __init__(self, peers: PeerCalls, node_id: int, timeout_ms: int) -> None:
        self._peers = peers
        self._node_id = node_id
        self._timeout_ms = timeout_ms

    def write(self, entries: Sequence[Entry]) -> Future[list[ErrorCode]]:
        """A code for each marker, in their order. The future raises KafkaError or OSError."""
        return get_running_loop().create_task(self._ask(entries))

    async def _ask(self, entries: Sequence[Entry]) -> list[ErrorCode]:
        request = request_of(entries)
        response = await self._peers.call(
            self._node_id, ApiKey.WRITE_TXN_MARKERS, MARKERS_VERSION, request, self._timeout_ms
        )
        codes = codes_of(request, response)
        return [codes[entry] for entry in entries]


def request_of(entries: Sequence[Entry]) -> WriteTxnMarkersRequest:
    """The request for these markers: each marker once, with its partitions by topic."""
    markers: dict[Marker, dict[str, list[int]]] = {}
    for marker, (topic, index) in entries:
        markers.setdefault(marker, {}).setdefault(topic, []).append(index)
    return WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequestMarker(
                producer_id=marker.producer.producer_id,
                producer_epoch=marker.producer.epoch,
                transaction_result=marker.commit,
                topics=[
                    WriteTxnMarkersRequestTopic(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ],
                coordinator_epoch=marker.coordinator_epoch,
            )
            for marker, topics in markers.items()
        ]
    )


def entries_of(row: WriteTxnMarkersRequestMarker) -> tuple[Marker, list[TopicPartition]]:
    """One marker of a request, and its partitions."""
    marker = Marker(
        ProducerIdentity(row.producer_id, row.producer_epoch), row.transaction_result, row.coordinator_epoch
    )
    return marker, [(topic.name, index) for topic in row.topics for index in topic.partition_indexes]


def codes_of(request: WriteTxnMarkersRequest, response: WriteTxnMarkersResponse) -> dict[Entry, ErrorCode]:
    """The code of each marker. Raises KafkaError if the response does not fit the request."""
    codes: dict[Entry, ErrorCode] = {}
    for asked, answered in zip(request.markers, response.markers, strict=False):
        marker, partitions = entries_of(asked)
        found = {
            (topic.name, row.partition_index): ErrorCode(row.error_code)
            for topic in answered.topics
            for row in topic.partitions
        }
        if answered.producer_id == marker.producer.producer_id:
            codes.update({(marker, each): found[each] for each in partitions if each in found})
    asked_for = sum(len(topic.partition_indexes) for marker in request.markers for topic in marker.topics)
    if len(codes) != asked_for:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{asked_for} markers were sent, {len(codes)} answered")
    return codes
