"""The present leaders that Fetch and Produce name in their refusals, so that clients need no Metadata (KIP-951).

A leader is named if it has the listener of the request. Otherwise leader and epoch are -1, and the client asks for
Metadata.
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k00_produce import ProduceResponse, ProduceResponseLeader, ProduceResponseNodeEndpoint

from semel_broker.cluster.records import NO_LEADER
from semel_broker.context import RequestContext
from semel_broker.topics.advertised_brokers import AdvertisedBroker

STALE_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""The errors that come with a hint."""
PRODUCE_SINCE = 10
NO_EPOCH = -1
NO_HINT = (NO_LEADER, NO_EPOCH)


class LeaderHints:
    """The leaders named in one response."""

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._named: dict[int, None] = {}
        self._brokers: dict[int, AdvertisedBroker] | None = None

    def of(self, topic: str, index: int) -> tuple[int, int]:
        """The leader and its epoch; -1, -1 if they are not known."""
        broker = self._ctx.broker
        try:
            view = broker.topics.view(topic, index)
        except KafkaError:
            return NO_HINT
        leader = broker.feed.image.leader(*view.place)
        if leader is None or leader not in self._live():
            return NO_HINT
        if leader == broker.node_id:
            return self._here(topic, index)
        self._named[leader] = None
        return leader, view.state.leader_epoch

    def leaders(self) -> list[AdvertisedBroker]:
        """The leaders that were named, with the addresses of the listener of the request."""
        return [self._live()[node_id] for node_id in sorted(self._named)]

    def _here(self, topic: str, index: int) -> tuple[int, int]:
        """This broker, if it does lead: then the client has an old epoch."""
        node_id, partition = self._ctx.broker.node_id, self._ctx.broker.topics.partition(topic, index)
        if not partition.is_leading:
            return NO_HINT  # its session is over, so that its image may be out of date
        self._named[node_id] = None
        return node_id, partition.leader_epoch

    def _live(self) -> dict[int, AdvertisedBroker]:
        if self._brokers is None:
            live = self._ctx.broker.advertised_brokers.live(self._ctx.listener)
            self._brokers = {each.node_id: each for each in live}
        return self._brokers


def with_leaders(response: ProduceResponse, ctx: RequestContext) -> ProduceResponse:
    """The response to Produce with the leaders of the partitions that it refuses."""
    if ctx.api_version < PRODUCE_SINCE:
        return response
    hints: LeaderHints | None = None
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code in STALE_LEADER:
                hints = hints or LeaderHints(ctx)
                leader_id, leader_epoch = hints.of(topic.name, row.index)
                row.current_leader = ProduceResponseLeader(leader_id=leader_id, leader_epoch=leader_epoch)
    if hints is not None:
        response.node_endpoints = [
            ProduceResponseNodeEndpoint(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
            for each in hints.leaders()
        ]
    return response
