"""A JWKS gives public keys for signatures; private, weak and ambiguous keys are left out and named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from broker.security.sasl import issuer
from broker.security.sasl.issuer import jwks, public
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import OctKey
from semel_broker.security.sasl.oauth_keys import KEYS_MAX, decoded, parse_jwks
from semel_broker.world import JWKS_BYTES_MAX, JwksError


def good() -> dict[str, Any]:
    return public(issuer.ec_key(), "good")


def ignored(bad: Any) -> str:
    """The reason why the key is ignored. Another key in the set is used."""
    found = parse_jwks(jwks(good(), bad))
    assert list(found.keys) == ["good"]
    (why,) = found.ignored
    with pytest.raises(JwksError, match="no usable key"):
        parse_jwks(jwks(bad))
    return why


def test_keys_of_every_type_are_used() -> None:
    keys = [
        issuer.rsa_key(),
        issuer.ec_key("P-256"),
        issuer.ec_key("P-384"),
        issuer.ec_key("P-521"),
        issuer.ed25519_key(),
    ]
    found = parse_jwks(jwks(*(public(key, str(number), use="sig") for number, key in enumerate(keys))))
    assert list(found.keys) == ["0", "1", "2", "3", "4"]
    assert not found.ignored
    assert found.keys["2"].algorithms == {"ES384"}


@pytest.mark.parametrize("key", [issuer.rsa_key(), issuer.ec_key(), issuer.ed25519_key()], ids=["RSA", "EC", "OKP"])
def test_a_private_key_is_left_out_and_its_secret_is_not_named(key: Any) -> None:
    private = {**key.as_dict(private=True), "kid": "leaked"}
    why = ignored(private)
    assert "'leaked'" in why
    assert "it is a private key" in why
    assert private["d"][:20] not in why


def test_a_symmetric_key_is_left_out() -> None:
    assert "symmetric" in ignored({**OctKey.generate_key(256).as_dict(private=True), "kid": "k"})


@pytest.mark.parametrize("bits", [1024, 2040])
def test_a_weak_rsa_key_is_left_out(bits: int) -> None:
    assert f"it has {bits} bits, and needs 2048" in ignored(public(issuer.rsa_key(bits)))


@pytest.mark.parametrize("exponent", ["AQ", "Aw", "", "AQAA", "_" * 40])
def test_an_rsa_key_with_an_unsafe_exponent_is_left_out(exponent: str) -> None:
    assert "exponent" in ignored({**public(issuer.rsa_key()), "e": exponent})


def test_an_rsa_key_that_costs_too_much_is_left_out() -> None:
    assert "more than 8192 bits" in ignored({**public(issuer.rsa_key()), "n": "_" * 4000})


def test_a_point_that_is_not_on_the_curve_is_left_out() -> None:
    assert "cannot be read" in ignored({**public(issuer.ec_key()), "y": public(issuer.ec_key())["x"]})


@pytest.mark.parametrize(
    "fields",
    [
        {"use": "enc"},
        {"key_ops": ["encrypt"]},
        {"key_ops": "verify"},
        {"alg": "HS256"},
        {"alg": "none"},
        {"alg": "ES256"},
        {"alg": ["RS256"]},
        {"kid": None},
        {"kid": ""},
        {"kid": 7},
        {"kty": "DSA"},
        {"kty": ["RSA"]},
        {"n": None},
        {"n": "!"},
        {"e": 65537},
    ],
    ids=str,
)
def test_a_key_that_cannot_check_signatures_is_left_out(fields: dict[str, Any]) -> None:
    assert "is not used" in ignored({**public(issuer.rsa_key()), **fields})


def test_two_keys_with_one_id_are_both_left_out() -> None:
    found = parse_jwks(jwks(good(), public(issuer.rsa_key(), "twice"), public(issuer.ec_key(), "twice")))
    assert list(found.keys) == ["good"]
    assert len(found.ignored) == 2


@pytest.mark.parametrize(
    "text", [b"", b"x", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}', b'{"keys": [1, null]}', b"[" * 100_000, b"\xff"]
)
def test_a_text_that_is_no_jwks_is_refused(text: bytes) -> None:
    with pytest.raises(JwksError):
        parse_jwks(text)


def test_a_jwks_that_is_too_large_is_refused() -> None:
    with pytest.raises(JwksError, match="larger than"):
        parse_jwks(b" " * (JWKS_BYTES_MAX + 1))
    with pytest.raises(JwksError, match="more than"):
        parse_jwks(jwks(*(public(issuer.ec_key(), str(number)) for number in range(KEYS_MAX + 1))))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["RSA", "EC", "OKP", "P-256", "AQAB"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kty", "n", "e"]), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["kty", "kid", "crv", "x", "y", "n", "e", "use", "alg", "key_ops"]), json_values)
)
def test_any_key_is_used_or_left_out_and_never_fails_otherwise(jwk: dict[str, Any]) -> None:
    parse_jwks(json.dumps({"keys": [good(), jwk]}).encode())


def test_base64url_is_read_strictly() -> None:
    assert decoded("_-8") == b"\xff\xef"
    for text in ("+/", "a b", "YQ==", "é", "A"):
        with pytest.raises(ValueError, match=r"base64|padded"):
            decoded(text)
