"""The listener for other brokers: one of `listeners`, or peer.port with a protocol; and refused values."""

import pytest
from semel_broker.config.listeners import Endpoint
from semel_broker.config.loading import BROKER_SETTINGS, BrokerConfig, ConfigError, load
from semel_broker.config.peer_listener import BrokerPrincipals, NotABrokerError
from semel_broker.config.principal_rules import PrincipalRules

NAMED = [
    "listeners=CLIENT://h:1,INTERNAL://inside:2",
    "inter.broker.listener.name=internal",
    "listener.security.protocol.map=CLIENT:PLAINTEXT,INTERNAL:SSL",
]
TLS = ["ssl.keystore.location=f", "ssl.truststore.location=ca", "broker.principals=User:CN=broker"]
ETCD = "etcd.endpoints=http://etcd:2379"


def of(*settings: str) -> BrokerConfig:
    return load(overrides=[ETCD, *settings])


def test_without_settings_it_is_plaintext_at_the_host_of_the_first_listener() -> None:
    listener = of("host.name=h", "peer.port=7").peer_listener
    assert (listener.name, listener.address, listener.has_tls) == ("PEERS", Endpoint("h", 7), False)
    assert listener.advertised == Endpoint("h", 0)


def test_the_short_form_has_a_protocol() -> None:
    config = of("peer.host.name=p", "advertised.peer.host.name=a", "security.inter.broker.protocol=SSL", *TLS)
    listener = config.peer_listener
    assert (listener.address, listener.advertised, listener.has_tls) == (Endpoint("p", 0), Endpoint("a", 0), True)
    assert config.tls_of("PEERS").client_auth == "required"
    own = of("security.inter.broker.protocol=SSL", *TLS, "listener.name.peers.ssl.keystore.location=own")
    assert own.tls_of("PEERS").keystore_location == "own"


def test_the_named_listener_serves_no_clients() -> None:
    config = of(*NAMED, *TLS, "advertised.listeners=CLIENT://c:0,INTERNAL://a:9")
    assert [each.name for each in config.client_listeners] == ["CLIENT"]
    listener = config.peer_listener
    assert (listener.name, listener.address, listener.advertised) == (
        "INTERNAL",
        Endpoint("inside", 2),
        Endpoint("a", 9),
    )


def test_certificates_of_the_named_listener_are_required_and_may_be_its_own() -> None:
    config = of(*NAMED, *TLS, "listener.name.internal.ssl.keystore.location=own", "ssl.client.auth=none")
    tls = config.tls_of("INTERNAL")
    assert (tls.keystore_location, tls.client_auth, tls.endpoint_identification) == ("own", "required", "https")
    off = of(*NAMED, *TLS, "listener.name.internal.ssl.endpoint.identification.algorithm=")
    assert off.tls_of("INTERNAL").endpoint_identification == ""


def test_a_named_listener_may_be_plaintext() -> None:
    config = of(
        "listeners=A://h:1,B://h:2",
        "inter.broker.listener.name=B",
        "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT",
    )
    assert not config.peer_listener.has_tls


def test_a_broker_alone_says_that_the_listener_is_not_used() -> None:
    assert "there is no etcd.endpoints" in load(overrides=[*NAMED, *TLS]).warnings[0]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["inter.broker.listener.name=A"], "given without listeners"),
        (["listeners=PLAINTEXT://h:1", "inter.broker.listener.name=A"], "listeners does not have it; add A://"),
        (["listeners=PLAINTEXT://h:1", "inter.broker.listener.name=PLAINTEXT"], "add a listener for clients"),
        ([*NAMED, *TLS, "peer.port=3"], "leave out peer.port"),
        ([*NAMED, *TLS, "security.inter.broker.protocol=SSL"], "leave out security.inter.broker.protocol"),
        ([*NAMED, *TLS, "advertised.listeners=CLIENT://c:0"], "advertised.listeners does not have INTERNAL"),
        ([*NAMED, *TLS[:2]], "broker.principals is empty"),
        ([*NAMED, *TLS[:1], TLS[2]], "give ssl.truststore.location"),
        ([*NAMED, *TLS[1:]], "give ssl.keystore.location"),
        ([*NAMED, *TLS[:2], "broker.principals=CN=broker"], "must be principals, such as User:CN=broker-1"),
        (["broker.principals=User:b"], "the listener for brokers has no TLS"),
        ([*NAMED, *TLS, "ssl.endpoint.identification.algorithm=maybe"], "must be https or empty"),
        (["security.inter.broker.protocol=SASL_SSL"], "must be one of PLAINTEXT, SSL"),
        (
            [
                "listeners=PEERS://h:1",
                "listener.security.protocol.map=PEERS:PLAINTEXT",
                *TLS,
                "security.inter.broker.protocol=SSL",
            ],
            "choose another name",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        of(*settings)


def test_no_principal_is_a_broker_but_those_of_the_setting() -> None:
    assert of(*NAMED, *TLS[:2], "broker.principals= User:a ; User:b ;").broker_principal_names == ["User:a", "User:b"]
    principals = BrokerPrincipals(PrincipalRules(""), ["User:a"])
    with pytest.raises(NotABrokerError, match=r"broker.principals does not have User:ANONYMOUS"):
        principals.principal(None)


def test_principals_of_brokers_do_not_change_while_the_broker_runs() -> None:
    """A principal that may alter settings of the cluster cannot make itself a broker."""
    assert not BROKER_SETTINGS["broker.principals"].doc.dynamic
