"""The brokers that Metadata names: the live ones, and for a few seconds those that have just stopped.

librdkafka (from 2.10 on) ends the handle of a broker that Metadata does not name. If the same answer is the first that
names the new leaders of the partitions of that broker, these partitions stay without a leader until librdkafka asks
again a second later. So one answer does not bring both. A connection to a broker that has stopped is refused, or fails
as it would have a moment before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta
from semel_broker.cluster.records import BrokerRecord

LINGERS_S: Final = 3.0
"""librdkafka asks every second while a leader is unknown; other clients find it within their session timeouts."""


class AdvertisedBroker(Struct, frozen=True):
    """A broker as Metadata names it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class AdvertisedBrokers:
    """One per broker. Both lists are ordered by node id, and leave out brokers that lack the listener asked for."""

    def __init__(self, feed: Feed, monotonic: Callable[[], float]) -> None:
        self._feed, self._monotonic = feed, monotonic
        self._live: dict[int, BrokerRecord] = {}
        self._gone: dict[int, tuple[BrokerRecord, float]] = {}
        feed.listeners.append(self._on_image_changed)
        self._refresh()

    def live(self, listener: str) -> list[AdvertisedBroker]:
        """The brokers that may lead partitions."""
        return _on(listener, self._feed.image.live())

    def fenced(self, listener: str) -> list[AdvertisedBroker]:
        """The brokers that have registered, and that the controller has not admitted yet."""
        return _on(listener, self._feed.image.fenced())

    def with_recent(self, listener: str) -> list[AdvertisedBroker]:
        """The live brokers, and those that have stopped in the last LINGERS_S seconds."""
        self._refresh()
        gone = {node_id: record for node_id, (record, _) in self._gone.items()}
        return _on(listener, [record for _, record in sorted({**gone, **self._live}.items(), key=lambda item: item[0])])

    def _on_image_changed(self, delta: ImageDelta) -> None:
        if delta.brokers:
            self._refresh()

    def _refresh(self) -> None:
        now = self._monotonic()
        live = {record.node_id: record for record in self._feed.image.live()}
        left = {node_id: (record, now) for node_id, record in self._live.items() if node_id not in live}
        self._gone = {
            node_id: (record, since)
            for node_id, (record, since) in {**self._gone, **left}.items()
            if node_id not in live and now - since < LINGERS_S
        }
        self._live = live


def _on(listener: str, records: Iterable[BrokerRecord]) -> list[AdvertisedBroker]:
    return [
        AdvertisedBroker(record.node_id, endpoint.host, endpoint.port, record.rack or None)
        for record in records
        if (endpoint := record.endpoint(listener)) is not None
    ]
