"""The table of states, and any sequence of requests before authentication: none reaches a handler."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from broker.authorization.samples import sample
from broker.wire import EventLog
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.answers import CloseConnectionError, RequestOrder
from semel_broker.config.limits import Limits
from semel_broker.config.loading import load
from semel_broker.counters.counters import Counters
from semel_broker.counters.requests import ApiCounters
from semel_broker.handlers import HANDLERS
from semel_broker.net.dispatch import Dispatcher, Peer
from semel_broker.security.sasl.mechanism import AuthenticationFailed
from semel_broker.security.sasl.session import SaslListener, SaslSession
from semel_broker.security.sasl.states import ALLOWED, NEXT, Kind, SaslState, kind_of
from semel_protocol.api import APIS, Api
from semel_protocol.headers import encode_request_frame
from semel_protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from semel_protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest

BEFORE = frozenset(SaslState) - {SaslState.AUTHENTICATED, SaslState.REAUTHENTICATION}


class RefusingMechanism:
    """A mechanism that takes two tokens and then refuses. The client proves nothing."""

    user = "mallory"
    is_complete = False
    expires_ms = None

    def __init__(self) -> None:
        self._tokens = 0

    async def evaluate(self, token: bytes) -> bytes:
        self._tokens += 1
        if self._tokens > 2:
            raise AuthenticationFailed("wrong_password", "do")
        return b"more"


def session() -> SaslSession:
    made = SaslSession(
        SaslListener(
            name="SASL_PLAINTEXT",
            protocol="SASL_PLAINTEXT",
            mechanisms={"PLAIN": RefusingMechanism},
            max_reauth_ms=0,
            failed_delay_ms=0,
            token_bytes_max=1_000,
            limits=Limits(),
            log=EventLog(),
            now_s=lambda: 0.0,
            now_ms=lambda: 0,
        )
    )
    made.opened("127.0.0.1", 1)
    return made


def test_every_state_is_in_both_tables() -> None:
    assert set(ALLOWED) == set(NEXT) == set(SaslState)


def test_only_sasl_and_api_versions_are_allowed_before_authentication() -> None:
    assert {kind for state in BEFORE for kind in ALLOWED[state]} == {
        Kind.API_VERSIONS,
        Kind.HANDSHAKE_V0,
        Kind.HANDSHAKE,
        Kind.AUTHENTICATE,
    }
    assert all(Kind.OTHER not in ALLOWED[state] for state in SaslState if state is not SaslState.AUTHENTICATED)


def test_only_api_versions_and_sasl_have_a_kind_of_their_own() -> None:
    assert {key for key in APIS if kind_of(key, 0) is not Kind.OTHER} == {17, 18, 36}


def test_a_connection_is_authenticated_after_tokens_alone() -> None:
    assert {state for state, after in NEXT.items() if SaslState.AUTHENTICATED in after} == {
        SaslState.TOKENS,
        SaslState.RAW_TOKENS,
        SaslState.REAUTHENTICATION,
    }
    assert NEXT[SaslState.REFUSED] == ()


async def run(dispatcher: Dispatcher, frame: bytes, peer: Peer) -> bool:
    """Whether the connection stays open."""
    try:
        answer = dispatcher.start(bytearray(frame), peer, RequestOrder(), ApiCounters())
        if not isinstance(answer, list):
            await answer
    except CloseConnectionError:
        return False
    return True


def request(api: Api, version: int, body: bytes) -> bytes:
    return struct.pack(">hhih", api.key, version, 1, -1) + (b"\0" if api.is_flexible(version) else b"") + body


SASL = st.sampled_from(
    [
        b"".join(encode_request_frame(APIS[17], version, 1, None, SaslHandshakeRequest(mechanism=name)))[4:]
        for version in (0, 1)
        for name in ("PLAIN", "OTHER")
    ]
    + [
        b"".join(encode_request_frame(APIS[36], version, 1, None, SaslAuthenticateRequest(auth_bytes=b"x")))[4:]
        for version in (0, 1, 2)
    ]
)
REQUESTS = st.builds(request, st.sampled_from(list(APIS.values())), st.integers(-1, 15), st.binary(max_size=30))
WELL_FORMED = st.sampled_from(
    [
        b"".join(encode_request_frame(api, api.advertised[1], 1, None, sample(api.key)))[4:]
        for api in APIS.values()
        if api.advertised is not None and api.key in HANDLERS
    ]
)
FRAMES = st.lists(SASL | WELL_FORMED | REQUESTS | st.binary(max_size=60), max_size=8)


@pytest.fixture(scope="module")
def reached() -> list[int]:
    return []


@pytest.fixture(scope="module")
def dispatcher(reached: list[int]) -> Dispatcher:
    def watched(key: int) -> Any:
        async def handle(request: Any, ctx: Any) -> None:
            reached.append(key)

        return handle

    class NoBroker:
        config = load()
        log = EventLog()
        counters = Counters()
        telemetry = None

    handlers = {key: handler if key in (17, 36) else watched(key) for key, handler in HANDLERS.items()}
    return Dispatcher(NoBroker(), handlers)  # type: ignore[arg-type]


@pytest.mark.proves("re-authentication")
@given(frames=FRAMES)
async def test_no_sequence_of_frames_reaches_a_handler_before_authentication(
    dispatcher: Dispatcher, reached: list[int], frames: list[bytes]
) -> None:
    reached.clear()
    sasl = session()
    peer = Peer(host="127.0.0.1", port=1, sasl=sasl)
    for frame in frames:
        if not await run(dispatcher, frame, peer):
            break
    assert not sasl.is_authenticated
    assert sasl.principal.name == "User:ANONYMOUS"
    assert set(reached) <= {18}, "ApiVersions alone"
