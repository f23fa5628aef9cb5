"""PURE: the passwords that PLAIN has found right: a client that connects again costs an HMAC, and not PBKDF2 again.

What is kept is an HMAC of credential and password, with a key that this process drew at its start. A wrong password is
never kept: to guess one costs PBKDF2 each time. A changed credential has another stored key, so an old password has no
entry for it.
"""

from __future__ import annotations

from semel_protocol.scram import ScramMechanism, mac

from semel_broker.cluster.records import ScramCredential

KEY_BYTES = 32
COUNT_MAX = 4_096


class VerifiedPasswords:
    """Those of one listener. Above `count_max` the one that was used least recently is forgotten.

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
