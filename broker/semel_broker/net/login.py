"""The authentication of a connection while it is in progress: counted and bounded in time, as handshakes of TLS are."""

from __future__ import annotations

from collections.abc import Callable

from semel_broker.net.connection_context import ConnectionContext
from semel_broker.security.sasl.session import SaslSession

CLOSED_BY_CLIENT = "see the client's log: it has closed the connection between two steps"
REFUSALS = {
    "authentication_timeout": "check the network, or whether the client is overloaded",
    "authentication_stalled": "other connections waited: close connections that do not authenticate",
    "too_many_unauthenticated": "let clients connect more slowly",
}
"""The advice for connections that are refused for a bound."""


class Login:
    """One per connection to a listener with SASL. `close`: closes the connection at once, for a reason. `is_served`:
    whether the client waits for the broker."""

    def __init__(
        self,
        context: ConnectionContext,
        session: SaslSession,
        close: Callable[[str], None],
        is_served: Callable[[], bool],
    ) -> None:
        self.is_pending = True
        self._context, self._session, self._close, self._is_served = context, session, close, is_served
        self._began_at = self._received_at = context.loop.time()

    @property
    def active_at(self) -> float:
        """When the client was last not waited for, in seconds of the loop."""
        return self._context.loop.time() if self._is_served() else self._received_at

    @property
    def frame_bytes_max(self) -> int | None:
        """See `SaslSession`."""
        return self._session.frame_bytes_max

    def opened(self, host: str, port: int) -> None:
        """The connection is made; it is closed if there are too many of its kind."""
        self._session.opened(host, port)
        if not self._context.logins.admit(self, host, self._began_at):
            self.refuse("too_many_unauthenticated")

    def received(self) -> None:
        """Bytes have arrived."""
        self._received_at = self._context.loop.time()

    def answered(self) -> None:
        """A request has been answered: authentication may be complete."""
        if self._session.is_authenticated:
            self._end()

    def check_time(self, now: float) -> None:
        """Refuse the connection if authentication takes too long."""
        if now - self._began_at > self._context.limits.authentication_timeout_ms / 1000:
            self.refuse("authentication_timeout")

    def refuse(self, reason: str) -> None:
        """Close the connection for a bound. See `Handshake`."""
        self._end()
        self._session.fail(reason, REFUSALS.get(reason, ""))
        self._close(reason)

    def lost(self) -> None:
        """The connection has ended."""
        if self._session.is_begun:
            self._session.fail("closed_in_authentication", CLOSED_BY_CLIENT)
        self._end()

    def _end(self) -> None:
        self.is_pending = False
        self._context.logins.ended(self)
