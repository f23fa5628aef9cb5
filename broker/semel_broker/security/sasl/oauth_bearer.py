"""PURE: checks the token of a client that authenticates with OAUTHBEARER (RFC 7519, KIP-768).

A token is accepted if a key of the issuer has signed it with an algorithm of that key, if it is valid now, and if
issuer and audience are those of the settings. The header of a token only selects the key: it can neither bring a key
nor choose an algorithm that the key does not have. The reason of a refusal is for the broker's log. The client does
not get it.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry

from semel_broker.config.principal_rules import ANONYMOUS_NAME, USER
from semel_broker.security.sasl.mechanism import AuthenticationFailed
from semel_broker.security.sasl.oauth_keys import KeySet, PublicKey, decoded

TOKEN_CHARS_MAX: Final = 32_768
NAME_CHARS_MAX: Final = 1_024
"""The longest name of a principal."""
NO_NAMES: Final = (ANONYMOUS_NAME.removeprefix(USER), "*")
"""Principals that mean something else: clients without authentication, and every principal."""
ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)
"""Neither `none` nor HS256, HS384 and HS512: with these, the public key would be the secret."""
MILLIS_PER_SECOND: Final = 1_000
SECONDS_MAX: Final = 1 << 53


class TokenRefusedError(AuthenticationFailed):
    """The token is refused. `reason`: a word; `why`: a sentence with what is in the token; `do`: what to do next."""

    def __init__(self, reason: str, why: str, do: str) -> None:
        super().__init__(reason, f"{why}: {do}")
        self.args = (why,)


class UnknownKeyError(TokenRefusedError):
    """The token names a key that is not in the JWKS. A newer JWKS may have it. `kid`: its id."""

    def __init__(self, kid: str) -> None:
        super().__init__(
            "unknown_key",
            f"the JWKS has no usable key {kid[:80]!r}",
            "compare it with the keys of the issuer; the log line jwks_loaded says which keys were left out",
        )
        self.kid = kid


class TokenRules(msgspec.Struct, frozen=True, kw_only=True):
    """The required claims of a token. `audiences`: one of these must be in it. Skew: how far clocks may differ."""

    issuer: str
    audiences: tuple[str, ...]
    sub_claim: str = "sub"
    scope_claim: str = "scope"
    clock_skew_ms: int = 30_000

    def __post_init__(self) -> None:
        assert self.issuer, "tokens of every issuer would be accepted"
        assert self.audiences, "tokens for every service would be accepted"


class CheckedToken(msgspec.Struct, frozen=True):
    """`user`: the name of the principal. `expires_ms`: the end of the session, with the clock skew."""

    user: str
    expires_ms: int
    scopes: tuple[str, ...] = ()


def check_token(token: str, keys: KeySet, rules: TokenRules, now_ms: int) -> CheckedToken:
    """The principal of the token. Raises TokenRefusedError, UnknownKeyError."""
    if len(token) > TOKEN_CHARS_MAX:
        raise TokenRefusedError(
            "token_too_long",
            f"the token has {len(token)} characters, more than {TOKEN_CHARS_MAX}",
            "have the issuer leave out claims that the broker does not need",
        )
    parts = token.split(".")
    if len(parts) != 3:
        raise _malformed("it has not three parts: the broker reads signed JWTs, neither opaque nor encrypted tokens")
    try:
        header, claims, signature = (decoded(part) for part in parts)
    except ValueError:
        raise _malformed("it is not base64url") from None
    key, algorithm = _key_of(_object(header, "header"), keys)
    _check_signature(f"{parts[0]}.{parts[1]}".encode(), signature, key, algorithm)
    return _checked(_object(claims, "payload"), rules, now_ms)


def _checked(claims: dict[str, Any], rules: TokenRules, now_ms: int) -> CheckedToken:
    expires_ms = _check_times(claims, rules.clock_skew_ms, now_ms)
    _check_issuer(claims, rules)
    return CheckedToken(_user(claims, rules.sub_claim), expires_ms, _scopes(claims, rules.scope_claim))


def _object(text: bytes, what: str) -> dict[str, Any]:
    """Raise TokenRefusedError if the text is not a JSON object."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        found = None
    if not isinstance(found, dict):
        raise _malformed(f"its {what} is not a JSON object")
    return found


