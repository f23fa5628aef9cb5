"""SCRAM: the exchanges of RFC 5802 and RFC 7677, and every invalid message of a broker."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel._net import scram
from semel._net.scram import ITERATIONS_MAX, ScramClient, ScramError, State


async def derive(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(name, password, salt, iterations)


NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = f"n,,n=user,r={NONCE}".encode()
WHOLE_NONCE = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = f"r={WHOLE_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
PROOF = f"c=biws,r={WHOLE_NONCE},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(mechanism: str = "SCRAM-SHA-256", user: str = "user", nonce: str = NONCE) -> ScramClient:
    return ScramClient(mechanism, user, "pencil", nonce, derive)


async def named() -> ScramClient:
    made = client()
    assert await made.respond(b"") == FIRST
    return made


async def proved() -> ScramClient:
    made = await named()
    assert await made.respond(CHALLENGE) == PROOF
    return made


async def test_the_exchange_of_rfc_7677() -> None:
    made = await proved()
    assert await made.respond(SIGNATURE) is None
    assert made.state is State.COMPLETE


async def test_the_exchange_of_rfc_5802(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scram.HASHES, "SCRAM-SHA-1", "sha1")
    made = client("SCRAM-SHA-1", nonce="fyko+d2lbbFgONRv9qkxdawL")
    assert await made.respond(b"") == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    challenge = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    proof = b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    assert await made.respond(challenge) == proof
    assert await made.respond(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=") is None


async def test_sha_512_proves_what_the_formulas_of_rfc_5802_say() -> None:
    made = client("SCRAM-SHA-512")
    first = await made.respond(b"")
    assert first is not None
    proof = await made.respond(CHALLENGE)
    assert proof is not None
    without, _, given_proof = proof.decode().partition(",p=")
    signed = f"{first.decode()[3:]},{CHALLENGE.decode()},{without}".encode()
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha512")
    mask = hmac.digest(hashlib.sha512(client_key).digest(), signed, "sha512")
    assert bytes(a ^ b for a, b in zip(base64.b64decode(given_proof), mask, strict=True)) == client_key
    signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha512"), signed, "sha512")
    assert await made.respond(b"v=" + base64.b64encode(signature)) is None


async def test_commas_and_equals_signs_of_a_name_are_escaped() -> None:
    assert await client(user="a=b,c").respond(b"") == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()


@pytest.mark.parametrize(
    ("challenge", "said"),
    [
        (b"", "form of RFC 5802"),
        (b"\xff", "not UTF-8"),
        (b"r=" + b"x" * 9_000, "more than 8192 bytes"),
        (CHALLENGE.replace(b"r=rO", b"r=xx"), "nonce does not continue"),
        (f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode(), "nonce does not continue"),
        (b"m=x," + CHALLENGE, "form of RFC 5802"),
        (CHALLENGE + b",m=x", "extension that is unknown"),
        (CHALLENGE.replace(b",s=", b",x="), "form of RFC 5802"),
        (CHALLENGE.replace(b"W22Z", b"W2 Z"), "not base64"),
        (CHALLENGE.replace(b"W22ZaJ0SNY7soEsUEjb6gQ==", b""), "salt is too short"),
        (CHALLENGE.replace(b"i=4096", b"i=4095"), "asks for '4095' iterations"),
        (CHALLENGE.replace(b"i=4096", b"i=1"), "asks for '1' iterations"),
        (CHALLENGE.replace(b"i=4096", b"i=1000000000"), "asks for '1000000000' iterations"),
        (CHALLENGE.replace(b"i=4096", f"i={ITERATIONS_MAX + 1}".encode()), "and the client accepts 4096 to 1000000"),
        (CHALLENGE.replace(b"i=4096", b"i=" + b"9" * 5_000), "iterations"),
        (CHALLENGE.replace(b"i=4096", b"i=-4096"), "iterations"),
        (CHALLENGE.replace(b"i=4096", "i=٤٠٩٦".encode()), "iterations"),
    ],
)
async def test_a_challenge_that_is_wrong_or_asks_too_much_is_refused_before_any_work(
    challenge: bytes, said: str
) -> None:
    async def never(*_: object) -> bytes:
        raise AssertionError("PBKDF2 has run")

    made = ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE, never)
    await made.respond(b"")
    with pytest.raises(ScramError, match=said):
        await made.respond(challenge)
    assert made.state is State.FAILED


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "form of RFC 5802"),
        (b"v=", "signature is wrong"),
        (b"v=AAAA", "signature is wrong"),
        (b"v=!", "not base64"),
        (SIGNATURE.replace(b"6rri", b"6rrj"), "signature is wrong"),
        (PROOF, "form of RFC 5802"),
        (b"e=invalid-proof", "refuses the client: 'invalid-proof'"),
    ],
)
async def test_a_broker_that_does_not_have_the_credentials_is_refused(answer: bytes, said: str) -> None:
    made = await proved()
    with pytest.raises(ScramError, match=said):
        await made.respond(answer)
    assert made.state is State.FAILED


@given(st.binary(max_size=200), st.booleans())
async def test_no_other_bytes_complete_the_exchange(answer: bytes, is_last: bool) -> None:
    made = await (proved() if is_last else named())
    if answer in (CHALLENGE, SIGNATURE):
        return
    with pytest.raises(ScramError):
        await made.respond(answer)


async def test_a_repr_has_no_secret() -> None:
    assert "pencil" not in repr(await proved())
