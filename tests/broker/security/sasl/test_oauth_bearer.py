"""A token is accepted for its right key, algorithm, times, issuer and audience only; each known attack is refused."""

from __future__ import annotations

from typing import Any

import pytest
from broker.security.sasl import issuer
from broker.security.sasl.issuer import AUDIENCE, CLAIMS, ISSUER, NOW_MS, NOW_S, encoded, jwks, public, token
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import Key, RSAKey
from joserfc.jws import JWSRegistry
from semel_broker.security.sasl import oauth_bearer
from semel_broker.security.sasl.oauth_bearer import (
    CheckedToken,
    TokenRefusedError,
    TokenRules,
    UnknownKeyError,
    check_token,
)
from semel_broker.security.sasl.oauth_keys import KeySet, parse_jwks

RULES = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), clock_skew_ms=30_000)


def keys() -> KeySet:
    return parse_jwks(jwks(public(issuer.rsa_key())))


def checked(text: str, rules: TokenRules = RULES, at: KeySet | None = None) -> CheckedToken:
    return check_token(text, at or keys(), rules, NOW_MS)


def reason(text: str, rules: TokenRules = RULES, at: KeySet | None = None) -> str:
    with pytest.raises(TokenRefusedError) as caught:
        checked(text, rules, at)
    assert caught.value.do
    assert text[:40] not in str(caught.value) or len(text) < 40, "the token stays out of the log"
    return caught.value.reason


def test_a_valid_token_gives_the_principal_the_end_of_the_session_and_the_scopes() -> None:
    end_ms = (NOW_S + 300) * 1000 + 30_000
    assert checked(token()) == CheckedToken("alice", end_ms, ("read", "write"))


@pytest.mark.parametrize(
    ("key", "algorithm"),
    [
        *((issuer.rsa_key(), name) for name in ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")),
        (issuer.ec_key("P-256"), "ES256"),
        (issuer.ec_key("P-384"), "ES384"),
        (issuer.ec_key("P-521"), "ES512"),
        (issuer.ed25519_key(), "EdDSA"),
        (issuer.ed25519_key(), "Ed25519"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_every_allowed_algorithm_works_with_its_key(key: Key, algorithm: str) -> None:
    at = parse_jwks(jwks(public(key)))
    text = token(key, algorithm)
    assert checked(text, at=at).user == "alice"
    head, payload, _ = text.split(".")
    other = token(key, algorithm, sub="mallory").split(".")[2]
    assert reason(f"{head}.{payload}.{other}", at=at) == "wrong_signature"


@pytest.mark.proves("invalid-tokens")
def test_alg_none_is_refused() -> None:
    for name in ("none", "None", "NONE", "nOnE"):
        unsigned = f"{encoded({'alg': name, 'kid': 'k1'})}.{encoded(CLAIMS)}."
        assert reason(unsigned) == "algorithm_not_allowed"
    assert reason(f"{encoded({'kid': 'k1'})}.{encoded(CLAIMS)}.") == "algorithm_not_allowed"
    assert reason(f"{encoded({'alg': ['none'], 'kid': 'k1'})}.{encoded(CLAIMS)}.") == "algorithm_not_allowed"


@pytest.mark.proves("invalid-tokens")
def test_a_public_rsa_key_as_an_hmac_secret_is_refused() -> None:
    key = issuer.rsa_key()
    for secret in (key.as_pem(private=False), key.as_der(private=False), jwks(public(key))):
        assert reason(issuer.hmac_token(secret)) == "algorithm_not_allowed"


def test_an_algorithm_of_another_kind_of_key_is_refused() -> None:
    assert reason(token(issuer.ec_key(), "ES256")) == "algorithm_of_another_key"
    assert reason(token(header={"alg": "ES256"})) == "algorithm_of_another_key"
    narrow = parse_jwks(jwks(public(issuer.rsa_key(), alg="PS256")))
    assert reason(token(algorithm="RS256"), at=narrow) == "algorithm_of_another_key"
    assert checked(token(algorithm="PS256"), at=narrow).user == "alice"


@pytest.mark.proves("invalid-tokens")
def test_an_unknown_kid_is_refused_and_named() -> None:
    with pytest.raises(UnknownKeyError) as caught:
        checked(token(header={"kid": "k2"}))
    assert caught.value.kid == "k2"
    assert caught.value.reason == "unknown_key"


@pytest.mark.parametrize("kid", [None, "", 1, ["k1"]])
def test_a_token_without_kid_is_refused(kid: object) -> None:
    assert reason(token(header={"kid": kid})) == "no_key_id"


@pytest.mark.proves("invalid-tokens")
def test_a_key_or_a_url_in_the_header_is_not_used() -> None:
    own = RSAKey.generate_key(2048)
    brought = {"jwk": public(own), "jku": "https://attacker.example/jwks", "x5u": "file:///etc/passwd"}
    assert reason(token(own, header=brought)) == "wrong_signature"


def test_critical_extensions_are_refused() -> None:
    assert reason(token(header={"crit": ["b64"], "b64": False})) == "malformed_token"


@pytest.mark.proves("invalid-tokens")
@pytest.mark.parametrize("aud", [None, "", "other", ["other"], [], [None], {"semel": 1}, 1, "semel2", "SEMEL"])
def test_a_token_for_no_audience_or_another_one_is_refused(aud: object) -> None:
    assert reason(token(aud=aud)) == "wrong_audience"


def test_one_audience_of_several_is_enough() -> None:
    assert checked(token(aud=["other", AUDIENCE])).user == "alice"


@pytest.mark.parametrize("iss", [None, "", "https://issuer.example/", "https://other.example", [ISSUER]])
def test_a_token_of_another_issuer_is_refused(iss: object) -> None:
    assert reason(token(iss=iss)) == "wrong_issuer"


def test_rules_without_issuer_or_audience_do_not_exist() -> None:
    with pytest.raises(AssertionError):
        TokenRules(issuer="", audiences=(AUDIENCE,))
    with pytest.raises(AssertionError):
        TokenRules(issuer=ISSUER, audiences=())


@pytest.mark.parametrize(
    ("exp", "outcome"),
    [(NOW_S - 29, None), (NOW_S - 30, "expired"), (NOW_S - 10_000, "expired"), (None, "no_expiry"), (0, "expired")],
)
def test_an_expired_token_is_refused_after_the_clock_skew(exp: int | None, outcome: str | None) -> None:
    text = token(exp=exp)
    if outcome is None:
        assert checked(text).expires_ms > NOW_MS
    else:
        assert reason(text) == outcome


@pytest.mark.parametrize("claim", ["nbf", "iat"])
def test_a_token_that_is_not_yet_valid_is_refused(claim: str) -> None:
    assert checked(token(**{claim: NOW_S + 30})).user == "alice"
    assert reason(token(**{claim: NOW_S + 31})) == "not_yet_valid"


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", ["1700000300", True, [1], 1e300, -1e300, 2**63])
def test_a_time_that_is_no_number_of_seconds_is_refused(claim: str, value: object) -> None:
    assert reason(token(**{claim: value})) == "malformed_token"


@pytest.mark.parametrize("sub", [None, "", "  ", 1, ["alice"], "a\nb", "a\0", "x" * 1025])
def test_a_token_without_a_printable_subject_is_refused(sub: object) -> None:
    assert reason(token(sub=sub)) == "no_principal"


@pytest.mark.parametrize("sub", ["ANONYMOUS", "*"])
def test_a_subject_that_is_not_one_principal_is_refused(sub: str) -> None:
    assert reason(token(sub=sub)) == "reserved_principal"


def test_subject_and_scopes_can_be_other_claims() -> None:
    rules = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), sub_claim="client_id", scope_claim="scp")
    text = token(client_id="billing", scp=["read"], sub=None)
    assert checked(text, rules) == CheckedToken("billing", (NOW_S + 330) * 1000, ("read",))
    assert reason(token(client_id="billing", scp={"a": 1}), rules) == "malformed_token"


def test_a_token_that_is_too_long_is_refused_before_it_is_read() -> None:
    assert reason(token(padding="x" * oauth_bearer.TOKEN_CHARS_MAX)) == "token_too_long"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b",
        "a.b.c.d.e",
        "..",
        "!.b.c",
        f"{encoded([1])}.{encoded(CLAIMS)}.",
        f"{encoded(b'not json')}.{encoded(CLAIMS)}.",
        f"{encoded(b'[' * 20_000)}.{encoded(CLAIMS)}.",
        f"{encoded(bytes([255, 254]))}.{encoded(CLAIMS)}.",
        "é.é.é",
    ],
)
def test_a_text_that_is_no_token_is_refused(text: str) -> None:
    assert reason(text) == "malformed_token"


