"""Logins over a `Wire`: the client's side of SCRAM and PLAIN, which a test can change."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from broker.harness import Harness, Wire
from semel_broker.security.user_store import put
from semel_protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from semel_protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from semel_protocol.scram import ITERATIONS_MIN, ScramMechanism, digest, mac, salted_password

Stretch = Callable[[ScramMechanism, bytes, bytes, int], bytes]
PASSWORD = "a kettle, and a teapot"


async def make_user(
    broker: Harness, name: str, password: str = PASSWORD, *mechanisms: ScramMechanism, iterations: int = ITERATIONS_MIN
) -> None:
    assert broker.node is not None
    changes = []
    for mechanism in mechanisms or tuple(ScramMechanism):
        salt = b"0123456789abcdef"
        salted = salted_password(mechanism, password.encode(), salt, iterations)
        changes.append(put(name, mechanism, iterations, salt, salted))
    await broker.node.broker.users.alter(changes)


class ScramLogin:
    """The client's side of SCRAM. A test may change its fields between the steps."""

    stretch: Stretch = staticmethod(salted_password)

    def __init__(self, name: str = "alice", password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256") -> None:
        self.mechanism = ScramMechanism.of(mechanism)
        self.password = password
        self.header = "n,,"
        self.nonce = "clientnonce"
        self.bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={self.nonce}"
        self.server_first = ""

    def first(self) -> bytes:
        return (self.header + self.bare).encode()

    def final(self, server_first: bytes) -> bytes:
        self.server_first = server_first.decode()
        fields = dict(part.split("=", 1) for part in self.server_first.split(","))
        salted = self.stretch(self.mechanism, self.password.encode(), b64decode(fields["s"]), int(fields["i"]))
        return self.proved(salted, f"c={b64encode(self.header.encode()).decode()},r={fields['r']}")

    def proved(self, salted: bytes, without_proof: str) -> bytes:
        client_key = mac(self.mechanism, salted, b"Client Key")
        self.message = f"{self.bare},{self.server_first},{without_proof}".encode()
        signature = mac(self.mechanism, digest(self.mechanism, client_key), self.message)
        self.signature = mac(self.mechanism, mac(self.mechanism, salted, b"Server Key"), self.message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={b64encode(proof).decode()}".encode()


async def handshake(wire: Wire, mechanism: str = "SCRAM-SHA-256", version: int = 1) -> Any:
    return await wire.call(SaslHandshakeRequest(mechanism=mechanism), version)


async def authenticate(wire: Wire, token: bytes, version: int = 2) -> Any:
    return await wire.call(SaslAuthenticateRequest(auth_bytes=token), version)


async def log_in(
    wire: Wire, name: str = "alice", password: str = PASSWORD, mechanism: str = "SCRAM-SHA-256", version: int = 2
) -> Any:
    """All steps; returns the last response."""
    answer = await handshake(wire, mechanism)
    if answer.error_code:
        return answer
    if mechanism == "PLAIN":
        return await authenticate(wire, f"\0{name}\0{password}".encode(), version)
    login = ScramLogin(name, password, mechanism)
    answer = await authenticate(wire, login.first(), version)
    if answer.error_code:
        return answer
    answer = await authenticate(wire, login.final(answer.auth_bytes), version)
    if not answer.error_code:
        assert answer.auth_bytes == b"v=" + b64encode(login.signature), "the broker has proved that it knows the user"
    return answer
