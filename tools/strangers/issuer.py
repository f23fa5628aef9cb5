"""EDGE: an issuer of tokens (JWT) for OAUTHBEARER: its keys in a file that brokers read, and tokens for clients."""

from __future__ import annotations

import json
import time
from pathlib import Path

KEYS = "jwks.json"
ISSUER = "https://issuer.example"
AUDIENCE = "semel"
LIFE_S = 3600
_SECRET = "issuer.key.json"
_KEY_ID = "k1"


def make(folder: Path) -> None:
    """Make a key; write its public half for brokers, and the whole for `token`."""
    from joserfc.jwk import RSAKey  # imported here: it comes with semel[oauth], and few suites need it

    key = RSAKey.generate_key(2048)
    (folder / _SECRET).write_text(json.dumps(key.as_dict(private=True)))
    public = {**key.as_dict(private=False), "kid": _KEY_ID, "use": "sig", "alg": "RS256"}
    (folder / KEYS).write_text(json.dumps({"keys": [public]}))


def token(folder: Path, subject: str, audience: str = AUDIENCE, life_s: float = LIFE_S) -> str:
    """Return a token of the issuer whose files are in this folder."""
    from joserfc import jwt
    from joserfc.jwk import RSAKey

    key = RSAKey.import_key(json.loads((folder / _SECRET).read_text()))
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": audience, "sub": subject, "iat": now, "exp": now + int(life_s), "scope": "all"}
    return jwt.encode({"alg": "RS256", "kid": _KEY_ID}, claims, key)
