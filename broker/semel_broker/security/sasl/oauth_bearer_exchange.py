"""PURE: the messages of OAUTHBEARER between a client and the broker (RFC 7628, extensions of KIP-342).

The client begins with its token. If the token is accepted, the exchange is complete. If it is refused, the client gets
the error as JSON and acknowledges it with one byte 0x01. Then the authentication has failed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from semel_broker.security.sasl.oauth_bearer import CheckedToken, TokenRefusedError

MECHANISM: Final = "OAUTHBEARER"
REFUSAL: Final = b'{"status":"invalid_token"}'
MESSAGE_BYTES_MAX: Final = 65_536
EXTENSIONS_MAX: Final = 32

_MESSAGE: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^=,\0\x01]|=2C|=3D)+))?,\x01(?P<pairs>(?:[^\x01]+\x01)*)\x01", re.ASCII
)
_PAIR: Final = re.compile(r"(?P<key>[A-Za-z]+)=(?P<value>[\x20-\x7e\t\r\n]*)")
_BEARER: Final = re.compile(r"Bearer +(?P<token>[A-Za-z0-9._~+/=-]+)", re.IGNORECASE)


class FirstMessage(msgspec.Struct, frozen=True):
    """The client's first message. `authzid`: the name that it wants to act as; "" if it does not say."""

    token: str
    authzid: str = ""
    extensions: dict[str, str] = {}

    def __repr__(self) -> str:
        return "<FirstMessage>"  # the token stays out of logs


def parse_first_message(message: bytes) -> FirstMessage:
    """Raise TokenRefusedError."""
    if len(message) > MESSAGE_BYTES_MAX:
        raise _malformed(f"it has more than {MESSAGE_BYTES_MAX} bytes")
    try:
        match = _MESSAGE.fullmatch(message.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise _malformed("it does not have the form of RFC 7628")
    values: dict[str, str] = {}
    for text in match["pairs"].split("\x01")[:-1]:
        pair = _PAIR.fullmatch(text)
        if pair is None or pair["key"] in values:
            raise _malformed("one of its pairs has no key, a wrong character, or the key of another pair")
        values[pair["key"]] = pair["value"]
    bearer = _BEARER.fullmatch(values.pop("auth", ""))
    if bearer is None:
        raise _malformed("it has no pair `auth` with a bearer token")
    if len(values) > EXTENSIONS_MAX:
        raise _malformed(f"it has more than {EXTENSIONS_MAX} extensions")
    authzid = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return FirstMessage(bearer["token"], authzid, values)


class OAuthBearerExchange:
    """One authentication. See `Mechanism`. `check`: the token -> its principal; raises TokenRefusedError."""

    def __init__(self, check: Callable[[str], Awaitable[CheckedToken]]) -> None:
        self._check = check
        self._refused: TokenRefusedError | None = None
        self._accepted: CheckedToken | None = None

    @property
    def is_complete(self) -> bool:
        return self._accepted is not None

    @property
    def user(self) -> str:
        assert self._accepted is not None
        return self._accepted.user

    @property
    def expires_ms(self) -> int | None:
        assert self._accepted is not None
        return self._accepted.expires_ms

    async def evaluate(self, message: bytes) -> bytes:
        """The answer to a message of the client. Raises TokenRefusedError when the authentication has failed."""
        assert self._accepted is None, "the exchange is complete"
        if self._refused is not None:
            raise self._refused  # the acknowledgement, or anything else in its place
        first = parse_first_message(message)
        try:
            accepted = await self._check(first.token)
            if first.authzid not in ("", accepted.user):
                raise TokenRefusedError(
                    "other_principal",
                    f"the client wants to act as {first.authzid[:200]!r}, and its token is of {accepted.user!r}",
                    "leave the authorization id out",
                )
        except TokenRefusedError as refused:
            self._refused = refused
            return REFUSAL
        self._accepted = accepted
        return b""


def _malformed(why: str) -> TokenRefusedError:
    return TokenRefusedError(
        "malformed_message", f"the first message of {MECHANISM} cannot be read: {why}", "check what the client sends"
    )
