"""The exchanges of SCRAM and PLAIN by themselves: RFC 7677's example, and every part of a message that is checked."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable

import pytest
from broker.sasl_login import PASSWORD, ScramLogin
from hypothesis import given
from hypothesis import strategies as st
from semel_broker.cluster.records import ScramCredential
from semel_broker.security.sasl.mechanism import AuthenticationFailed
from semel_broker.security.sasl.plain import PlainExchange, Stretch, VerifiedPasswords
from semel_broker.security.sasl.scram import ScramExchange
from semel_broker.world import stretch_here
from semel_protocol.scram import ScramMechanism, keys_of, salted_password

SHA256 = ScramMechanism.SCRAM_SHA_256
SALT = b"0123456789abcdef"


def credential(password: str = PASSWORD, salt: bytes = SALT) -> ScramCredential:
    return ScramCredential(salt, 4096, *keys_of(SHA256, salted_password(SHA256, password.encode(), salt, 4096)))


KNOWN = credential()
UNKNOWN = ScramCredential(SALT, 4096, bytes(32), bytes(32))


def find(name: str, mechanism: ScramMechanism = SHA256) -> tuple[ScramCredential, bool]:
    return (KNOWN, True) if name == "alice" else (UNKNOWN, False)


def exchange(nonce: str = "servernonce") -> ScramExchange:
    return ScramExchange(SHA256, find, nonce)


def plain_exchange(stretch: Stretch = stretch_here, verified: VerifiedPasswords | None = None) -> PlainExchange:
    return PlainExchange(
        lambda name: (SHA256, *find(name)), stretch, VerifiedPasswords(b"key") if verified is None else verified
    )


async def reason(spoil: Callable[[ScramLogin, bytes], bytes], login: ScramLogin | None = None) -> str:
    """The reason why a login with a spoilt last message fails."""
    server, login = exchange(), login or ScramLogin()
    final = spoil(login, await server.evaluate(login.first()))
    with pytest.raises(AuthenticationFailed) as caught:
        await server.evaluate(final)
    assert not server.is_complete
    return caught.value.reason


async def test_the_example_of_rfc_7677() -> None:
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    server = ScramExchange(
        SHA256, lambda name, _: (credential("pencil", salt), name == "user"), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    assert await server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert not server.is_complete
    assert (
        await server.evaluate(
            b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        )
        == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    )
    assert (server.is_complete, server.user) == (True, "user")


@pytest.mark.parametrize("first", ["n,,{}", "y,,{}", "n,a=alice,{}", "n,,{},t=true"])
async def test_dialects_of_the_first_message_are_understood(first: str) -> None:
    server, login = exchange(), ScramLogin()
    login.header = first.partition("{")[0]
    login.bare += first.partition("}")[2]
    await server.evaluate(login.final(await server.evaluate(login.first())))
    assert server.is_complete


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"", "malformed_token"),
        (b"\xff", "malformed_token"),
        (b"n,,n=alice", "malformed_token"),
        (b"n,,n=,r=abc", "malformed_token"),
        (b"n,,n=alice,r=", "malformed_token"),
        (b"n,,n=al=ice,r=abc", "malformed_token"),
        (b"n,,m=x,n=alice,r=abc", "malformed_token"),
        (b"p=tls-unique,,n=alice,r=abc", "malformed_token"),
        (b"n,,n=alice,r=abc\0", "malformed_token"),
        (b"n,a=root,n=alice,r=abc", "other_authorization_id"),
    ],
)
async def test_first_messages_that_are_refused(first: bytes, why: str) -> None:
    with pytest.raises(AuthenticationFailed) as caught:
        await exchange().evaluate(first)
    assert caught.value.reason == why


@pytest.mark.proves("scram")
async def test_the_nonce_of_the_last_message_is_checked() -> None:
    """The message has a valid proof, but the nonce of another exchange."""

    def replayed(login: ScramLogin, first: bytes) -> bytes:
        return login.final(first.replace(b"servernonce", b"earliernonc"))

    assert await reason(replayed) == "wrong_nonce"
    assert await reason(lambda login, first: login.final(first.replace(b"servernonce", b""))) == "wrong_nonce"


async def test_a_client_that_repeats_its_nonce_is_refused_with_the_remedy() -> None:
    """librdkafka before 2.6.1 does this."""
    server, login = exchange(), ScramLogin()
    first = await server.evaluate(login.first())
    own = login.bare.rpartition("r=")[2].encode()
    with pytest.raises(AuthenticationFailed) as caught:
        await server.evaluate(login.final(first.replace(b"r=", b"r=" + own, 1)))
    assert caught.value.reason == "wrong_nonce"
    assert "librdkafka 2.6.1" in caught.value.do


@pytest.mark.proves("scram")
async def test_the_channel_binding_of_the_last_message_is_checked() -> None:
    def other_header(login: ScramLogin, first: bytes) -> bytes:
        login.header = "y,,"
        return login.final(first)

    assert await reason(other_header) == "wrong_channel_binding"


async def test_the_proof_is_checked() -> None:
    assert await reason(lambda login, first: login.final(first), ScramLogin(password="other")) == "wrong_password"
    assert await reason(lambda login, first: login.final(first), ScramLogin("mallory")) == "unknown_user"
    for proof in (b"", b"AAAA", b64encode(bytes(32)), b"====", b64encode(bytes(33))):
        why = await reason(lambda login, first, proof=proof: login.final(first).partition(b",p=")[0] + b",p=" + proof)
        assert why in ("malformed_token", "wrong_password")


@pytest.mark.proves("scram")
async def test_a_proof_of_zero_keys_does_not_log_an_unknown_user_in() -> None:
    """A client cannot know a proof for the stored key of an unknown user. Here the client has one anyway."""

    def forged(login: ScramLogin, first: bytes) -> bytes:
        return login.final(first)

    assert await reason(forged, ScramLogin("mallory", PASSWORD)) == "unknown_user"


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
async def test_arbitrary_tokens_never_complete_an_exchange(tokens: list[bytes]) -> None:
    for server in (exchange(), plain_exchange()):
        for token in tokens:
            try:
                await server.evaluate(token)
            except AuthenticationFailed:
                break
        assert not server.is_complete


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (b"", "malformed_token"),
        (b"alice\0" + PASSWORD.encode(), "malformed_token"),
        (b"\0alice\0", "malformed_token"),
        (b"\0\0" + PASSWORD.encode(), "malformed_token"),
        (b"\0alice\0a\0b", "malformed_token"),
        (b"\0\xff\0x", "malformed_token"),
        (b"root\0alice\0" + PASSWORD.encode(), "other_authorization_id"),
        (b"\0alice\0" + PASSWORD.encode() + b" ", "wrong_password"),
        (b"\0mallory\0" + PASSWORD.encode(), "unknown_user"),
        (b"\0alice\0" + bytes(range(1, 256)) * 33, "malformed_token"),
    ],
)
async def test_tokens_of_plain_that_are_refused(token: bytes, why: str) -> None:
    plain = plain_exchange()
    with pytest.raises(AuthenticationFailed) as caught:
        await plain.evaluate(token)
    assert (caught.value.reason, plain.is_complete) == (why, False)


@pytest.mark.parametrize("authorization", ["", "alice"])
async def test_plain_names_its_user_once_the_password_is_right(authorization: str) -> None:
    plain = plain_exchange()
    assert await plain.evaluate(f"{authorization}\0alice\0{PASSWORD}".encode()) == b""
    assert (plain.is_complete, plain.user) == (True, "alice")


async def test_an_unknown_user_costs_plain_as_much_as_a_known_one() -> None:
    work: list[tuple[ScramMechanism, int]] = []

    async def counted(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
        work.append((mechanism, iterations))
        return await stretch_here(mechanism, password, salt, iterations)

    for name in ("alice", "mallory"):
        with pytest.raises(AuthenticationFailed):
            await plain_exchange(counted).evaluate(f"\0{name}\0wrong".encode())
    assert work[0] == work[1]


async def test_a_password_that_was_right_costs_no_second_pbkdf2() -> None:
    work: list[bytes] = []

    async def counted(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
        work.append(password)
        return await stretch_here(mechanism, password, salt, iterations)

    verified = VerifiedPasswords(b"key")
    for _ in range(3):
        plain = plain_exchange(counted, verified)
        await plain.evaluate(f"\0alice\0{PASSWORD}".encode())
        assert plain.is_complete
    assert work == [PASSWORD.encode()]
    for _ in range(3):
        with pytest.raises(AuthenticationFailed):
            await plain_exchange(counted, verified).evaluate(b"\0alice\0wrong")
    assert work[1:] == [b"wrong"] * 3, "a guess costs PBKDF2 each time"
