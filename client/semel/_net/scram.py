"""PURE: the client's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without channel binding.

The client proves that it has the password without sending it, and the broker proves that it has the credentials of the
user. User name and password are taken as UTF-8 and not normalised further (no SASLprep), as Kafka does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN: Final = 4_096
"""RFC 7677, section 4. Fewer would make it cheap to try passwords on what the broker has read."""
ITERATIONS_MAX: Final = 1_000_000
"""About half a second of work. Kafka's brokers have at most 16,384."""
MESSAGE_BYTES_MAX: Final = 8_192
SALT_BYTES_MIN: Final = 4
NO_CHANNEL_BINDING: Final = "n,,"

Derive = Callable[[str, bytes, bytes, int], Awaitable[bytes]]
"""(hash, password, salt, iterations) -> the key of PBKDF2, computed off the event loop."""


class ScramError(Exception):
    """The broker's message is wrong, or asks too much. The text says why."""


class State(Enum):
    START = "nothing is sent"
    NAMED = "the user and the client's nonce are sent"
    PROVED = "the proof is sent"
    COMPLETE = "the broker has proved that it has the credentials"
    FAILED = "one side has refused the other"


NEXT = {
    State.START: (State.NAMED,),
    State.NAMED: (State.PROVED, State.FAILED),
    State.PROVED: (State.COMPLETE, State.FAILED),
    State.COMPLETE: (),
    State.FAILED: (),
}


class ScramClient:
    """One authentication. `nonce`: printable characters without a comma, never used before."""

    def __init__(self, mechanism: str, username: str, password: str, nonce: str, derive: Derive) -> None:
        self.state = State.START
        self._hash = HASHES[mechanism]
        self._user = username.replace("=", "=3D").replace(",", "=2C")
        self._password, self._nonce, self._derive = password.encode(), nonce, derive
        self._server_signature = b""

    def __repr__(self) -> str:
        return f"<ScramClient {self.state.name}>"

    async def respond(self, challenge: bytes) -> bytes | None:
        """The client's next message; None: the exchange is complete. Raises ScramError."""
        try:
            match self.state:
                case State.START:
                    self._move(State.NAMED)
                    return f"{NO_CHANNEL_BINDING}{self._first_bare}".encode()
                case State.NAMED:
                    message = await self._proof(_text(challenge))
                    self._move(State.PROVED)
                    return message
                case State.PROVED:
                    self._check_signature(_text(challenge))
                    self._move(State.COMPLETE)
                    return None
        except ScramError:
            self._move(State.FAILED)
            raise
        raise AssertionError(f"a message in {self.state}")

    @property
    def _first_bare(self) -> str:
        return f"n={self._user},r={self._nonce}"

    def _move(self, state: State) -> None:
        assert state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state

    async def _proof(self, server_first: str) -> bytes:
        """The last message of the client, for the first one of the broker. Raises ScramError."""
        parts = _attributes(server_first, "r", "s", "i")
        nonce, iterations_text = parts["r"], parts["i"]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ScramError("its nonce does not continue the client's: the answer may belong to another exchange")
        salt = _decoded(parts["s"])
        if len(salt) < SALT_BYTES_MIN:
            raise ScramError("its salt is too short")
        is_number = iterations_text.isascii() and iterations_text.isdigit() and len(iterations_text) <= 10
        if not is_number or not ITERATIONS_MIN <= int(iterations_text) <= ITERATIONS_MAX:
            raise ScramError(
                f"it asks for {iterations_text[:20]!r} iterations, and the client accepts {ITERATIONS_MIN} to "
                f"{ITERATIONS_MAX}"
            )
        salted = await self._derive(self._hash, self._password, salt, int(iterations_text))
        without_proof = f"c={base64.b64encode(NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        signed = f"{self._first_bare},{server_first},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        client_signature = self._hmac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, client_signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _check_signature(self, server_final: str) -> None:
        if server_final.startswith("e="):
            raise ScramError(f"it refuses the client: {server_final[2:82]!r}")
        if not hmac.compare_digest(_decoded(_attributes(server_final, "v")["v"]), self._server_signature):
            raise ScramError("its signature is wrong: this peer does not have the credentials of the user")

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)


def _text(message: bytes) -> str:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramError(f"its message has more than {MESSAGE_BYTES_MAX} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("its message is not UTF-8") from None


def _attributes(message: str, *names: str) -> dict[str, str]:
    """The attributes that a message begins with, in this order. Others may follow them. Raises ScramError."""
    parts = message.split(",")
    found = {}
    for name, part in zip(names, parts, strict=False):
        if not part.startswith(f"{name}="):
            break
        found[name] = part[2:]
    if len(found) < len(names) or any(part.startswith("m=") for part in parts):
        raise ScramError("its message does not have the form of RFC 5802, or has an extension that is unknown")
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("its message has a value that is not base64") from None
