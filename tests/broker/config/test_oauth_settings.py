"""OAUTHBEARER is refused at the start unless the settings say whose tokens are accepted, and for which service."""

from __future__ import annotations

import pytest
from semel_broker.config.loading import load
from semel_broker.config.sasl_settings import OAuthSettings
from semel_broker.config.settings import ConfigError

URL = "https://issuer.example:8443/realms/a/jwks?x=y"
GIVEN = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.plain.without.tls.enable": "true",
    "sasl.oauthbearer.jwks.endpoint.url": URL,
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
    "sasl.oauthbearer.expected.audience": "semel,kafka",
}


def oauth(**changed: str | None) -> OAuthSettings | None:
    named = {name.replace("_", "."): value for name, value in changed.items()}
    given = {name: value for name, value in {**GIVEN, **named}.items() if value is not None}
    config = load(overrides=[f"{name}={value}" for name, value in given.items()])
    return config.sasl_of(config.client_listeners[0]).oauth


def refusal(**changed: str | None) -> str:
    with pytest.raises(ConfigError) as caught:
        oauth(**changed)
    return str(caught.value)


def test_the_settings_of_kafka_are_taken() -> None:
    assert oauth() == OAuthSettings(
        location=URL,
        ca_file="",
        refresh_ms=3_600_000,
        issuer="https://issuer.example",
        audiences=("semel", "kafka"),
        sub_claim="sub",
        scope_claim="scope",
        clock_skew_ms=30_000,
    )


def test_a_file_takes_the_place_of_the_url() -> None:
    found = oauth(sasl_oauthbearer_jwks_endpoint_url=None, sasl_oauthbearer_jwks_file="/etc/jwks.json")
    assert found is not None
    assert found.location == "/etc/jwks.json"


def test_other_mechanisms_need_no_settings_of_tokens() -> None:
    assert oauth(sasl_enabled_mechanisms="SCRAM-SHA-512", sasl_oauthbearer_expected_issuer=None) is None


def test_issuer_audience_and_keys_are_needed() -> None:
    assert "needs sasl.oauthbearer.expected.issuer" in refusal(sasl_oauthbearer_expected_issuer=None)
    said = refusal(sasl_oauthbearer_expected_audience=None)
    assert "needs sasl.oauthbearer.expected.audience: without it, tokens of the issuer for every other service" in said
    assert "give either" in refusal(sasl_oauthbearer_jwks_endpoint_url=None)
    assert "give either" in refusal(sasl_oauthbearer_jwks_file="/etc/jwks.json")


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "http://issuer.example/jwks",
        "HTTPS://issuer.example/jwks",
        "HTTP://issuer.example/jwks",
        "ftp://issuer.example/jwks",
        "https:///jwks",
        "https://user:hush@issuer.example/jwks",
        "https://issuer.example:99999/jwks",
        "https://issuer.example:x/jwks",
        "https://issuer.example/ä",
        "https://[::1/jwks",
        "/etc/jwks.json",
    ],
)
def test_a_url_that_is_not_plain_https_is_refused(url: str) -> None:
    said = refusal(sasl_oauthbearer_jwks_endpoint_url=url)
    assert "give an https URL with a host and without a user" in said
    assert "hush" not in said


def test_tokens_without_tls_are_refused() -> None:
    assert "tokens cross the network readable for all" in refusal(sasl_plain_without_tls_enable="false")
