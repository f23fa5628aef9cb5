"""PURE: the TLS settings of each listener: those of the broker, and those of `listener.name.<name>.` over them."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from semel_broker.config.broker_settings import BrokerSettings
from semel_broker.config.principal_rules import PrincipalRules
from semel_broker.config.settings import ConfigError, Setting

PREFIX: Final = "listener.name."
OF_LISTENERS: Final = ("ssl.", "sasl.", "connections.max.reauth.ms")
"""Beginnings of the settings that a listener can have of its own."""


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The TLS of one listener. Certificates and keys are PEM, in a file or as text; "" if they are not given.

    `setting`: the name under which a setting of this listener is given, for error messages.
    """

    listener: str
    keystore_location: str
    key_location: str
    certificate_chain: str
    key: str
    key_password: str
    truststore_location: str
    truststore_certificates: str
    client_auth: str
    enabled_protocols: tuple[str, ...]
    principal_mapping_rules: str
    endpoint_identification: str
    is_between_brokers: bool = False

    def __repr__(self) -> str:
        return f"<TlsSettings of listener {self.listener}>"  # the key and its password stay out of logs


def overridden(name: str, declared: Mapping[str, Setting], listeners: list[str]) -> tuple[str, Setting] | None:
    """The listener and the setting that `listener.name.<listener>.<setting>` names; None: another name.

    An environment variable has no dots: there `_` of the listener's name is a dot too. Raises ConfigError.
    """
    if not name.startswith(PREFIX):
        return None
    rest = name.removeprefix(PREFIX)
    for listener in sorted(listeners, key=len, reverse=True):
        for written in (listener.lower(), listener.lower().replace("_", ".")):
            if rest.lower().startswith(written + "."):
                setting = declared.get(rest[len(written) + 1 :])
                if setting is None or not setting.name.startswith(OF_LISTENERS):
                    raise ConfigError(
                        f"{name}: a listener can have settings ssl.*, sasl.* and connections.max.reauth.ms of its own, "
                        "and no others"
                    )
                return listener, setting
    raise ConfigError(f"{name}: listeners does not have this listener; it has {', '.join(listeners)}")


def tls_settings_of(listener: str, config: BrokerSettings, own: Mapping[str, Any]) -> TlsSettings:
    """The TLS of this listener. `own`: its settings by field. Raises ConfigError if they are incomplete."""

    def value(field: str) -> Any:
        return own.get(field, getattr(config, field))

    tls = TlsSettings(
        listener=listener,
        keystore_location=value("ssl_keystore_location"),
        key_location=value("ssl_key_location"),
        certificate_chain=value("ssl_keystore_certificate_chain"),
        key=value("ssl_keystore_key"),
        key_password=value("ssl_key_password"),
        truststore_location=value("ssl_truststore_location"),
        truststore_certificates=value("ssl_truststore_certificates"),
        client_auth=value("ssl_client_auth"),
        enabled_protocols=value("ssl_enabled_protocols"),
        principal_mapping_rules=value("ssl_principal_mapping_rules"),
        endpoint_identification=value("ssl_endpoint_identification_algorithm").lower(),
    )
    _check(tls)
    return tls


def mutual(tls: TlsSettings) -> TlsSettings:
    """The TLS between brokers: both sides show certificates. Raises ConfigError without the CAs of the brokers."""
    if not tls.truststore_location and not tls.truststore_certificates:
        raise ConfigError(
            f"listener {tls.listener} is for brokers, and needs the CAs of their certificates; give "
            "ssl.truststore.location, a file in PEM"
        )
    return msgspec.structs.replace(tls, client_auth="required", is_between_brokers=True)


def _check(tls: TlsSettings) -> None:
    where = f"listener {tls.listener}"
    if tls.keystore_location and (tls.certificate_chain or tls.key):
        raise ConfigError(f"{where}: ssl.keystore.location and ssl.keystore.certificate.chain are both given; give one")
    if bool(tls.certificate_chain) != bool(tls.key):
        raise ConfigError(f"{where}: give ssl.keystore.certificate.chain and ssl.keystore.key together")
    if not tls.keystore_location and not tls.certificate_chain:
        raise ConfigError(
            f"{where} has TLS and no certificate: give ssl.keystore.location, a file in PEM with the "
            "certificate chain and its private key"
        )
    if tls.key_location and not tls.keystore_location:
        raise ConfigError(f"{where}: ssl.key.location is given without ssl.keystore.location; give both")
    if tls.truststore_location and tls.truststore_certificates:
        raise ConfigError(f"{where}: ssl.truststore.location and ssl.truststore.certificates are both given; give one")
    if tls.client_auth != "none" and not tls.truststore_location and not tls.truststore_certificates:
        raise ConfigError(
            f"{where}: ssl.client.auth = {tls.client_auth} needs the CAs of the clients' certificates; give "
            "ssl.truststore.location, a file in PEM"
        )
    if not tls.enabled_protocols:
        raise ConfigError(f"{where}: ssl.enabled.protocols is empty; give TLSv1.2, TLSv1.3 or both")
    if tls.endpoint_identification not in ("", "https"):
        raise ConfigError(
            f"{where}: ssl.endpoint.identification.algorithm = {tls.endpoint_identification}: must be https or empty"
        )
    PrincipalRules(tls.principal_mapping_rules)
