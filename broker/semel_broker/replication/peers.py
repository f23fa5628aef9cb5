"""Connections to the peer listeners of the other brokers, opened when needed and closed with their registrations.

A broker answers the requests of one connection in order, and some requests wait. So each API has its own connection: a
fetch that waits for records does not delay transaction markers, and markers do not delay other requests.
"""

from __future__ import annotations

from asyncio import Task, gather, get_running_loop, timeout, wait
from contextlib import suppress
from random import Random
from typing import Any, Final

from semel_protocol.api import APIS
from semel_protocol.api_key import ApiKey
from semel_protocol.backoff import Backoff
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k23_offset_for_leader_epoch import OffsetForLeaderEpochRequest
from semel_protocol.schema import Message

from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta, StoredValue
from semel_broker.cluster.records import BrokerRecord
from semel_broker.config.loading import BrokerConfig
from semel_broker.config.peer_listener import BrokerPrincipals
from semel_broker.config.principal_rules import NoPrincipalError
from semel_broker.config.settings import ConfigError
from semel_broker.replication.peer import PeerConnection
from semel_broker.scheduling.repeated_lines import RepeatedLines
from semel_broker.world import PeerTls, TlsFailure, World

OFFSET_FOR_LEADER_EPOCH_VERSION = 4
CHECK_TIMEOUT_S = 3.0
CONNECT_TIMEOUT_S: Final = 3.0
RETRY_MS_MIN: Final = 20
RETRY_MS_MAX: Final = 1_000
"""The pause after a failed attempt doubles between these."""
NO_ANSWER = TlsFailure(
    "closed_after_handshake",
    "it closed the connection before its first answer",
    "see the log of that broker: it says why it refuses this broker's certificate",
)
"""Why a connection with TLS ends without an answer."""


class PeerRefusedError(ConnectionRefusedError):
    """One of two brokers refuses the certificate of the other."""


class PeerSecurity:
    """One per broker with TLS between brokers."""

    def __init__(self, world: World, tls: PeerTls, principals: BrokerPrincipals) -> None:
        """Raise ConfigError if the broker's own certificate is not that of a broker."""
        self.tls, self.principals = tls, principals
        self._log = world.log
        self._lines = RepeatedLines(world.monotonic)
        try:
            principals.principal(tls.own_certificate())
        except NoPrincipalError as error:
            raise ConfigError(
                f"the certificate of the listener for brokers, in ssl.keystore.location: {error}; other brokers would "
                "refuse it: add its principal to broker.principals"
            ) from None

    def check(self, transport: Any) -> None:
        """Raise TlsFailure unless the certificate of the other side is that of a broker."""
        try:
            self.principals.principal(self.tls.certificate(transport))
        except NoPrincipalError as error:
            raise TlsFailure(error.reason, f"its certificate: {error}", error.do) from None

    def failed(self, broker: str, failure: TlsFailure) -> PeerRefusedError:
        """Write the failure, unless it was written a short while ago; return the error for the caller."""
        if times := self._lines.times((broker, failure.reason)):
            self._log.warning(
                "peer_refused", broker=broker, reason=failure.reason, error=str(failure), do=failure.do, times=times
            )
        return PeerRefusedError(f"{broker}: {failure} ({failure.reason}); {failure.do}")


