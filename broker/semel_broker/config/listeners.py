"""PURE: the listeners of a broker: their names, addresses and security protocols, from Kafka's settings.

`listeners` names them, `advertised.listeners` has the addresses that clients connect to, and
`listener.security.protocol.map` the protocol of each name (KIP-103). Without `listeners` there is one listener
PLAINTEXT, at `host.name` and `port`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from semel_broker.config.broker_settings import BrokerSettings
from semel_broker.config.settings import ConfigError

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS: Final = (SSL, "SASL_SSL")
PROTOCOLS: Final = (PLAINTEXT, SSL, *SASL_PROTOCOLS)
PORT_MAX: Final = 65_535

LISTENER: Final = re.compile(r"([A-Za-z0-9_.-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^\[\]/:@]*)):([0-9]{1,5})")
SINGLE: Final = ("host.name", "port", "advertised.host.name", "advertised.port")
"""The settings of the one listener of a broker without `listeners`."""
MANY: Final = ("listeners", "advertised.listeners")


class Endpoint(msgspec.Struct, frozen=True):
    """An address: a host name or IP address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Listener(msgspec.Struct, frozen=True):
    """One listener. `advertised`: the address for clients, port 0: the bound one; None: clients do not get it.

    `protocol`: one of PROTOCOLS.
    """

    name: str
    address: Endpoint
    protocol: str
    advertised: Endpoint | None

    @property
    def has_tls(self) -> bool:
        return self.protocol in TLS_PROTOCOLS

    @property
    def has_sasl(self) -> bool:
        return self.protocol in SASL_PROTOCOLS


def listeners_of(config: BrokerSettings, given: Mapping[str, str]) -> tuple[Listener, ...]:
    """All listeners for clients, in the order of the setting. `given`: the settings that have been set.

    Raises ConfigError.
    """
    if not config.listeners:
        if config.advertised_listeners:
            raise ConfigError("advertised.listeners is given without listeners: give both, or use advertised.host.name")
        address = Endpoint(config.host_name, config.port)
        advertised = Endpoint(config.advertised_host_name or config.host_name, config.advertised_port)
        protocol = _protocol(PLAINTEXT, {PLAINTEXT: PLAINTEXT, **_protocols(config)})
        return (Listener(PLAINTEXT, address, protocol, advertised),)
    for name in SINGLE:
        if name in given:
            raise ConfigError(
                f"{name} and listeners are both given: leave out {name}, and write its value into listeners and "
                "advertised.listeners (NAME://HOST:PORT)"
            )
    bound = _addresses("listeners", config.listeners)
    advertised_by_name = _addresses("advertised.listeners", config.advertised_listeners)
    if unknown := [name for name in advertised_by_name if name not in bound]:
        raise ConfigError(
            f"advertised.listeners has {unknown[0]}, which listeners does not have: add it there, or leave it out"
        )
    protocols = _protocols(config)
    taken: dict[Endpoint, str] = {}
    for name, address in bound.items():
        if address.port and (other := taken.setdefault(address, name)) != name:
            raise ConfigError(f"listeners: {other} and {name} have the same address {address}; give each its own port")
    return tuple(
        Listener(
            name,
            address,
            _protocol(name, protocols),
            advertised_by_name.get(name) if advertised_by_name else Endpoint(address.host, 0),
        )
        for name, address in bound.items()
    )


def metrics_address(config: BrokerSettings) -> Endpoint | None:
    """The address of `metrics.listener`; None: there are no metrics. Raises ConfigError."""
    text = config.metrics_listener
    if not text:
        return None
    match = LISTENER.fullmatch(f"METRICS://{text}")
    if match is None or int(match[4]) > PORT_MAX or not (match[2] or match[3]):
        raise ConfigError(
            f"metrics.listener = {text!r}: must be HOST:PORT, such as 127.0.0.1:9404 or [::1]:9404, or empty for none"
        )
    return Endpoint(match[2] or match[3], int(match[4]))


def advertised_endpoints(listeners: Iterable[Listener], ports: Mapping[str, int]) -> dict[str, Endpoint]:
    """The addresses for clients by listener. `ports`: the bound ports."""
    return {
        each.name: Endpoint(each.advertised.host, each.advertised.port or ports[each.name])
        for each in listeners
        if each.advertised is not None
    }


def _addresses(setting: str, texts: Sequence[str]) -> dict[str, Endpoint]:
    """The addresses by upper-case name of listener. Raises ConfigError."""
    found: dict[str, Endpoint] = {}
    for text in texts:
        match = LISTENER.fullmatch(text)
        port = int(match[4]) if match else PORT_MAX + 1
        if match is None or port > PORT_MAX:
            raise ConfigError(
                f"{setting} = {text!r}: must be NAME://HOST:PORT, such as SECURE://0.0.0.0:9093 or SECURE://[::1]:9093"
            )
        name = match[1].upper()
        if name in found:
            raise ConfigError(f"{setting} has {name} twice: give each listener a name of its own")
        found[name] = Endpoint(match[2] or match[3], port)
    return found


def _protocols(config: BrokerSettings) -> dict[str, str]:
    """The protocol of each name in `listener.security.protocol.map`. Raises ConfigError."""
    found: dict[str, str] = {}
    for text in config.listener_security_protocol_map:
        name, colon, protocol = text.partition(":")
        name, protocol = name.strip().upper(), protocol.strip().upper()
        if not colon or not name or protocol not in PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map has {text!r}: must be NAME:PROTOCOL with a protocol of "
                f"{', '.join(PROTOCOLS)}"
            )
        found[name] = protocol
    return found


def _protocol(name: str, protocols: Mapping[str, str]) -> str:
    """Raise ConfigError for a name without a protocol."""
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(
            f"listeners has {name}, and listener.security.protocol.map does not have it: add {name}:PLAINTEXT or "
            f"{name}:SSL there, and the other listeners too"
        )
    return protocol
