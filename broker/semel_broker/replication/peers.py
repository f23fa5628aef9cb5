"""Connections to the peer listeners of the other brokers, opened when needed and closed with their registrations.

A broker answers the requests of one connection in order, and some requests wait. So each API has its own connection: a
fetch that waits for records does not delay transaction markers, and markers do not delay other requests.
"""

from __future__ import annotations

from asyncio import Task, get_running_loop, shield, timeout, wait
from contextlib import suppress
from random import Random
from typing import Any

from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.schema import Message

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta, StoredValue
from semel_broker.cluster.records import BrokerRecord
from semel_broker.replication.peer import PeerConnection
from semel_broker.replication.settings import CONNECT_TIMEOUT_S, RETRY_S_MAX, RETRY_S_MIN, ReplicationSettings
from semel_broker.scheduling.backoff import Backoff
from semel_broker.world import World


class Link:
    """Opens and keeps the connection to one registration of a broker, for one API; pauses after a failure.

    `broker_epoch` is that of the registration; a broker that has restarted has another link.
    """

    def __init__(self, stored: StoredValue[BrokerRecord], client_id: str, rng: Random) -> None:
        self.broker_epoch = stored.revision
        self._record = stored.value
        self._client_id = client_id
        self._connection: PeerConnection | None = None
        self._opening: Task[PeerConnection] | None = None
        self._backoff = Backoff(rng, RETRY_S_MIN, RETRY_S_MAX)
        self._not_before = 0.0
        self._failure = ""
        self._is_closed = False

    async def connection(self) -> PeerConnection:
        """The open connection. Raises OSError; during the pause after a failure, at once."""
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        loop = get_running_loop()
        if self._opening is None:
            if loop.time() < self._not_before:
                raise ConnectionRefusedError(self._failure)
            self._opening = loop.create_task(self._open(), name=f"connect to {self._name}")
            self._opening.add_done_callback(_consume_exception)
        return await shield(self._opening)

    async def _open(self) -> PeerConnection:
        loop = get_running_loop()
        record = self._record
        try:
            async with timeout(CONNECT_TIMEOUT_S):
                _, connection = await loop.create_connection(
                    lambda: PeerConnection(self._name, self._client_id, loop), record.peer_host, record.peer_port
                )
        except OSError as error:
            self._failure = f"{self._name} cannot be reached: {error or type(error).__name__}"
            self._not_before = loop.time() + self._backoff.failed()
            raise ConnectionRefusedError(self._failure) from error
        else:
            if self._is_closed:
                connection.close("another broker has registered there")
                raise ConnectionResetError(f"{self._name} is no longer that broker")
            self._backoff.succeeded()
            self._connection = connection
            return connection
        finally:
            self._opening = None

    @property
    def _name(self) -> str:
        record = self._record
        return f"broker {record.node_id} at {record.peer_host}:{record.peer_port}"

    def close(self, reason: str) -> None:
        """Close for good: waiting requests get an OSError."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.close(reason)

    async def closed(self) -> None:
        """Return once no connection is being opened."""
        if self._opening is not None:
            self._opening.cancel()
            await wait((self._opening,))


def _consume_exception(task: Task[PeerConnection]) -> None:
    """Consume the exception: the caller that waited for it may be cancelled."""
    if not task.cancelled():
        task.exception()


class Peers:
    """One per broker. The addresses of the other brokers come from the image."""

    def __init__(self, world: World, feed: Feed, config: ReplicationSettings) -> None:
        self._feed = feed
        self._rng = world.rng
        self._client_id = f"broker-{config.node_id}"
        self._links: dict[tuple[int, int], Link] = {}
        feed.listeners.append(self._on_image_changed)

    async def call(self, node_id: int, api_key: int, version: int, message: Message, timeout_ms: float) -> Any:
        """Send a request to another broker and return its response.

        Raises OSError (TimeoutError is one) if the broker cannot be reached or the connection is lost; the request may
        have been executed. Raises KafkaError REPLICA_NOT_AVAILABLE if no such broker is registered. If the caller is
        cancelled, the connection closes, so that later requests do not wait behind the unused response.
        """
        connection = await self._link(node_id, api_key).connection()
        future = connection.send(APIS[api_key], version, message, timeout_ms)
        try:
            return await future
        finally:
            if future.cancelled():
                connection.close("a request was cancelled")

    def _link(self, node_id: int, api_key: int) -> Link:
        stored = self._feed.image.registration(node_id)
        if stored is None:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"broker {node_id} is not registered: try again")
        link = self._links.get((node_id, api_key))
        if link is None or link.broker_epoch != stored.revision:
            if link is not None:
                link.close("the broker has restarted")
            link = self._links[node_id, api_key] = Link(stored, self._client_id, self._rng)
        return link

    def _on_image_changed(self, delta: ImageDelta) -> None:
        for (node_id, api_key), link in list(self._links.items()):
            if node_id in delta.brokers:
                stored = self._feed.image.registration(node_id)
                if stored is None or stored.revision != link.broker_epoch:
                    link.close("the broker has stopped or restarted")
                    del self._links[node_id, api_key]

    async def close(self) -> None:
        """Close all connections: waiting requests get an OSError."""
        with suppress(ValueError):
            self._feed.listeners.remove(self._on_image_changed)
        links, self._links = list(self._links.values()), {}
        for link in links:
            link.close("this broker is stopping")
            await link.closed()
