"""PURE: the public keys of an issuer of tokens, from its JWKS (RFC 7517).

A key that must not check tokens is left out, and `ignored` says why: a private or symmetric key, a weak one, one
without an id, one of two with the same id. A private key in a JWKS is public: the issuer has to replace it.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from typing import Any, Final

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from semel_broker.world import JWKS_BYTES_MAX, JwksError

KEYS_MAX: Final = 100
"""Keys in one JWKS."""
RSA_BITS_MIN: Final = 2048
RSA_BITS_MAX: Final = 8192
"""The work to check a signature grows with the key."""
RSA_EXPONENT_MIN: Final = 65_537
RSA_EXPONENT_MAX: Final = (1 << 32) - 1

RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
EC_ALGORITHMS: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
ED25519_ALGORITHMS: Final = frozenset({"EdDSA", "Ed25519"})
"""RFC 9864 renames EdDSA."""
SECRET_FIELDS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
"""Fields of a JWK with secrets: private keys of RSA, EC and OKP, symmetric keys."""

_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")


class PublicKey(msgspec.Struct, frozen=True):
    """A key, and the algorithms whose signatures it checks."""

    key: Key
    algorithms: frozenset[str]


class KeySet(msgspec.Struct, frozen=True):
    """The usable keys by id. `ignored`: a sentence for each other one."""

    keys: dict[str, PublicKey]
    ignored: tuple[str, ...] = ()


class _IgnoredKeyError(Exception):
    """The key is not used; the text says why."""


def parse_jwks(text: bytes) -> KeySet:
    """The keys of a JWKS. Raises JwksError."""
    if len(text) > JWKS_BYTES_MAX:
        raise JwksError(f"the JWKS is larger than {JWKS_BYTES_MAX} bytes")
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise JwksError("the JWKS is not JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise JwksError("the JWKS has no list `keys`")
    if len(listed) > KEYS_MAX:
        raise JwksError(f"the JWKS has more than {KEYS_MAX} keys")
    keys: dict[str, PublicKey] = {}
    ignored = []
    ids = Counter(jwk.get("kid") for jwk in listed if isinstance(jwk, dict) and isinstance(jwk.get("kid"), str))
    for position, jwk in enumerate(listed):
        kid = jwk.get("kid") if isinstance(jwk, dict) else None
        try:
            if not isinstance(kid, str) or not kid:
                raise _IgnoredKeyError("it has no id (kid)")
            if ids[kid] > 1:
                raise _IgnoredKeyError("another key has the same id")
            keys[kid] = _public_key(jwk)
        except _IgnoredKeyError as why:
            ignored.append(f"key {kid!r} at position {position} is not used: {why}")
    if not keys:
        raise JwksError("; ".join(["the JWKS has no usable key", *ignored]))
    return KeySet(keys, tuple(ignored))


def _public_key(jwk: dict[str, Any]) -> PublicKey:
    """Raise _IgnoredKeyError."""
    if jwk.get("kty") == "oct":
        raise _IgnoredKeyError("it is a symmetric key, which everyone who reads the JWKS can sign with")
    if not SECRET_FIELDS.isdisjoint(jwk):
        raise _IgnoredKeyError("it is a private key: everyone who reads the JWKS can sign with it; replace it")
    if jwk.get("use", "sig") != "sig":
        raise _IgnoredKeyError("it is not for signatures (use)")
    operations = jwk.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise _IgnoredKeyError("it is not for checking signatures (key_ops)")
    try:
        key, algorithms = _imported(jwk)
    except (JoseError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise _IgnoredKeyError(f"it cannot be read ({type(error).__name__})") from None
    algorithm = jwk.get("alg")
    if algorithm is not None:
        algorithms &= {algorithm} if isinstance(algorithm, str) else set()
    if not algorithms:
        raise _IgnoredKeyError("its algorithm (alg) does not fit its type, or is not allowed")
    return PublicKey(key, algorithms)


def _imported(jwk: dict[str, Any]) -> tuple[Key, frozenset[str]]:
    """The key and the algorithms of its type. Raises _IgnoredKeyError, and errors of the library."""
    # The other fields of the JWK are for the issuer; the library would check some of them in its own way.
    match jwk.get("kty"):
        case "RSA":
            _check_rsa(jwk)
            return RSAKey.import_key({name: jwk[name] for name in ("kty", "n", "e")}), RSA_ALGORITHMS
        case "EC" if jwk.get("crv") in EC_ALGORITHMS:
            own = {name: jwk[name] for name in ("kty", "crv", "x", "y")}
            key = ECKey.import_key(own)
            _ = key.public_key  # the library checks here that the point is on the curve
            return key, frozenset({EC_ALGORITHMS[jwk["crv"]]})
        case "OKP" if jwk.get("crv") == "Ed25519":
            return OKPKey.import_key({name: jwk[name] for name in ("kty", "crv", "x")}), ED25519_ALGORITHMS
    raise _IgnoredKeyError("its type is neither RSA, nor EC with P-256, P-384 or P-521, nor OKP with Ed25519")


def _check_rsa(jwk: dict[str, Any]) -> None:
    """Raise _IgnoredKeyError for a key that is too short, too long or have an unsafe exponent."""
    modulus, exponent = (_number(jwk.get(name)) for name in ("n", "e"))
    if modulus.bit_length() < RSA_BITS_MIN:
        raise _IgnoredKeyError(f"it has {modulus.bit_length()} bits, and needs {RSA_BITS_MIN}")
    if modulus.bit_length() > RSA_BITS_MAX:
        raise _IgnoredKeyError(f"it has more than {RSA_BITS_MAX} bits")
    if not RSA_EXPONENT_MIN <= exponent <= RSA_EXPONENT_MAX or not exponent & 1:
        raise _IgnoredKeyError(f"its exponent is not an odd number from {RSA_EXPONENT_MIN} to {RSA_EXPONENT_MAX}")


def _number(text: object) -> int:
    if not isinstance(text, str):
        raise _IgnoredKeyError("it cannot be read")
    return int.from_bytes(decoded(text), "big")


def decoded(text: str) -> bytes:
    """base64url without padding (RFC 7515). Raises ValueError."""
    if not _BASE64URL.fullmatch(text):
        raise ValueError("not base64url")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
