"""The authentication of one connection to a listener with SASL: its state, its principal, and when both end.

The table in `states.py` says which requests a state allows. A failed authentication is answered after a delay with one
sentence for all reasons; the log has the reason.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ErrorCode, KafkaError, PortableError

from semel_broker.answers import CloseConnectionError
from semel_broker.config.limits import Limits
from semel_broker.counters.counters import SecurityCounters
from semel_broker.security.authorizer import ANONYMOUS, Principal
from semel_broker.security.sasl.mechanism import AuthenticationFailed, Mechanism, Mechanisms
from semel_broker.security.sasl.states import (
    ALLOWED,
    NEXT,
    SASL,
    WITH_TOKENS,
    Kind,
    SaslState,
    kind_of,
)
from semel_broker.world import Logger

REAUTHENTICATION_S_MIN: Final = 1.0
"""Least time between two re-authentications, as in Kafka."""
PRINCIPAL_TYPE: Final = "User"
FAILED: Final = "authentication_failed"
"""The reason with which the connection is closed. The line `sasl_authentication_failed` says why."""


class AuthenticationFailedHook(Protocol):
    """Gets each failed authentication, for the audit log. `principal`: the one that the client named; "": none."""

    def __call__(
        self, host: str, listener: str, mechanism: str, reason: str, error: str = "", principal: str = ""
    ) -> None: ...


class SaslListener(msgspec.Struct, frozen=True, kw_only=True):
    """The SASL of a listener. `max_reauth_ms`: `connections.max.reauth.ms`, 0: sessions do not end.

    `failed_delay_ms`: `connection.failed.authentication.delay.ms`. `token_bytes_max`: `sasl.server.max.receive.size`.
    `now_s`: the monotonic clock; `now_ms`: the wall clock.
    """

    name: str
    protocol: str
    mechanisms: Mechanisms
    max_reauth_ms: int
    failed_delay_ms: int
    token_bytes_max: int
    limits: Limits
    log: Logger
    now_s: Callable[[], float]
    now_ms: Callable[[], int]
    authentication_failed: AuthenticationFailedHook | None = None
    counters: SecurityCounters = msgspec.field(default_factory=SecurityCounters)


class SaslRefusal(PortableError):  # noqa: N818 (what a peer did, not an error of this program)
    """The error that the client gets before its connection is closed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Step(msgspec.Struct, frozen=True):
    """The answer to a token. `session_lifetime_ms`: 0 if the session has no end, or authentication is not complete."""

    challenge: bytes
    session_lifetime_ms: int = 0


