"""PURE: the SASL settings of each listener: those of the broker, and those of `listener.name.<name>.` over them."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from semel_broker.config.broker_settings import BrokerSettings
from semel_broker.config.listeners import Listener
from semel_broker.config.settings import ConfigError

PLAIN: Final = "PLAIN"


class SaslSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The SASL of one listener: names of mechanisms, bounds in milliseconds and bytes."""

    listener: str
    protocol: str
    mechanisms: tuple[str, ...]
    max_reauth_ms: int
    failed_delay_ms: int
    token_bytes_max: int


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
    return sasl
