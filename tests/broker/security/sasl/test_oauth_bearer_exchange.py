"""OAUTHBEARER on the wire: the first message, the refusal as JSON, its acknowledgement, the end."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.security.sasl.oauth_bearer import CheckedToken, TokenRefusedError
from semel_broker.security.sasl.oauth_bearer_exchange import (
    MESSAGE_BYTES_MAX,
    OAuthBearerExchange,
    parse_first_message,
)

ALICE = CheckedToken("alice", 1_000)


async def check(token: str) -> CheckedToken:
    if token != "good":
        raise TokenRefusedError("expired", "the token expired 3 s ago", "fetch a new one")
    return ALICE


async def test_a_good_token_completes_the_exchange() -> None:
    exchange = OAuthBearerExchange(check)
    assert not exchange.is_complete
    assert await exchange.evaluate(b"n,,\x01auth=Bearer good\x01\x01") == b""
    assert exchange.is_complete
    assert (exchange.user, exchange.expires_ms) == ("alice", 1_000)


async def test_a_refused_token_gives_json_without_the_reason_and_fails_at_the_acknowledgement() -> None:
    exchange = OAuthBearerExchange(check)
    answer = await exchange.evaluate(b"n,,\x01auth=Bearer bad\x01\x01")
    assert json.loads(answer) == {"status": "invalid_token"}
    assert not exchange.is_complete
    with pytest.raises(TokenRefusedError, match="expired 3 s ago"):
        await exchange.evaluate(b"\x01")
    assert not exchange.is_complete


async def test_a_good_token_after_a_refused_one_does_not_authenticate() -> None:
    exchange = OAuthBearerExchange(check)
    await exchange.evaluate(b"n,,\x01auth=Bearer bad\x01\x01")
    with pytest.raises(TokenRefusedError):
        await exchange.evaluate(b"n,,\x01auth=Bearer good\x01\x01")
    assert not exchange.is_complete


async def test_a_client_may_name_its_own_principal_and_no_other() -> None:
    exchange = OAuthBearerExchange(check)
    await exchange.evaluate(b"n,a=alice,\x01auth=Bearer good\x01\x01")
    assert exchange.is_complete
    exchange = OAuthBearerExchange(check)
    assert b"invalid_token" in await exchange.evaluate(b"n,a=bob,\x01auth=Bearer good\x01\x01")
    with pytest.raises(TokenRefusedError) as caught:
        await exchange.evaluate(b"\x01")
    assert caught.value.reason == "other_principal"


def test_extensions_and_an_escaped_name_are_read() -> None:
    first = parse_first_message(b"n,a=a=2Cb=3D2C,\x01host=h\x01auth=bearer  a.b-c\x01traceId=x y\x01\x01")
    assert (first.token, first.authzid) == ("a.b-c", "a,b=2C")
    assert first.extensions == {"host": "h", "traceId": "x y"}
    assert "a.b-c" not in repr(first)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer good\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer good\x01a1=b\x01\x01",
        b"n,,\x01auth=Bearer good\x01a=\x00\x01\x01",
        b"n,,\x01auth=Bearer good\x01\x01x",
        b"n,a=,\x01auth=Bearer good\x01\x01",
        b"n,a=b=c,\x01auth=Bearer good\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer good\xff\x01\x01",
        b"n,,\x01"
        + b"".join(b"%s=1\x01" % bytes([65 + n // 26, 65 + n % 26]) for n in range(40))
        + b"auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer " + b"x" * MESSAGE_BYTES_MAX + b"\x01\x01",
    ],
)
async def test_a_malformed_first_message_fails_at_once(message: bytes) -> None:
    exchange = OAuthBearerExchange(check)
    with pytest.raises(TokenRefusedError) as caught:
        await exchange.evaluate(message)
    assert caught.value.reason == "malformed_message"
    assert not exchange.is_complete


@given(st.binary(max_size=100) | st.binary(max_size=60).map(lambda text: b"n,,\x01auth=Bearer " + text + b"\x01\x01"))
async def test_no_bytes_but_those_of_the_token_authenticate(message: bytes) -> None:
    exchange = OAuthBearerExchange(check)
    try:
        await exchange.evaluate(message)
    except TokenRefusedError:
        pass
    assert not exchange.is_complete or message.endswith(b" good\x01\x01")
