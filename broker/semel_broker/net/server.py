"""The listening sockets and their connections: accepts them, closes those that time out, and stops them."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop, BufferedProtocol
from collections.abc import Callable, Collection, Sequence

from semel_protocol.errors import PortableError

from semel_broker.config.listeners import PLAINTEXT, Endpoint
from semel_broker.config.loading import BrokerConfig
from semel_broker.config.principal_rules import NoPrincipalError
from semel_broker.net.binding import bind
from semel_broker.net.connection import Connection
from semel_broker.net.connection_context import ConnectionContext
from semel_broker.net.dispatch import Dispatcher
from semel_broker.net.handshakes import Handshakes
from semel_broker.net.tls_connection import TlsConnection, TlsContext
from semel_broker.scheduling.repeated_lines import RepeatedLines
from semel_broker.scheduling.turns import Turns
from semel_broker.security.authorizer import ANONYMOUS
from semel_broker.security.quotas.client_quotas import ADMITTED, ClientQuotas, ConnectionAdmission
from semel_broker.security.quotas.validation import address_of
from semel_broker.security.sasl.session import SaslListener, SaslSession
from semel_broker.world import Logger, Reloadable, Tls, TlsFailure

SWEEP_S_MIN, SWEEP_S_MAX = 0.02, 5.0
BACKLOG = 1024
TLS_RELOAD_S = 1.0
"""The interval of looks at the files of certificates. Changed ones are read at the second look that shows the same."""


class ListenError(PortableError, OSError):
    """A listener cannot be opened. `address`: its host and port."""

    def __init__(self, error: OSError, address: Endpoint) -> None:
        super().__init__(error.errno, error.strerror)
        self.address = address


class Server:
    """Accepts the connections of one or more listeners, and keeps them in the order of arrival. All of them share the
    bounds of memory.

    `may_keep_descriptor`, `unacknowledged`, `hung_up`: see `World`. `quotas`: of clients and addresses; None: none.
    `handshake_lines`: bounds the log lines of failed handshakes. `authentication_failed`: gets host, listener,
    mechanism, reason and error of each that fails for the client's certificate.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        config: BrokerConfig,
        log: Logger,
        loop: AbstractEventLoop,
        turns: Turns,
        *,
        may_keep_descriptor: Callable[[int], bool] = lambda descriptor: True,
        unacknowledged: Callable[[int], int] = lambda descriptor: 0,
        hung_up: Callable[[Sequence[int]], Collection[int]] = lambda descriptors: (),
        quotas: ClientQuotas | None = None,
        handshake_lines: RepeatedLines | None = None,
        authentication_failed: Callable[[str, str, str, str, str], None] | None = None,
    ) -> None:
        self._quotas = quotas
        self._may_keep_descriptor = may_keep_descriptor
        self.context = ConnectionContext(dispatcher, config, log, loop, turns, unacknowledged, hung_up, quotas)
        self._connections: dict[Connection, None] = {}
        limits = config.limits
        self._handshakes = Handshakes(
            limits.tls_handshakes_max, limits.tls_handshakes_per_address_max, limits.tls_handshake_stalled_ms
        )
        self._tls: list[tuple[str, Reloadable]] = []  # with the names of their listeners
        self._tls_context = TlsContext(
            config.limits,
            log,
            loop,
            self.context.tls_scratch,
            self._handshakes,
            handshake_lines,
            authentication_failed,
            dispatcher.connections,
        )
        self._reload: asyncio.TimerHandle | None = None
        self._listeners: list[tuple[Endpoint, asyncio.Server]] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._all_lost = asyncio.Event()
        self._all_lost.set()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    async def bind(
        self,
        host: str,
        port: int,
        listener: str = PLAINTEXT,
        tls: Tls | None = None,
        principal_of: Callable[[bytes | None], str] = lambda certificate: ANONYMOUS.name,
        sasl: SaslListener | None = None,
    ) -> int:
        """Bind the port of a listener and return it; no connection is accepted before `serve`.

        Host `::`: both families. `tls` None: plaintext.
        `principal_of`: the principal of a client's certificate, without `sasl`.

        Raises ListenError (EADDRINUSE, ...).
        """
        context, address = self.context, Endpoint(host, port)

        def connection(certificate: bytes | None = None) -> Connection:
            try:
                principal = principal_of(certificate) if sasl is None else ANONYMOUS.name
            except NoPrincipalError as error:
                raise TlsFailure(error.reason, str(error), error.do) from None
            session = None if sasl is None else SaslSession(sasl)
            opened = self._accepted if tls is None else self._opened
            return Connection(context, opened, self._lost, listener, principal, session)

        def accept() -> BufferedProtocol:
            if tls is None:
                return connection()
            return TlsConnection(
                self._tls_context, tls.session(), listener, connection, self._may_keep_descriptor, self._admission
            )

        if tls is not None:
            self._tls.append((listener, tls))

        async def create(host: str, port: int) -> asyncio.Server:
            return await context.loop.create_server(accept, host, port, backlog=BACKLOG, start_serving=False)

        try:
            servers, bound = await bind(create, host, port)
        except OSError as error:
            raise ListenError(error, address) from error
        self._listeners += [(Endpoint(host, bound), opened) for opened in servers]
        return bound

    async def serve(self) -> None:
        """Begin to accept connections. Raises ListenError if another process listens on a port."""
        assert self._listeners, "bind() first"
        for address, opened in self._listeners:
            try:
                await opened.start_serving()
            except OSError as error:
                raise ListenError(error, address) from error
        self._sweep_later()
        if self._tls:
            self._reload_later()

    async def listen(self, host: str, port: int) -> int:
        """`bind` and `serve`."""
        bound = await self.bind(host, port)
        await self.serve()
        return bound

    def reload_too(self, listener: str, tls: Reloadable) -> None:
        """Look at these files too, together with those of the listeners."""
        self._tls.append((listener, tls))

    def certificate_ends(self) -> dict[str, int]:
        """When the certificate of each listener with TLS ends, in seconds since 1970. Of several: the earliest end."""
        ends: dict[str, int] = {}
        for listener, tls in self._tls:
            if (end := tls.ends_at_s) is not None:
                ends[listener] = min(end, ends.get(listener, end))
        return ends

    def _opened(self, connection: Connection) -> None:
        self._connections[connection] = None
        self._all_lost.clear()
        if not self._may_keep_descriptor(connection.descriptor):
            connection.abort("files_used_up")
            return
        most = self.context.config.max_connections
        if len(self._connections) > most:
            connection.close("too_many_connections", max_connections=most)

    def _accepted(self, connection: Connection) -> None:
        self._opened(connection)
        connection.admit(self._admission(connection.peer.host))

    def _admission(self, host: str) -> ConnectionAdmission:
        """Count a new connection of an address against its quota."""
        if self._quotas is None or not self._quotas.has_ip_rates:
            return ADMITTED
        return self._quotas.connected(address_of(host) or host, self.context.loop.time())

    def _lost(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._all_lost.set()

    # --- time ------------------------------------------------------------------------------------------------

    def _sweep_later(self) -> None:
        context = self.context
        shortest = min(context.idle_s, context.partial_s)
        self._sweep = context.loop.call_later(max(SWEEP_S_MIN, min(SWEEP_S_MAX, shortest / 4)), self._sweep_now)

    def _sweep_now(self) -> None:
        """Close the connections that have timed out. One timer serves all connections."""
        now = self.context.loop.time()
        for connection in list(self._connections):
            if reason := connection.expired(now):
                connection.abort(reason)
        self._sweep_later()

    def _reload_later(self) -> None:
        self._reload = self.context.loop.call_later(TLS_RELOAD_S, self._reload_tls)

    def _reload_tls(self) -> None:
        for _, tls in self._tls:
            tls.reload_if_changed()
        self._reload_later()

    # --- the end ---------------------------------------------------------------------------------------------

    def stop_accepting(self) -> None:
        """Accept no more connections and start no more requests; requests in progress are still answered."""
        for _, opened in self._listeners:
            opened.close()
        self._refuse_handshakes()
        for connection in list(self._connections):
            connection.finish()

    def _refuse_handshakes(self) -> None:
        for handshake in self._handshakes.snapshot():
            handshake.refuse("stopping")

    async def stop(self, grace_s: float) -> None:
        """Wait until all requests in progress are answered and sent, at most `grace_s`; then close all connections."""
        self.stop_accepting()
        try:
            async with asyncio.timeout(grace_s):
                await self._all_lost.wait()
        except TimeoutError:
            self.context.log.warning(
                "stop_grace_exceeded", connections=len(self._connections), requests=len(self.context.tasks)
            )
        await self.abort()

    async def abort(self) -> None:
        """Close every connection and cancel every request at once."""
        for _, opened in self._listeners:
            opened.close()
        self._refuse_handshakes()
        for connection in list(self._connections):
            connection.abort("stopping")
        tasks = list(self.context.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for timer in (self._sweep, self._reload):
            if timer is not None:
                timer.cancel()
        self.context.close()
        for _, opened in self._listeners:
            await opened.wait_closed()
