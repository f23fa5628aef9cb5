"""SASL for the scripted broker: users, mechanisms, session lifetimes, and one wrong answer on order."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

from client.fake_broker import FakeBroker
from semel._edge import Edge
from semel_protocol.api import APIS
from semel_protocol.errors import ErrorCode
from semel_protocol.headers import read_request_header
from semel_protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from semel_protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

USER, PASSWORD, TOKEN = "alice", "hush-hush", "t.o.k"
SALT = b"0123456789abcdef"
REFUSED = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no such luck")


class PromptEdge(Edge):
    """Derives keys in the loop: virtual time has no threads."""

    async def derived_key(self, hash_name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        return hashlib.pbkdf2_hmac(hash_name, password, salt, iterations)


class SaslBroker(FakeBroker):
    """Serves nothing but SASL until a connection is authenticated, and nothing else while it authenticates again.

    tampered: changes each message of the broker before it is sent. lifetime_ms: of each session. steps: what clients
    asked, in order. logins: those that succeeded. outcome: the answer to every SaslAuthenticate.
    """

    def __init__(self, *mechanisms: str) -> None:
        super().__init__()
        self.mechanisms = list(mechanisms)
        self.lifetime_ms = 0
        self.tampered: Callable[[bytes], bytes] = lambda message: message
        self.password = PASSWORD
        self.steps: list[str] = []
        self.logins = 0
        self.intruders: list[str] = []
        self.outcome: SaslAuthenticateResponse | None = None
        self._exchanges: dict[Any, Any] = {}
        self.versions |= {17: (0, 1), 36: (0, 2)}
        self.answers[17] = self._handshake
        self.answers[36] = self._authenticate

    async def __aexit__(self, *details: object) -> None:
        await super().__aexit__(*details)
        assert not self.intruders, "requests while their connections were not authenticated"

    async def _handle(self, frame: bytes, writer: asyncio.StreamWriter) -> bool:
        key = read_request_header(frame).api_key
        if key not in (17, 18, 36):
            self.steps.append(APIS[key].name)
            if self._exchanges.get(asyncio.current_task()) != "done":
                self.intruders.append(APIS[key].name)
                return False
        return await super()._handle(frame, writer)

    async def _handshake(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        self.steps.append("handshake")
        if request.mechanism not in self.mechanisms:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM if self.mechanisms else ErrorCode.ILLEGAL_SASL_STATE
            return SaslHandshakeResponse(error_code=code, mechanisms=self.mechanisms)
        exchange = {"PLAIN": self._plain, "OAUTHBEARER": self._oauth}.get(request.mechanism)
        self._exchanges[asyncio.current_task()] = exchange or ScramServer(request.mechanism, self.password).answer
        return SaslHandshakeResponse(mechanisms=self.mechanisms)

    async def _authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        self.steps.append("authenticate")
        if self.outcome is not None:
            return self.outcome
        exchange = self._exchanges[asyncio.current_task()]
        message, is_complete = exchange(request.auth_bytes)
        if message is None:
            return REFUSED
        answer = SaslAuthenticateResponse(auth_bytes=self.tampered(message))
        if is_complete:
            self._exchanges[asyncio.current_task()] = "done"
            answer.session_lifetime_ms = self.lifetime_ms
            self.logins += 1
        return answer

    def _plain(self, message: bytes) -> tuple[bytes | None, bool]:
        return (b"", True) if message == f"\0{USER}\0{self.password}".encode() else (None, False)

    def _oauth(self, message: bytes) -> tuple[bytes | None, bool]:
        if message == b"\x01":
            return None, False
        good = message.startswith(b"n,,\x01auth=Bearer " + TOKEN.encode() + b"\x01") and message.endswith(b"\x01\x01")
        return (b"", True) if good else (b'{"status":"invalid_token"}', False)


class ScramServer:
    """The broker's side, by the formulas of RFC 5802."""

    def __init__(self, mechanism: str, password: str) -> None:
        self._hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self._salted = hashlib.pbkdf2_hmac(self._hash, password.encode(), SALT, 4096)
        self._said = ""

    def answer(self, message: bytes) -> tuple[bytes | None, bool]:
        text = message.decode()
        if not self._said:
            bare = text.removeprefix("n,,")
            assert bare.startswith(f"n={USER},r=")
            challenge = f"r={bare.split('r=')[1]}server,s={base64.b64encode(SALT).decode()},i=4096"
            self._said = f"{bare},{challenge}"
            return challenge.encode(), False
        without, _, proof = text.partition(",p=")
        signed = f"{self._said},{without}".encode()
        key = self._hmac(self._salted, b"Client Key")
        mask = self._hmac(hashlib.new(self._hash, key).digest(), signed)
        if bytes(a ^ b for a, b in zip(base64.b64decode(proof), mask, strict=True)) != key:
            return None, False
        signature = self._hmac(self._hmac(self._salted, b"Server Key"), signed)
        return b"v=" + base64.b64encode(signature), True

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)
