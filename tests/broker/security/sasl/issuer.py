"""An issuer of tokens for tests: keys of every type, their JWKS, and tokens that are right or wrong in one way."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import warnings
from functools import cache
from typing import Any

from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000
ISSUER = "https://issuer.example"
AUDIENCE = "semel"
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "aud": AUDIENCE,
    "sub": "alice",
    "exp": NOW_S + 300,
    "nbf": NOW_S - 10,
    "iat": NOW_S - 10,
    "scope": "read write",
}


@cache
def rsa_key(bits: int = 2048) -> RSAKey:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of keys that are too short, which is the point
        return RSAKey.generate_key(bits)


@cache
def ec_key(curve: str = "P-256") -> ECKey:
    return ECKey.generate_key(curve)  # type: ignore[arg-type]


@cache
def ed25519_key() -> OKPKey:
    return OKPKey.generate_key("Ed25519")


def public(key: Key, kid: str = "k1", **fields: Any) -> dict[str, Any]:
    return {**key.as_dict(private=False), "kid": kid, **fields}


def jwks(*keys: Any) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def encoded(document: Any) -> str:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def token(
    key: Key | None = None, algorithm: str = "RS256", *, header: dict[str, Any] | None = None, **claims: Any
) -> str:
    """A token of these claims over CLAIMS; None removes one. `header`: over {"alg", "kid"}."""
    payload = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    said = {"alg": algorithm, "kid": "k1", **(header or {})}
    signed = f"{encoded({name: value for name, value in said.items() if value is not None})}.{encoded(payload)}"
    signer = jws.JWSRegistry.algorithms["Ed25519" if algorithm == "EdDSA" else algorithm]
    return f"{signed}.{encoded(signer.sign(signed.encode(), key or rsa_key()))}"


def hmac_token(secret: bytes, **header: Any) -> str:
    """A token signed with HS256."""
    signed = f"{encoded({'alg': 'HS256', 'kid': 'k1', **header})}.{encoded(CLAIMS)}"
    return f"{signed}.{encoded(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"
