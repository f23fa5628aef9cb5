"""PURE: the server's side of PLAIN (RFC 4616): a password is checked against the user's SCRAM credential.

The one token is `[authorization id] NUL user NUL password`. PBKDF2 runs elsewhere: `stretch`; a password that it has
found right once is known from then on: `verified`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hmac import compare_digest
from typing import Final

from semel_protocol.scram import ScramMechanism, keys_of, mac

from semel_broker.cluster.records import ScramCredential
from semel_broker.security.sasl.mechanism import AuthenticationFailed
from semel_broker.security.sasl.scram import NOT_PROVED, UNKNOWN_USER

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


KEY_BYTES = 32
COUNT_MAX = 4_096


class VerifiedPasswords:
    """The passwords that PLAIN has found right: a client that connects again costs an HMAC, and not PBKDF2 again.

    What is kept is an HMAC of credential and password, with a key that this process drew at its start. A wrong password
    is never kept: to guess one costs PBKDF2 each time. A changed credential has another stored key, so an old password
    has no entry for it.

    One object has those of one listener. Above `count_max` the one that was used least recently is forgotten.

    `key`: KEY_BYTES random bytes, of this process alone.
    """

    def __init__(self, key: bytes, count_max: int = COUNT_MAX) -> None:
        self._key, self._count_max = key, count_max
        self._marks: dict[bytes, None] = {}  # the least recently used first

    def __len__(self) -> int:
        return len(self._marks)

    def has(self, mechanism: ScramMechanism, credential: ScramCredential, password: bytes) -> bool:
        """Whether this password has been found right for this credential."""
        mark = self._mark(mechanism, credential, password)
        if mark not in self._marks:
            return False
        del self._marks[mark]
        self._marks[mark] = None
        return True

    def add(self, mechanism: ScramMechanism, credential: ScramCredential, password: bytes) -> None:
        """PBKDF2 has shown that the password is that of the credential."""
        self._marks[self._mark(mechanism, credential, password)] = None
        if len(self._marks) > self._count_max:
            del self._marks[next(iter(self._marks))]

    def _mark(self, mechanism: ScramMechanism, credential: ScramCredential, password: bytes) -> bytes:
        what = f"{mechanism.sasl_name}\0".encode() + credential.stored_key + password
        return mac(ScramMechanism.SCRAM_SHA_256, self._key, what)