def _key_of(header: dict[str, Any], keys: KeySet) -> tuple[PublicKey, str]:
    """The key that the header names, and its algorithm. Raises TokenRefusedError."""
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise TokenRefusedError(
            "algorithm_not_allowed",
            f"the token has the algorithm {str(algorithm)[:80]!r}; the broker accepts {', '.join(ALGORITHMS)}",
            "have the issuer sign with one of these",
        )
    if "crit" in header:
        raise _malformed("its header has extensions that must be understood (crit), and the broker knows none")
    if not isinstance(kid, str) or not kid:
        raise TokenRefusedError(
            "no_key_id", "the token does not name its key (kid)", "have the issuer put kid into the header"
        )
    key = keys.keys.get(kid)
    if key is None:
        raise UnknownKeyError(kid)
    if algorithm not in key.algorithms:
        raise TokenRefusedError(
            "algorithm_of_another_key",
            f"the token has the algorithm {algorithm}, and its key is for {', '.join(sorted(key.algorithms))}",
            "a client may have forged this token: look for where it comes from",
        )
    return key, algorithm


def _check_signature(signed: bytes, signature: bytes, key: PublicKey, algorithm: str) -> None:
    verifier = JWSRegistry.algorithms["Ed25519" if algorithm == "EdDSA" else algorithm]
    try:
        verifier.check_key(key.key)
        is_valid = verifier.verify(signed, signature, key.key)
    except (JoseError, ValueError):
        is_valid = False
    if not is_valid:
        raise TokenRefusedError(
            "wrong_signature",
            "the signature of the token is wrong",
            "the token was changed, or another issuer uses the same id for a key: check the URL of the JWKS",
        )


def _check_times(claims: dict[str, Any], skew_ms: int, now_ms: int) -> int:
    """The end of the token in ms, with the skew. Raises TokenRefusedError."""
    expires_ms = _time_ms(claims, "exp")
    if expires_ms is None:
        raise TokenRefusedError("no_expiry", "the token does not expire (exp)", "have the issuer put exp into it")
    if expires_ms + skew_ms <= now_ms:
        raise TokenRefusedError(
            "expired",
            f"the token expired {(now_ms - expires_ms) // MILLIS_PER_SECOND} s ago",
            "the client has to fetch a new token; or correct the clock of this machine",
        )
    for name in ("nbf", "iat"):
        begins_ms = _time_ms(claims, name)
        if begins_ms is not None and begins_ms - skew_ms > now_ms:
            raise TokenRefusedError(
                "not_yet_valid",
                f"the token is valid in {(begins_ms - now_ms) // MILLIS_PER_SECOND} s only ({name})",
                "compare the clocks of the issuer and of this machine",
            )
    return expires_ms + skew_ms


def _time_ms(claims: dict[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value) or abs(value) > SECONDS_MAX:
        raise _malformed(f"its claim {name} is not a time")
    return int(value * MILLIS_PER_SECOND)


def _check_issuer(claims: dict[str, Any], rules: TokenRules) -> None:
    if claims.get("iss") != rules.issuer:
        raise TokenRefusedError(
            "wrong_issuer",
            f"the token is of the issuer {str(claims.get('iss'))[:200]!r}, not of {rules.issuer!r}",
            "correct sasl.oauthbearer.expected.issuer, or the issuer that the client asks",
        )
    given = claims.get("aud")
    audiences = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    if not any(isinstance(each, str) and each in rules.audiences for each in audiences):
        raise TokenRefusedError(
            "wrong_audience",
            f"the token is for {str(given)[:200]!r}, and not for {' or '.join(rules.audiences)} (aud)",
            "have the client ask for a token for this audience, or correct sasl.oauthbearer.expected.audience",
        )


def _user(claims: dict[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not name.strip() or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise TokenRefusedError(
            "no_principal",
            f"the claim {claim!r} is not a printable text of 1 to {NAME_CHARS_MAX} characters",
            "correct sasl.oauthbearer.sub.claim.name, or have the issuer put the claim into the token",
        )
    if name in NO_NAMES:
        raise TokenRefusedError(
            "reserved_principal",
            f"the claim {claim!r} is {name!r}, which is not the name of one principal",
            "have the issuer give this client another name",
        )
    return name


def _scopes(claims: dict[str, Any], claim: str) -> tuple[str, ...]:
    given = claims.get(claim)
    listed = given.split() if isinstance(given, str) else [] if given is None else given
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise _malformed(f"its claim {claim!r} is neither a text nor a list of texts")
    return tuple(listed)


def _malformed(why: str) -> TokenRefusedError:
    return TokenRefusedError("malformed_token", f"the token cannot be read: {why}", "check what the client sends")