class SaslSession:
    """One per connection. `principal`: ANONYMOUS at the address of the client until authentication is complete."""

    def __init__(self, listener: SaslListener) -> None:
        self.state = SaslState.HANDSHAKE
        self.principal = ANONYMOUS
        self.client_id = ""
        self._listener = listener
        self._port = 0
        self._mechanism = ""
        self._exchange: Mechanism | None = None
        self._expires_s: float | None = None  # of the monotonic clock
        self._reauthenticated_s: float | None = None  # when the last re-authentication began

    def opened(self, host: str, port: int) -> None:
        """The connection is made."""
        self.principal, self._port = Principal(ANONYMOUS.name, host), port

    @property
    def mechanisms(self) -> list[str]:
        """The names of the mechanisms of the listener."""
        return list(self._listener.mechanisms)

    @property
    def is_authenticated(self) -> bool:
        """Whether the connection has a principal."""
        return self.state in (SaslState.AUTHENTICATED, SaslState.REAUTHENTICATION)

    @property
    def left_s(self) -> float | None:
        """The time until the session ends, in seconds; None: it has no end."""
        return None if self._expires_s is None else max(0.0, self._expires_s - self._listener.now_s())

    @property
    def has_ended(self) -> bool:
        """Whether the client has to authenticate again before its next request."""
        return self.left_s == 0.0

    @property
    def is_begun(self) -> bool:
        """Whether the client is in the middle of its first authentication."""
        return self.state in (SaslState.TOKENS, SaslState.RAW_TOKENS)

    @property
    def expects_raw_token(self) -> bool:
        """Whether the next frame is a token without a header."""
        return self.state is SaslState.RAW_TOKENS

    @property
    def frame_bytes_max(self) -> int | None:
        """The largest frame before authentication; None: authentication is complete."""
        if self.is_authenticated:
            return None
        if self.is_begun:
            return self._listener.token_bytes_max
        return self._listener.limits.unauthenticated_frame_bytes_max

    # --- requests --------------------------------------------------------------------------------------------

    def check(self, api_key: int, version: int, client_id: str) -> None:
        """Raise CloseConnectionError for a request that is not allowed now. Nothing of its body has been read."""
        if self.state is SaslState.AUTHENTICATED:
            if self._expires_s is not None and self._listener.now_s() >= self._expires_s:
                self._check_expired(kind_of(api_key, version))
            return
        self.client_id = client_id
        kind = kind_of(api_key, version)
        if kind in ALLOWED[self.state]:
            return
        if kind in SASL and self.state is not SaslState.REFUSED:
            return  # it is refused with an answer: see `handshake` and `authenticate`
        do = f"let the client use security.protocol={self._listener.protocol}, or another port"
        self.fail("request_before_authentication", do, api_key=api_key)
        raise CloseConnectionError(FAILED)

    def _check_expired(self, kind: Kind) -> None:
        if kind is not Kind.HANDSHAKE:
            self._move(SaslState.REFUSED)
            raise CloseConnectionError("session_expired", listener=self._listener.name)

    async def handshake(self, mechanism: str, version: int) -> list[str]:
        """SaslHandshake: choose a mechanism; return those that there are.

        Raises ILLEGAL_SASL_STATE if the connection is authenticated and may not begin again, SaslRefusal otherwise.
        """
        kind, offered = kind_of(ApiKey.SASL_HANDSHAKE, version), self.mechanisms
        if self.state is SaslState.AUTHENTICATED:
            self._check_reauthentication(kind)
            begun = SaslState.REAUTHENTICATION
            offered = [self._mechanism]
        elif kind in ALLOWED[self.state]:
            begun = SaslState.TOKENS if kind is Kind.HANDSHAKE else SaslState.RAW_TOKENS
        else:
            raise await self._out_of_turn("SaslHandshake")
        if mechanism not in offered:
            do = f"let the client use sasl.mechanism={offered[0]}, or add the mechanism to sasl.enabled.mechanisms"
            message = f"the mechanism is not enabled here; use one of {', '.join(offered)}"
            raise await self._refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, message, "unsupported_mechanism", do)
        self._mechanism = mechanism
        self._exchange = self._listener.mechanisms[mechanism]()
        self._move(begun)
        return offered

    async def authenticate(self, token: bytes) -> Step:
        """One token. Raises ILLEGAL_SASL_STATE if the connection is authenticated already, SaslRefusal otherwise."""
        if self.state is SaslState.AUTHENTICATED:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "the connection is authenticated: send SaslHandshake first")
        if self._exchange is None or self.state not in WITH_TOKENS:
            raise await self._out_of_turn("SaslAuthenticate")
        try:
            if len(token) > self._listener.token_bytes_max:
                raise AuthenticationFailed("token_too_long", "raise sasl.server.max.receive.size")
            challenge = await self._exchange.evaluate(token)
        except AuthenticationFailed as error:
            message = (
                f"Authentication failed during {self._what} due to invalid credentials with SASL mechanism "
                f"{self._mechanism}"
            )
            raise await self._refused(ErrorCode.SASL_AUTHENTICATION_FAILED, message, error.reason, error.do) from None
        if not self._exchange.is_complete:
            return Step(challenge)
        return Step(challenge, await self._complete(self._exchange))

    # --- steps -----------------------------------------------------------------------------------------------

    def _check_reauthentication(self, kind: Kind) -> None:
        """Raise ILLEGAL_SASL_STATE for SaslHandshake v0, and if the last re-authentication has only just begun."""
        if kind is Kind.HANDSHAKE_V0:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "re-authentication needs SaslHandshake v1")
        now = self._listener.now_s()
        if self._reauthenticated_s is not None and now - self._reauthenticated_s < REAUTHENTICATION_S_MIN:
            raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "a connection re-authenticates at most once a second")
        self._reauthenticated_s = now

    async def _complete(self, exchange: Mechanism) -> int:
        """The client has proved its identity: take its principal, and return the lifetime of the session in ms."""
        name = f"{PRINCIPAL_TYPE}:{exchange.user}"
        if self.state is SaslState.REAUTHENTICATION and name != self.principal.name:
            raise await self._refused(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                "Cannot change principals during re-authentication",
                "other_principal",
                "let the client open a connection for each user",
            )
        listener = self._listener
        lifetimes = [] if exchange.expires_ms is None else [max(0, exchange.expires_ms - listener.now_ms())]
        if listener.max_reauth_ms:
            lifetimes.append(listener.max_reauth_ms)
        lifetime_ms = min(lifetimes, default=0)
        self._expires_s = listener.now_s() + lifetime_ms / 1000 if lifetimes else None
        self.principal = Principal(name, self.principal.host)
        self._exchange = None
        listener.counters.note_authenticated(listener.name, self._mechanism)
        self._move(SaslState.AUTHENTICATED)
        return lifetime_ms

    async def _out_of_turn(self, name: str) -> SaslRefusal:
        return await self._refused(
            ErrorCode.ILLEGAL_SASL_STATE,
            f"{name} is not allowed now: authentication is SaslHandshake, then SaslAuthenticate",
            "illegal_sasl_state",
            "check the client's library",
        )

    async def _refused(self, code: ErrorCode, message: str, reason: str, do: str) -> SaslRefusal:
        """Log a failure, and wait, so that trying many passwords takes long. The caller raises the result."""
        self.fail(reason, do)
        await sleep(self._listener.failed_delay_ms / 1000)
        return SaslRefusal(code, message)

    def fail(self, reason: str, do: str, **fields: object) -> None:
        """Authentication has failed: log it, once for each connection, and allow no more requests."""
        if self.state is not SaslState.REFUSED:
            self._listener.log.warning(
                "sasl_authentication_failed",
                reason=reason,
                client_host=self.principal.host,
                client_port=self._port,
                client_id=self.client_id,
                listener=self._listener.name,
                mechanism=self._mechanism,
                **fields,
                do=do,
            )
            self._listener.counters.note_failed(self._listener.name, self._mechanism, reason)
            if (hook := self._listener.authentication_failed) is not None:
                user = "" if self._exchange is None else self._exchange.user
                named = f"{PRINCIPAL_TYPE}:{user}" if user else ""
                hook(self.principal.host, self._listener.name, self._mechanism, reason, principal=named)
            self._move(SaslState.REFUSED)

    @property
    def _what(self) -> str:
        return "re-authentication" if self.state is SaslState.REAUTHENTICATION else "authentication"

    def _move(self, to: SaslState) -> None:
        assert to in NEXT[self.state], f"{self.state.name} -> {to.name}"
        self.state = to
