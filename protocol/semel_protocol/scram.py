"""PURE: SCRAM's mechanisms and keys, as broker and client compute them. RFC 5802, RFC 7677, KIP-84, KIP-554.

As in Kafka, names and passwords are UTF-8 without SASLprep.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import IntEnum
from typing import Final

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384
SALT_BYTES: Final = 32
"""Of the salts that semel makes."""


class ScramMechanism(IntEnum):
    """A mechanism, with its code in requests. Members have the names that Kafka's Admin uses."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name in SaslHandshake: "SCRAM-SHA-256"."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The name of the hash in hashlib."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def digest_bytes(self) -> int:
        """Size of each key."""
        return hashlib.new(self.hash_name).digest_size

    @classmethod
    def of(cls, sasl_name: str) -> ScramMechanism:
        """The mechanism of that name. Raises KeyError."""
        return cls[sasl_name.replace("-", "_")]


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's SaltedPassword. Takes milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def keys_of(mechanism: ScramMechanism, salted: bytes) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey of a salted password."""
    client_key = mac(mechanism, salted, b"Client Key")
    return digest(mechanism, client_key), mac(mechanism, salted, b"Server Key")


def mac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    """HMAC with the mechanism's hash."""
    return hmac.digest(key, data, mechanism.hash_name)


def digest(mechanism: ScramMechanism, data: bytes) -> bytes:
    """The mechanism's hash."""
    return hashlib.new(mechanism.hash_name, data).digest()
