"""PURE: the mechanisms of SASL, and what their failures mean to the user.

A mechanism gives one message after the other: `respond(b"")` is the first, `respond(challenge)` the next. It returns
None when the exchange is complete. The connection carries the messages (KIP-43, KIP-152).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol

from semel_protocol.errors import ErrorCode

from semel._config.client import ClientConfig, TokenProvider
from semel._edge import Edge
from semel._net.scram import ScramClient, ScramError
from semel.errors import (
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
    error_for,
)

OAUTHBEARER: Final = "OAUTHBEARER"
SASL_THERE: Final = "if this listener requires SASL, set security_protocol, sasl_mechanism and the credentials"
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_EXTENSION_KEY: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]*")
SHOWN_CHARS_MAX: Final = 200
NONCE_BYTES: Final = 24


class ClientMechanism(Protocol):
    """One authentication."""

    async def respond(self, challenge: bytes) -> bytes | None:
        """The next message of the client; None: the exchange is complete. Raises KafkaError, ScramError."""


class Plain:
    """PLAIN (RFC 4616): user and password as they are."""

    def __init__(self, username: str, password: str) -> None:
        self._message: bytes | None = f"\0{username}\0{password}".encode()

    async def respond(self, challenge: bytes) -> bytes | None:
        message, self._message = self._message, None
        return message


class OAuthBearer:
    """OAUTHBEARER (RFC 7628) with extensions (KIP-342): a token of `sasl_oauth_token_provider`."""

    def __init__(self, provider: TokenProvider) -> None:
        self._provider = provider
        self._is_begun = self._is_refused = False

    async def respond(self, challenge: bytes) -> bytes | None:
        if not self._is_begun:
            self._is_begun = True
            return await self._first_message()
        if self._is_refused:
            raise SaslAuthenticationFailed("the broker accepted the acknowledgement of its own refusal")
        if not challenge:
            return None
        self._is_refused = True
        return b"\x01"  # the broker has said why; after this byte it answers with the error

    async def _first_message(self) -> bytes:
        try:
            token = await self._provider.token()
            extensions: Mapping[str, str] = getattr(self._provider, "extensions", dict)() or {}
        except KafkaError:
            raise
        except Exception as error:
            # The text of the error may have parts of a secret in it; its traceback is in __cause__.
            raise KafkaConnectionError(f"sasl_oauth_token_provider raised {type(error).__name__}") from error
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise SaslAuthenticationFailed(
                "sasl_oauth_token_provider: token() did not return a token: give a str of letters, digits and -._~+/="
            )
        for key, value in extensions.items():
            if not _EXTENSION_KEY.fullmatch(key) or key == "auth" or not _EXTENSION_VALUE.fullmatch(value):
                raise SaslAuthenticationFailed(
                    f"sasl_oauth_token_provider: extensions() has {key!r}, whose key or value has a character that "
                    "is not allowed (KIP-342)"
                )
        pairs = {"auth": f"Bearer {token}", **extensions}
        return "".join(["n,,\x01", *(f"{key}={value}\x01" for key, value in pairs.items()), "\x01"]).encode()


class Credentials:
    """The mechanism and the credentials of a client."""

    def __init__(self, config: ClientConfig, edge: Edge) -> None:
        self.mechanism: str = config.sasl_mechanism
        self._config, self._edge = config, edge

    def __repr__(self) -> str:
        return f"<Credentials for {self.mechanism}>"

    @property
    def expectation(self) -> str:
        """The advice for a refusal of the broker."""
        if self.mechanism == OAUTHBEARER:
            return "Check that the token is for this broker (issuer, audience) and has not expired"
        return (
            f"Check sasl_plain_username={self._config.sasl_plain_username!r} and sasl_plain_password, and that the "
            f"user exists there for {self.mechanism}"
        )

    def begin(self) -> ClientMechanism:
        """A new authentication."""
        config = self._config
        if self.mechanism == OAUTHBEARER:
            assert config.sasl_oauth_token_provider is not None
            return OAuthBearer(config.sasl_oauth_token_provider)
        username, password = config.sasl_plain_username, config.sasl_plain_password
        assert username is not None
        assert password is not None
        if self.mechanism == "PLAIN":
            return Plain(username, password)
        return ScramClient(
            self.mechanism, username, password, self._edge.random_bytes(NONCE_BYTES).hex(), self._edge.derived_key
        )


def credentials_of(config: ClientConfig, edge: Edge) -> Credentials | None:
    """None: the client does not authenticate with SASL."""
    return Credentials(config, edge) if config.security_protocol.startswith("SASL_") else None


def handshake_error(code: int, offered: list[str], mechanism: str, name: str) -> KafkaError:
    """The error for a refused SaslHandshake."""
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        there = ", ".join(offered[:20]) or "none"
        return UnsupportedSaslMechanismError(
            f"{name} does not offer {mechanism} on this listener; it offers {there[:SHOWN_CHARS_MAX]}"
        )
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        return IllegalSaslStateError(f"{name} does not use SASL on this listener")
    return error_for(code, f"{name} refused SaslHandshake")


def authentication_error(code: int, said: str | None, credentials: Credentials, name: str) -> KafkaError:
    """The error for a refused SaslAuthenticate."""
    words = f" ({said[:SHOWN_CHARS_MAX]})" if said else ""
    if code == ErrorCode.SASL_AUTHENTICATION_FAILED:
        return SaslAuthenticationFailed(
            f"{name} refused the client with {credentials.mechanism}{words}. {credentials.expectation}"
        )
    return error_for(code, f"{name} refused SaslAuthenticate{words}")


def distrust(error: ScramError, credentials: Credentials, name: str) -> KafkaError:
    """The error for a broker whose part of SCRAM is wrong."""
    return SaslAuthenticationFailed(f"{name} failed {credentials.mechanism}: {error}")
