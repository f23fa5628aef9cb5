"""The cache of verified PLAIN passwords: equality, and its size."""

from __future__ import annotations

from semel_broker.cluster.records import ScramCredential
from semel_broker.security.sasl.plain import VerifiedPasswords
from semel_protocol.scram import ScramMechanism

SHA256, SHA512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def credential(stored_key: bytes) -> ScramCredential:
    return ScramCredential(b"salt", 4096, stored_key, b"server key")


def test_a_password_is_known_for_its_credential_alone() -> None:
    verified = VerifiedPasswords(b"key")
    verified.add(SHA256, credential(b"a" * 32), b"secret")
    assert verified.has(SHA256, credential(b"a" * 32), b"secret")
    assert not verified.has(SHA256, credential(b"a" * 32), b"Secret")
    assert not verified.has(SHA256, credential(b"b" * 32), b"secret"), "the user has a new password"
    assert not verified.has(SHA512, credential(b"a" * 32), b"secret")
    assert not VerifiedPasswords(b"key").has(SHA256, credential(b"a" * 32), b"secret")


def test_the_password_used_least_recently_is_forgotten() -> None:
    verified = VerifiedPasswords(b"key", count_max=2)
    for password in (b"one", b"two"):
        verified.add(SHA256, credential(b"a" * 32), password)
    assert verified.has(SHA256, credential(b"a" * 32), b"one")
    verified.add(SHA256, credential(b"a" * 32), b"three")
    assert len(verified) == 2
    known = [each for each in (b"one", b"two", b"three") if verified.has(SHA256, credential(b"a" * 32), each)]
    assert known == [b"one", b"three"]


def test_neither_password_nor_stored_key_is_kept() -> None:
    verified = VerifiedPasswords(b"key")
    verified.add(SHA256, credential(b"a" * 32), b"secret")
    (mark,) = verified._marks
    assert len(mark) == 32
    assert b"secret" not in mark
    assert b"aaaa" not in mark
