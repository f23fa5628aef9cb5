"""PURE: the server's side of PLAIN (RFC 4616): a password is checked against the user's SCRAM credential.

The one token is `[authorization id] NUL user NUL password`. PBKDF2 runs elsewhere: `stretch`; a password that it has
found right once is known from then on: `verified`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hmac import compare_digest
from typing import Final

from semel_protocol.scram import ScramMechanism, keys_of

from semel_broker.cluster.records import ScramCredential
from semel_broker.security.sasl.mechanism import AuthenticationFailed
from semel_broker.security.sasl.scram import NOT_PROVED, UNKNOWN_USER
from semel_broker.security.sasl.verified_passwords import VerifiedPasswords

PARTS: Final = 3
MALFORMED: Final = "check the client's library: it does not send PLAIN as RFC 4616 has it"
PASSWORD_BYTES_MAX: Final = 8 << 10

Stretch = Callable[[ScramMechanism, bytes, bytes, int], Awaitable[bytes]]
"""SCRAM's SaltedPassword of (mechanism, password, salt, iterations)."""
FindAnyCredential = Callable[[str], tuple[ScramMechanism, ScramCredential, bool]]
"""One credential of a user, and whether the user has it: an unknown user gets one that no password fits."""


class PlainExchange:
    """One authentication. See `Mechanism`."""

    expires_ms = None

    def __init__(self, find: FindAnyCredential, stretch: Stretch, verified: VerifiedPasswords) -> None:
        self._find, self._stretch, self._verified = find, stretch, verified
        self.user = ""
        self.is_complete = False

    async def evaluate(self, token: bytes) -> bytes:
        assert not self.is_complete, "a session asks no more"
        parts = token.split(b"\0")
        if len(parts) != PARTS:
            raise AuthenticationFailed("malformed_token", MALFORMED)
        authorization, name, password = parts
        try:
            user = name.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("malformed_token", MALFORMED) from None
        if not user or not password or len(password) > PASSWORD_BYTES_MAX:
            raise AuthenticationFailed("malformed_token", "give the client a user name and a password")
        if authorization not in (b"", name):
            raise AuthenticationFailed("other_authorization_id", "let the client leave its authorization id empty")
        self.user = user
        mechanism, credential, is_known = self._find(user)
        if not (self._verified.has(mechanism, credential, password) and is_known):
            salted = await self._stretch(mechanism, password, credential.salt, credential.iterations)
            is_proved = compare_digest(keys_of(mechanism, salted)[0], credential.stored_key)
            if not is_known:
                raise AuthenticationFailed("unknown_user", UNKNOWN_USER)
            if not is_proved:
                raise AuthenticationFailed("wrong_password", NOT_PROVED)
            self._verified.add(mechanism, credential, password)
        self.is_complete = True
        return b""
