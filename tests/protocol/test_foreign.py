"""Other protocols are recognised by their first bytes; frames of Kafka are not taken for them."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel_protocol.foreign import explained, looks_like, not_served


def client_hello() -> bytes:
    """The first bytes of a TLS client of this Python."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="h")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("first", "name"),
    [
        (client_hello(), "TLS"),
        (bytes.fromhex("160301"), "TLS"),
        (bytes.fromhex("15030300020246"), "TLS alert"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /", "HTTP"),
        (b"PRI * HTTP/2.0\r\n", "HTTP"),
        (b"HTTP/1.1 400 Bad Request", "HTTP"),
        (b"SSH-2.0-OpenSSH", "SSH"),
        (b"PROXY TCP4 ", "PROXY"),
        (b"\r\n\r\n\0\r\nQUIT\n", "PROXY"),
    ],
)
def test_other_protocols_are_named(first: bytes, name: str) -> None:
    said = looks_like(first)
    assert said is not None
    assert name in said
    assert explained("frame of 7 bytes", first) == f"frame of 7 bytes; {said}"
    assert looks_like(memoryview(first)) == said


@given(st.integers(0, 104_857_600), st.binary(max_size=8))
def test_no_frame_of_kafka_is_taken_for_another_protocol(size: int, rest: bytes) -> None:
    assert looks_like(size.to_bytes(4, "big") + rest) is None


@given(st.binary(max_size=8))
def test_any_bytes_are_accepted_without_an_exception(first: bytes) -> None:
    assert explained("wrong", first).startswith("wrong")


@pytest.mark.parametrize("first", [b"", b"\x16", b"\xff" * 8, bytes(8), bytes.fromhex("160300000002")])
def test_unknown_bytes_get_no_hint(first: bytes) -> None:
    assert looks_like(first) is None


def test_sasl_requests_get_a_hint() -> None:
    assert "SASL" in not_served(17)["hint"]
    assert "SASL" in not_served(36)["hint"]
    assert not_served(999) == {}
