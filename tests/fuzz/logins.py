"""Random bytes at a listener with SASL: frames of logins and of other requests, whole, damaged and in any order."""

from __future__ import annotations

import asyncio
from random import Random

from broker.sasl_login import PASSWORD, ScramLogin
from fuzz.conversations import SERVED, ConversationMaker
from fuzz.fuzzed_broker import FuzzedBroker
from fuzz.mutations import framed, mutate
from semel_broker.security.user_store import puts_of_password
from semel_protocol.api import API_OF
from semel_protocol.headers import encode_request_frame
from semel_protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from semel_protocol.schema import Message

LISTENER = "SASL_PLAINTEXT"
SETTINGS = {
    "listeners": f"PLAINTEXT://127.0.0.1:0,{LISTENER}://127.0.0.1:0",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl_plain_without_tls_enable": "true",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "")
CONNECTIONS = 30
FRAMES = 8
LONGER_THAN_A_LOGIN_S = 60.0


class LoginFuzzer:
    """Connections without a right password. None may be authenticated, reach a handler, or stay for ever."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.target = FuzzedBroker.open(**SETTINGS)
        self._maker = ConversationMaker(self.target, random)

    def run(self) -> int:
        """The number of frames that were tried. Raises AssertionError for a fault."""
        node = self.target.node
        self.target.run(node.broker.users.alter(puts_of_password("alice", PASSWORD, node.broker.world)))
        before = (node.broker.topics.names(), dict(node.broker.feed.image.configs), self.target.node.broker.users.names)
        conversations = [self._frames() for _ in range(CONNECTIONS)]

        async def all_at_once() -> None:
            await asyncio.gather(*map(self._converse, conversations), self.target.other_client.round())

        self.target.run(all_at_once())
        self.target.check()
        assert len(node.server.context.logins) == 0
        assert before == (node.broker.topics.names(), dict(node.broker.feed.image.configs), node.broker.users.names)
        self.target.close()
        return sum(map(len, conversations))

    def _frames(self) -> list[bytes]:
        return [self._frame() for _ in range(self._random.randint(1, FRAMES))]

    def _frame(self) -> bytes:
        random = self._random
        match random.choice(("handshake", "handshake", "token", "token", "raw", "versions", "other")):
            case "handshake":
                data = _encoded(SaslHandshakeRequest(mechanism=random.choice(MECHANISMS)), random.randint(0, 1))
            case "token":
                data = _encoded(SaslAuthenticateRequest(auth_bytes=self._token()), random.randint(0, 2))
            case "raw":
                data = self._token()
            case "versions":
                data = _encoded(ApiVersionsRequest(), random.randint(0, 3))
            case _:
                return random.choice(self._maker.conversation(*random.choice(SERVED)))
        return framed(mutate(data, random) if data and random.random() < 0.3 else data)

    def _token(self) -> bytes:
        random = self._random
        name = random.choice(("alice", "mallory", "a,=\0b"))
        token = random.choice(
            (
                f"\0{name}\0wrong".encode(),
                ScramLogin(name).first(),
                b"c=biws,r=clientnonce,p=" + b"A" * 44,
                random.randbytes(random.randrange(40)),
                b"",
            )
        )
        return mutate(token, random) if token and random.random() < 0.3 else token

    async def _converse(self, frames: list[bytes]) -> None:
        """Send the frames in pieces, and wait until the broker has closed the connection."""
        ended = asyncio.Event()

        class LoginPeer(asyncio.Protocol):
            def connection_lost(self, exc: Exception | None) -> None:
                ended.set()

        port = self.target.node.ports[LISTENER]
        transport, _ = await self.target.loop.create_connection(LoginPeer, "127.0.0.1", port)
        data, at = b"".join(frames), 0
        while at < len(data) and not ended.is_set():
            size = len(data) if self._random.random() < 0.5 else self._random.choice((1, 3, 4, 5, 60, 1000))
            transport.write(data[at : at + size])
            at += size
            if self._random.random() < 0.5:
                await asyncio.sleep(self._random.choice((0, 0.2)))
        async with asyncio.timeout(LONGER_THAN_A_LOGIN_S):
            await ended.wait()
        transport.close()


def _encoded(request: Message, version: int) -> bytes:
    return b"".join(encode_request_frame(API_OF[type(request)], version, 7, "fuzz", request))[4:]
