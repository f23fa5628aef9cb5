"""PURE: the SASL settings of each listener: those of the broker, and those of `listener.name.<name>.` over them."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from semel_broker.config.broker_settings import BrokerSettings
from semel_broker.config.listeners import Listener
from semel_broker.config.settings import ConfigError

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
FILE: Final = "sasl.oauthbearer.jwks.file"


class OAuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of one listener. `location`: the https URL or the path of the JWKS; `ca_file`: for the URL."""

    location: str
    ca_file: str
    refresh_ms: int
    issuer: str
    audiences: tuple[str, ...]
    sub_claim: str
    scope_claim: str
    clock_skew_ms: int


class SaslSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The SASL of one listener: names of mechanisms, bounds in milliseconds and bytes."""

    listener: str
    protocol: str
    mechanisms: tuple[str, ...]
    max_reauth_ms: int
    failed_delay_ms: int
    token_bytes_max: int
    oauth: OAuthSettings | None = None


def sasl_settings_of(listener: Listener, config: BrokerSettings, own: Mapping[str, Any]) -> SaslSettings:
    """The SASL of this listener. `own`: its settings by field. Raises ConfigError for passwords without TLS."""

    def value(field: str) -> Any:
        return own.get(field, getattr(config, field))

    sasl = SaslSettings(
        listener=listener.name,
        protocol=listener.protocol,
        mechanisms=value("sasl_enabled_mechanisms"),
        max_reauth_ms=value("connections_max_reauth_ms"),
        failed_delay_ms=config.connection_failed_authentication_delay_ms,
        token_bytes_max=value("sasl_server_max_receive_size"),
        oauth=_oauth(listener, value) if OAUTHBEARER in value("sasl_enabled_mechanisms") else None,
    )
    where = f"listener {listener.name}"
    if not sasl.mechanisms:
        raise ConfigError(
            f"{where} has the protocol {listener.protocol}, and sasl.enabled.mechanisms is empty; give one"
        )
    if PLAIN in sasl.mechanisms and not listener.has_tls and not value("sasl_plain_without_tls_enable"):
        raise ConfigError(
            f"{where}: with PLAIN and {listener.protocol} passwords cross the network readable for all on the way; use "
            "SASL_SSL, or SCRAM-SHA-512, or set sasl.plain.without.tls.enable=true if the network is your own"
        )
    if OAUTHBEARER in sasl.mechanisms and not listener.has_tls and not value("sasl_plain_without_tls_enable"):
        raise ConfigError(
            f"{where}: with OAUTHBEARER and {listener.protocol} tokens cross the network readable for all on the way; "
            "use SASL_SSL, or set sasl.plain.without.tls.enable=true if the network is your own"
        )
    return sasl


def _oauth(listener: Listener, value: Callable[[str], Any]) -> OAuthSettings:
    """Raise ConfigError if a setting is missing, without which tokens for others would be accepted."""
    where = f"listener {listener.name}: OAUTHBEARER"
    url, file = value("sasl_oauthbearer_jwks_endpoint_url"), value("sasl_oauthbearer_jwks_file")
    if bool(url) == bool(file):
        raise ConfigError(f"{where} needs the keys of the issuer: give either {URL} or {FILE}")
    if url and not _is_https(url):
        raise ConfigError(f"{URL}: give an https URL with a host and without a user; for a file, use {FILE}")
    issuer, audiences = value("sasl_oauthbearer_expected_issuer"), value("sasl_oauthbearer_expected_audience")
    if not issuer:
        raise ConfigError(f"{where} needs sasl.oauthbearer.expected.issuer: the issuer (iss) of the tokens")
    if not audiences or not all(audiences):
        raise ConfigError(
            f"{where} needs sasl.oauthbearer.expected.audience: without it, tokens of the issuer for every other "
            "service would be accepted"
        )
    return OAuthSettings(
        location=url or file,
        ca_file=value("sasl_oauthbearer_jwks_ca_file"),
        refresh_ms=value("sasl_oauthbearer_jwks_endpoint_refresh_ms"),
        issuer=issuer,
        audiences=audiences,
        sub_claim=value("sasl_oauthbearer_sub_claim_name"),
        scope_claim=value("sasl_oauthbearer_scope_claim_name"),
        clock_skew_ms=value("sasl_oauthbearer_clock_skew_seconds") * 1000,
    )


def _is_https(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_ported = parts.port != 0
    except ValueError:
        return False
    is_https = url.startswith("https://") and url.isascii()
    return is_https and is_ported and bool(parts.hostname) and "@" not in parts.netloc