def test_a_signed_payload_that_is_no_object_is_refused() -> None:
    signed = f"{encoded({'alg': 'RS256', 'kid': 'k1'})}.{encoded([1])}"
    signature = JWSRegistry.algorithms["RS256"].sign(signed.encode(), issuer.rsa_key())
    assert reason(f"{signed}.{encoded(signature)}") == "malformed_token"


@given(st.data())
def test_a_token_that_is_changed_in_one_character_is_refused(data: st.DataObject) -> None:
    text = token()
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.sampled_from("AZaz09-_.=é")) + text[at + 1 :]
    last_bits_are_padding = at == len(text) - 1
    if changed != text and not last_bits_are_padding:
        reason(changed)


@given(st.text(max_size=200))
def test_any_text_is_refused_and_never_fails_otherwise(text: str) -> None:
    with pytest.raises(TokenRefusedError):
        checked(text)


@pytest.mark.proves("invalid-tokens")
@pytest.mark.parametrize("safeguard", ["algorithms", "key_algorithms", "audience", "issuer", "times", "signature"])
def test_each_check_is_necessary(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ablations: without the check the attack succeeds."""

    def nothing(*_: Any) -> int:
        return NOW_MS + 1

    other = RSAKey.generate_key(2048)
    match safeguard:
        case "audience" | "issuer":
            monkeypatch.setattr(oauth_bearer, "_check_issuer", nothing)
            attack = token(aud="other") if safeguard == "audience" else token(iss="other")
        case "times":
            monkeypatch.setattr(oauth_bearer, "_check_times", nothing)
            attack = token(exp=1)
        case "signature":
            monkeypatch.setattr(oauth_bearer, "_check_signature", nothing)
            attack = token(other)
        case "algorithms" | "key_algorithms":
            monkeypatch.setattr(oauth_bearer, "_check_signature", nothing)
            monkeypatch.setattr(oauth_bearer, "ALGORITHMS", ("none",) if safeguard == "algorithms" else ("ES256",))
            attack = f"{encoded({'alg': oauth_bearer.ALGORITHMS[0], 'kid': 'k1'})}.{encoded(CLAIMS)}."
            assert reason(attack) == "algorithm_of_another_key", "the key's own algorithms are the second bar"
            return
    assert checked(attack).user == "alice"