class Link:
    """Opens and keeps the connection to one registration of a broker, for one API; pauses after a failure.

    `broker_epoch` is that of the registration; a broker that has restarted has another link.
    """

    def __init__(
        self, stored: StoredValue[BrokerRecord], client_id: str, rng: Random, security: PeerSecurity | None = None
    ) -> None:
        self.broker_epoch = stored.revision
        self._record = stored.value
        self._client_id = client_id
        self._security = security
        self._connection: PeerConnection | None = None
        self._opening: Task[PeerConnection] | None = None
        self._backoff = Backoff(rng, RETRY_MS_MIN, RETRY_MS_MAX)
        self._not_before = 0.0
        self._failure: OSError | None = None
        self._is_closed = False

    async def connection(self) -> PeerConnection:
        """The open connection. Raises OSError; during the pause after a failure, at once."""
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        loop = get_running_loop()
        if self._opening is None:
            if loop.time() < self._not_before:
                assert self._failure is not None
                raise type(self._failure)(*self._failure.args)
            self._opening = loop.create_task(self._open(), name=f"connect to {self._name}")
            self._opening.add_done_callback(_consume_exception)
        opening = self._opening
        await wait((opening,))
        return opening.result()

    async def _open(self) -> PeerConnection:
        loop = get_running_loop()
        record = self._record
        try:
            async with timeout(CONNECT_TIMEOUT_S):
                if self._security is None:
                    _, connection = await loop.create_connection(
                        lambda: PeerConnection(self._name, self._client_id, loop), record.peer_host, record.peer_port
                    )
                else:
                    connection = await self._open_verified(self._security)
        except OSError as error:
            raise self._failed(error) from error
        else:
            if self._is_closed:
                connection.close("another broker has registered there")
                raise ConnectionResetError(f"{self._name} is no longer that broker")
            if self._security is None:
                self._backoff.reset()
            self._connection = connection
            return connection
        finally:
            self._opening = None

    async def _open_verified(self, security: PeerSecurity) -> PeerConnection:
        """A connection with TLS. The other side may still refuse this broker's certificate: its first answer tells."""
        loop, record = get_running_loop(), self._record
        try:
            _, connection = await loop.create_connection(
                lambda: PeerConnection(self._name, self._client_id, loop, self._backoff.reset, self._lost_unanswered),
                record.peer_host,
                record.peer_port,
                **security.tls.arguments(record.peer_host),
            )
            try:
                security.check(connection.transport)
            except TlsFailure as failure:
                error = security.failed(self._name, failure)
                connection.close(str(error))
                raise error from None
        except OSError as error:
            if (why := security.tls.explain(error)) is not None:
                raise security.failed(self._name, why) from error
            raise
        return connection

    def _lost_unanswered(self, error: Exception | None) -> OSError:
        assert self._security is not None
        failure = self._security.tls.explain(error) or NO_ANSWER
        return self._failed(self._security.failed(self._name, failure))

    def _failed(self, error: OSError) -> OSError:
        """Pause after a failure; return the error for the callers."""
        self._not_before = get_running_loop().time() + self._backoff.next_ms() / 1000
        if not isinstance(error, PeerRefusedError):
            error = ConnectionRefusedError(f"{self._name} cannot be reached: {error or type(error).__name__}")
        self._failure = error
        return error

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

    def __init__(self, world: World, feed: Feed, config: BrokerConfig, security: PeerSecurity | None = None) -> None:
        """`security` None: the brokers speak plaintext."""
        self._feed = feed
        self._own_id = config.node_id
        self.security = security
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

    async def check_admitted(self) -> None:
        """With TLS: ask the registered brokers whether they accept this one. Brokers that do not answer do not count.

        Raises ConfigError if this broker and each other one that answers refuse each other's certificates.
        """
        if self.security is None:
            return
        others = [each.value.node_id for each in self._feed.image.registered() if each.value.node_id != self._own_id]
        outcomes = await gather(*map(self._ask, others), return_exceptions=True)
        refusals = [each for each in outcomes if isinstance(each, PeerRefusedError)]
        if refusals and not any(each is None for each in outcomes):
            raise ConfigError(f"this broker cannot join the cluster: {refusals[0]}")

    async def _ask(self, node_id: int) -> None:
        """A request without effect."""
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[])
        await self.call(
            node_id, ApiKey.OFFSET_FOR_LEADER_EPOCH, OFFSET_FOR_LEADER_EPOCH_VERSION, request, CHECK_TIMEOUT_S * 1000
        )

    def _link(self, node_id: int, api_key: int) -> Link:
        stored = self._feed.image.registration(node_id)
        if stored is None:
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"broker {node_id} is not registered: try again")
        link = self._links.get((node_id, api_key))
        if link is None or link.broker_epoch != stored.revision:
            if link is not None:
                link.close("the broker has restarted")
            link = self._links[node_id, api_key] = Link(stored, self._client_id, self._rng, self.security)
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
