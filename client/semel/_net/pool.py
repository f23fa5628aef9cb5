"""The open connections, one for each broker and role. Opens them on demand, and again after a pause when lost.

A broker answers one connection in order. Roles separate requests that must not wait for each other: a long-poll Fetch
or a JoinGroup would delay everything after it.
"""

import asyncio
import logging
from enum import Enum

from semel_protocol.backoff import Backoff

from semel._config.client import ClientConfig
from semel._edge import Edge
from semel._net.connection import Connection, connect
from semel._net.counters import ClientRequestCounters
from semel._net.reachability import SLOW_S, Reachability
from semel._net.sasl import credentials_of
from semel._net.tls import context_of
from semel.errors import IllegalStateError, KafkaConnectionError, KafkaError

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_MS_MAX = 10_000


class ConnectionPurpose(Enum):
    """The purpose of a connection."""

    CONTROL = "control"
    """Metadata, FindCoordinator, admin."""
    DATA = "data"
    """Produce, ListOffsets."""
    FETCH = "fetch"
    COORDINATOR = "coordinator"
    """Groups and transactions."""


class _Link:
    """The connection to one (node, role), or the attempt to open it."""

    __slots__ = ("backoff", "connecting", "connection", "retry_at")

    def __init__(self, backoff: Backoff) -> None:
        self.backoff = backoff
        self.connection: Connection | None = None
        self.connecting: asyncio.Task[Connection] | None = None
        self.retry_at = 0.0


