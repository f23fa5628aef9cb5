"""Whom clients are told of as brokers: the live ones, and for a moment those that have just gone.

librdkafka (from 2.10 on) ends the handle of a broker that Metadata does not name. If that answer is also the first to
name the new leaders of what the broker led, their partitions are left without one, until it asks again a second later.
So an answer does not bring both. A connection to who has gone is refused, or fails as it would have a moment before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import Touched

LINGERS_S: Final = 3.0
"""librdkafka asks every second while it misses a leader; others hear of one within their session timeouts anyway."""


class Contact(Struct, frozen=True):
    """A broker as clients are told of it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Contacts:
    """One per broker. Both answers are by node id."""

    def __init__(self, feed: Feed, monotonic: Callable[[], float]) -> None:
        self._feed, self._monotonic = feed, monotonic
        self._live: dict[int, Contact] = {}
        self._gone: dict[int, tuple[Contact, float]] = {}
        feed.listeners.append(self._on_touched)
        self._look()

    def live(self) -> list[Contact]:
        """Those that may lead."""
        return [Contact(each.node_id, each.host, each.port, each.rack or None) for each in self._feed.image.live()]

    def named(self) -> list[Contact]:
        """The same, and those that have just gone."""
        self._look()
        gone = {node_id: contact for node_id, (contact, _) in self._gone.items()}
        return [contact for _, contact in sorted({**gone, **self._live}.items())]

    def _on_touched(self, touched: Touched) -> None:
        if touched.brokers:
            self._look()

    def _look(self) -> None:
        now = self._monotonic()
        live = {contact.node_id: contact for contact in self.live()}
        left = {node_id: (contact, now) for node_id, contact in self._live.items() if node_id not in live}
        self._gone = {
            node_id: (contact, since)
            for node_id, (contact, since) in {**self._gone, **left}.items()
            if node_id not in live and now - since < LINGERS_S
        }
        self._live = live
