"""The authenticated session of one connection: its login, and its renewal before the broker ends it (KIP-368).

A renewal begins with the first request after 85 to 95 % of the session's lifetime. Requests from then on are held until
all earlier ones are answered and the broker has accepted the client again. An idle connection is not renewed: its next
request does it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from semel_protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from semel_protocol.schema import Message

from semel._edge import Edge
from semel._net.sasl import Credentials, authentication_error, distrust, handshake_error
from semel._net.scram import ScramError

RENEWAL_FROM, RENEWAL_TO = 0.85, 0.95
"""Parts of the lifetime. Chance keeps the connections of many clients apart."""
MESSAGES_MAX = 4
"""Messages of the client in one authentication. No mechanism needs more."""

Ask = Callable[[Message], Awaitable[Any]]
"""Sends a request of SASL, and returns its response."""


class State(Enum):
    NEW = "not authenticated"
    OPEN = "authenticated"
    DRAINING = "to be renewed: earlier requests are not answered yet"
    RENEWING = "authenticating again"


NEXT = {
    State.NEW: (State.OPEN,),
    State.OPEN: (State.DRAINING,),
    State.DRAINING: (State.RENEWING,),
    State.RENEWING: (State.OPEN,),
}


class SaslExchange:
    """One per connection with SASL."""

    def __init__(self, credentials: Credentials, edge: Edge, name: str) -> None:
        self.state = State.NEW
        self._credentials, self._edge, self._name = credentials, edge, name
        self._due = float("inf")

    @property
    def is_due(self) -> bool:
        """Whether the next request has to begin the renewal."""
        return self.state is State.OPEN and self._edge.monotonic() >= self._due

    @property
    def holds(self) -> bool:
        """Whether requests have to wait for the renewal."""
        return self.state in (State.DRAINING, State.RENEWING)

    def move(self, state: State) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state

    async def authenticate(self, ask: Ask) -> None:
        """Authenticate the connection, for the first time or again.

        Raises UnsupportedSaslMechanismError, IllegalSaslStateError or SaslAuthenticationFailed if the broker or the
        client refuses, and errors of the connection.
        """
        credentials = self._credentials
        handshake: SaslHandshakeResponse = await ask(SaslHandshakeRequest(mechanism=credentials.mechanism))
        if handshake.error_code:
            raise handshake_error(handshake.error_code, handshake.mechanisms, credentials.mechanism, self._name)
        mechanism = credentials.begin()
        answer = SaslAuthenticateResponse()
        try:
            message = await mechanism.respond(b"")
            for _ in range(MESSAGES_MAX):
                if message is None:
                    break
                answer = await ask(SaslAuthenticateRequest(auth_bytes=message))
                if answer.error_code != ErrorCode.NONE:
                    raise authentication_error(answer.error_code, answer.error_message, credentials, self._name)
                message = await mechanism.respond(answer.auth_bytes)
            else:
                raise ScramError("it does not come to an end")
        except ScramError as error:
            raise distrust(error, credentials, self._name) from error
        self.move(State.OPEN)
        self._due = float("inf")
        if answer.session_lifetime_ms > 0:
            part = self._edge.rng.uniform(RENEWAL_FROM, RENEWAL_TO)
            self._due = self._edge.monotonic() + answer.session_lifetime_ms / 1000 * part
