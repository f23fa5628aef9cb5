"""PURE: the server's side of SCRAM-SHA-256 and -512 (RFC 5802, RFC 7677, KIP-84), without channel binding.

    client   n,,n=alice,r=<client nonce>
    server   r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client   c=biws,r=<both nonces>,p=<proof>
    server   v=<server signature>

An unknown user goes the same steps with a credential that no password fits. The exchange is complete only after the
proof has been checked.

`scramp` has a server, too, but speaks another dialect than Kafka: it refuses an authorization id, extensions and salts
below 12 bytes, and applies SASLprep to names. It also needs asn1crypto.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from hmac import compare_digest
from typing import Final

from semel_protocol.scram import ScramMechanism, digest, mac

from semel_broker.cluster.records import ScramCredential
from semel_broker.security.sasl.mechanism import AuthenticationFailed

NAME: Final = r"((?:[^=,\0]|=2C|=3D)+)"
NONCE: Final = r"([\x21-\x2b\x2d-\x7e]+)"
EXTENSIONS: Final = r"((?:,[A-Za-z]=[^,\0]*)*)"
FIRST: Final = re.compile(rf"([ny],(?:a={NAME})?,)(n={NAME},r={NONCE}{EXTENSIONS})")
FINAL: Final = re.compile(rf"(c=([A-Za-z0-9+/=]+),r={NONCE}{EXTENSIONS}),p=([A-Za-z0-9+/=]+)")

MALFORMED: Final = "check the client's library: it does not send SCRAM as RFC 5802 has it"
NONCE_REPEATED: Final = "the client sends its nonce twice: use librdkafka 2.6.1 or later, or another mechanism"
REPLAYED: Final = "a message was changed or repeated on its way; use SASL_SSL"
NOT_PROVED: Final = "give the client the user's password, or change it: semel user password NAME"
UNKNOWN_USER: Final = "correct the client's user name, or make the user: semel user create NAME"

FindCredential = Callable[[str, ScramMechanism], tuple[ScramCredential, bool]]
"""The credential of a user, and whether the user has it: an unknown user gets one that no password fits."""


class ScramExchange:
    """One authentication. `nonce`: fresh random text of the server. See `Mechanism`."""

    expires_ms = None

    def __init__(self, mechanism: ScramMechanism, find: FindCredential, nonce: str) -> None:
        self._mechanism, self._find, self._nonce = mechanism, find, nonce
        self._header = self._first_bare = self._server_first = ""
        self._credential: ScramCredential | None = None
        self._is_known = False
        self.user = ""
        self.is_complete = False

    async def evaluate(self, token: bytes) -> bytes:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise AuthenticationFailed("malformed_token", MALFORMED) from None
        assert not self.is_complete, "a session asks no more"
        return (self._first(text) if self._credential is None else self._final(text)).encode()

    def _first(self, text: str) -> str:
        match = FIRST.fullmatch(text)
        if match is None:
            raise AuthenticationFailed("malformed_token", MALFORMED)
        self._header, authorization, self._first_bare, name, nonce, _ = match.groups()
        self.user = _unescaped(name)
        if authorization is not None and _unescaped(authorization) != self.user:
            raise AuthenticationFailed("other_authorization_id", "let the client leave its authorization id empty")
        self._credential, self._is_known = self._find(self.user, self._mechanism)
        self._nonce = nonce + self._nonce
        salt = b64encode(self._credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        return self._server_first

    def _final(self, text: str) -> str:
        match = FINAL.fullmatch(text)
        if match is None:
            raise AuthenticationFailed("malformed_token", MALFORMED)
        without_proof, binding, nonce, _, proof = match.groups()
        if _decoded(binding) != self._header.encode():
            raise AuthenticationFailed("wrong_channel_binding", "a message was changed on its way; use SASL_SSL")
        if not compare_digest(nonce.encode(), self._nonce.encode()):
            raise AuthenticationFailed("wrong_nonce", NONCE_REPEATED if nonce.endswith(self._nonce) else REPLAYED)
        assert self._credential is not None, "_first has found it"
        message = f"{self._first_bare},{self._server_first},{without_proof}".encode()
        is_proved = self._is_proof(_decoded(proof), message, self._credential)
        if not self._is_known:
            raise AuthenticationFailed("unknown_user", UNKNOWN_USER)
        if not is_proved:
            raise AuthenticationFailed("wrong_password", NOT_PROVED)
        self.is_complete = True
        signature = mac(self._mechanism, self._credential.server_key, message)
        return f"v={b64encode(signature).decode()}"

    def _is_proof(self, proof: bytes, message: bytes, credential: ScramCredential) -> bool:
        if len(proof) != self._mechanism.digest_bytes:
            raise AuthenticationFailed("malformed_token", MALFORMED)
        signature = mac(self._mechanism, credential.stored_key, message)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        return compare_digest(digest(self._mechanism, client_key), credential.stored_key)


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error:
        raise AuthenticationFailed("malformed_token", MALFORMED) from None