class Pool:
    """Connections by (node id, role). Node ids below 0 are bootstrap servers.

    Raises KafkaConfigurationError if the files of TLS cannot be used.
    """

    def __init__(self, config: ClientConfig, edge: Edge) -> None:
        self._config, self._edge = config, edge
        self._tls = context_of(config)
        self._credentials = credentials_of(config, edge)
        if config.security_protocol == "SASL_PLAINTEXT" and config.sasl_mechanism in ("PLAIN", "OAUTHBEARER"):
            log.warning(
                "client %r sends its %s over a connection without TLS: use security_protocol='SASL_SSL', or SCRAM",
                config.client_id,
                "password" if config.sasl_mechanism == "PLAIN" else "token",
            )
        self._addresses: dict[int, tuple[str, int]] = {}
        self._links: dict[tuple[int, ConnectionPurpose], _Link] = {}
        self._closed = False
        self.reachability = Reachability(edge, config.client_id)
        self.counters = ClientRequestCounters()
        """Of all connections, the closed ones included."""

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer."""
        return sum(link.connection.in_flight for link in self._links.values() if link.connection is not None)

    def set_address(self, node_id: int, host: str, port: int) -> None:
        """Set the address of a node. Connections to another address of it are closed."""
        address = (host, port)
        if self._addresses.get(node_id, address) != address:
            for (node, _), link in self._links.items():
                if node == node_id and link.connection is not None:
                    link.connection.close(KafkaConnectionError(f"broker {node_id} has moved to {host}:{port}"))
        self._addresses[node_id] = address

    def knows(self, node_id: int) -> bool:
        return node_id in self._addresses

    def address(self, node_id: int) -> str:
        """`host:port`, for messages."""
        return "{}:{}".format(*self._addresses[node_id]) if self.knows(node_id) else f"broker {node_id}"

    def live(self, node_id: int, role: ConnectionPurpose) -> Connection | None:
        """The open connection, or None."""
        link = self._links.get((node_id, role))
        if link is None or link.connection is None or link.connection.closed:
            return None
        return link.connection

    async def connection(self, node_id: int, role: ConnectionPurpose) -> Connection:
        """The open connection; opens it first if needed. Raises KafkaError as `connect`.

        After a failure the next attempt waits reconnect_backoff_ms, doubled after each failure up to
        reconnect_backoff_max_ms.
        """
        live = self.live(node_id, role)
        if live is not None:
            return live
        for _ in range(2):
            attempt = self.connecting(node_id, role)
            await asyncio.wait((attempt,))
            if not attempt.cancelled():
                return attempt.result()
            # `cut` has cancelled it; or the end of the loop has, and a client that closes may connect once more.
        raise KafkaConnectionError(f"the attempt to connect to {self.address(node_id)} was cancelled")

    def connecting(self, node_id: int, role: ConnectionPurpose, *, is_needed: bool = True) -> asyncio.Task[Connection]:
        """The attempt in progress to open a connection. Begins one if there is none.

        is_needed: this broker is needed, and no other can take its place.
        """
        if self._closed:
            raise IllegalStateError("the client is stopped")
        link = self._links.get((node_id, role))
        if link is None:
            config = self._config
            backoff = Backoff(self._edge.rng, config.reconnect_backoff_ms, config.reconnect_backoff_max_ms)
            link = self._links[node_id, role] = _Link(backoff)
        if link.connecting is None or link.connecting.done():  # done: it was cancelled before its first step
            opening = self._open(node_id, link, is_needed=is_needed)
            link.connecting = asyncio.create_task(opening, name=f"connect {node_id} {role.value}")
            link.connecting.add_done_callback(_discard_exception)
        elif is_needed:
            self.reachability.needed(self.address(node_id))
        return link.connecting

    def adopt(self, bootstrap_id: int, node_id: int) -> None:
        """A bootstrap server is broker `node_id`: its control connection becomes that broker's, if that has none.

        An attempt in progress stays where it is, so that `close` ends it.
        """
        link, own = (self._links.get((node, ConnectionPurpose.CONTROL)) for node in (bootstrap_id, node_id))
        if link is None or link.connecting is not None:
            return
        del self._links[bootstrap_id, ConnectionPurpose.CONTROL]
        if link.connection is None:
            return
        is_missing = own is None or (own.connecting is None and self.live(node_id, ConnectionPurpose.CONTROL) is None)
        if is_missing and self._addresses[bootstrap_id] == self._addresses[node_id]:
            self._links[node_id, ConnectionPurpose.CONTROL] = link
        else:
            link.connection.close()

    def close_idle(self) -> None:
        """Close connections without traffic for connections_max_idle_ms, unless that is None."""
        if self._config.connections_max_idle_ms is None:
            return
        oldest = self._edge.monotonic() - self._config.connections_max_idle_ms / 1000
        for link in self._links.values():
            connection = link.connection
            if connection is not None and not connection.in_flight and connection.last_used < oldest:
                connection.on_lost = None
                link.connection = None
                connection.close()

    def cut(self) -> list[asyncio.Task[Connection]]:
        """Close everything at once; requests in flight fail with KafkaConnectionError.

        Returns the attempts to open a connection, which are cancelled and end soon.
        """
        self._closed = True
        attempts = [link.connecting for link in self._links.values() if link.connecting is not None]
        for attempt in attempts:
            attempt.cancel()
        for link in self._links.values():
            if link.connection is not None:
                link.connection.on_lost = None
                link.connection.close(KafkaConnectionError("the client is stopped"))
        self._links.clear()
        return attempts

    async def _open(self, node_id: int, link: _Link, *, is_needed: bool) -> Connection:
        config, reachability, address = self._config, self.reachability, ""
        slow: asyncio.TimerHandle | None = None
        try:
            pause = link.retry_at - self._edge.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            if not self.knows(node_id):
                raise KafkaConnectionError(f"broker {node_id} is not in the cluster's metadata")
            host, port = self._addresses[node_id]
            address = self.address(node_id)
            reachability.attempting(node_id, address, is_needed=is_needed)
            slow = asyncio.get_running_loop().call_later(SLOW_S, reachability.still_waiting, address)
            connection = await connect(
                self._edge,
                host,
                port,
                client_id=config.client_id,
                timeout_ms=min(config.request_timeout_ms, CONNECT_TIMEOUT_MS_MAX),
                frame_bytes_max=config.receive_frame_bytes_max,
                tls=self._tls,
                credentials=self._credentials,
                counters=self.counters,
                waits_for=lambda step: reachability.waits_for(address, step),
            )
        except KafkaError as error:
            if address:
                reachability.failed(node_id, address, error)
            self._back_off(link)
            raise
        except BaseException:
            reachability.given_up(address)
            raise
        finally:
            link.connecting = None
            if slow is not None:
                slow.cancel()
        reachability.reached(address)
        connection.on_lost = lambda: self._back_off(link)
        link.backoff.reset()
        link.connection = connection
        return connection

    def _back_off(self, link: _Link) -> None:
        link.connection = None
        link.retry_at = self._edge.monotonic() + link.backoff.next_ms() / 1000


def _discard_exception(attempt: asyncio.Task[Connection]) -> None:
    # The callers that wait for the attempt get its exception. When all were cancelled, it may be dropped.
    if not attempt.cancelled():
        attempt.exception()
