"""PURE: the listener for other brokers: its address and protocol, and the principals that may connect to it.

Either `inter.broker.listener.name` names one of `listeners`, which then serves no clients. Or the address is
`peer.host.name` and `peer.port`, and `security.inter.broker.protocol` is the protocol; this listener is called PEERS.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from semel_broker.config.broker_settings import BrokerSettings
from semel_broker.config.listeners import PLAINTEXT, SSL, Endpoint, Listener
from semel_broker.config.principal_rules import NoPrincipalError, PrincipalRules
from semel_broker.config.settings import ConfigError

PEERS: Final = "PEERS"
SHORT_FORM: Final = ("peer.host.name", "peer.port", "advertised.peer.host.name", "advertised.peer.port")
PROTOCOL: Final = "security.inter.broker.protocol"


class PeerListener(msgspec.Struct, frozen=True):
    """The listener for other brokers. `advertised`: the address that they connect to; port 0: the bound one."""

    name: str
    address: Endpoint
    protocol: str
    advertised: Endpoint
    setting: str
    """The name of the setting with the advertised address."""

    @property
    def has_tls(self) -> bool:
        return self.protocol == SSL


def split(
    config: BrokerSettings, given: Mapping[str, str], listeners: tuple[Listener, ...]
) -> tuple[tuple[Listener, ...], PeerListener]:
    """The listeners for clients, and the one for brokers. `given`: the settings that have been set.

    Raises ConfigError.
    """
    name = config.inter_broker_listener_name.upper()
    if not name:
        return listeners, _short(config, listeners)
    if not config.listeners:
        raise ConfigError(
            f"inter.broker.listener.name = {name} is given without listeners: name the listeners for clients and for "
            "brokers there, or leave it out and give peer.host.name and peer.port"
        )
    for setting in (*SHORT_FORM, PROTOCOL):
        if setting in given:
            raise ConfigError(
                f"{setting} and inter.broker.listener.name are both given: leave out {setting}; listeners, "
                "advertised.listeners and listener.security.protocol.map have the address and protocol of that listener"
            )
    clients = tuple(each for each in listeners if each.name != name)
    if len(clients) == len(listeners):
        raise ConfigError(
            f"inter.broker.listener.name = {name}: listeners does not have it; add {name}://HOST:PORT there"
        )
    if not clients:
        raise ConfigError(f"listeners has {name} alone, which is for brokers only: add a listener for clients")
    (own,) = (each for each in listeners if each.name == name)
    if own.advertised is None:
        raise ConfigError(f"advertised.listeners does not have {name}, which other brokers connect to: add it there")
    return clients, PeerListener(name, own.address, own.protocol, own.advertised, "advertised.listeners")


def _short(config: BrokerSettings, listeners: tuple[Listener, ...]) -> PeerListener:
    if config.security_inter_broker_protocol == SSL and any(each.name == PEERS for each in listeners):
        raise ConfigError(f"listeners has {PEERS}, which is the name of the listener at peer.port: choose another name")
    host = config.peer_host_name or listeners[0].address.host
    return PeerListener(
        PEERS,
        Endpoint(host, config.peer_port),
        SSL if config.security_inter_broker_protocol == SSL else PLAINTEXT,
        Endpoint(config.advertised_peer_host_name or host, config.advertised_peer_port),
        "--advertised-peer-host (advertised.peer.host.name)",
    )


class NotABrokerError(NoPrincipalError):
    """The principal of a certificate is not that of a broker."""

    reason = "not_a_broker"
    do = "if it is a broker, add its principal to broker.principals; if it is a client, give it a client listener"


class BrokerPrincipals:
    """The principals in `broker.principals`."""

    def __init__(self, rules: PrincipalRules, names: Iterable[str]) -> None:
        self._rules, self._names = rules, frozenset(names)

    def principal(self, certificate: bytes | None) -> str:
        """The principal of a broker with this certificate. Raises NoPrincipalError, NotABrokerError."""
        name = self._rules.principal(certificate)
        if name not in self._names:
            raise NotABrokerError(f"broker.principals does not have {name}")
        return name
