"""Listeners: their names, addresses and protocols, and refused values."""

import pytest
from semel_broker.config.listeners import Endpoint, Listener, advertised_endpoints
from semel_broker.config.loading import ConfigError, load

SINGLE_VARIABLES = {"SEMEL_HOST_NAME": "0.0.0.0", "SEMEL_ADVERTISED_HOST_NAME": "127.0.0.1"}


@pytest.mark.parametrize(
    ("toml", "environment", "overrides", "bound", "advertised"),
    [
        ('host.name = "h"', {}, ["listeners=PLAINTEXT://l:1"], ["l:1"], ["l:0"]),
        ('listeners = "PLAINTEXT://l:1"', {}, ["host.name=h", "port=2"], ["h:2"], ["h:0"]),
        ('listeners = "PLAINTEXT://l:1"', {"SEMEL_PORT": "3"}, [], ["127.0.0.1:3"], ["127.0.0.1:0"]),
        (
            None,
            {
                **SINGLE_VARIABLES,
                "SEMEL_LISTENERS": "PLAINTEXT://0.0.0.0:1",
                "SEMEL_ADVERTISED_LISTENERS": "PLAINTEXT://a:1",
            },
            [],
            ["0.0.0.0:1"],
            ["a:1"],
        ),
        (
            None,
            {**SINGLE_VARIABLES, "SEMEL_LISTENERS": "PLAINTEXT://0.0.0.0:1"},
            ["advertised.host.name=a"],
            ["0.0.0.0:9092"],
            ["a:0"],
        ),
        (None, SINGLE_VARIABLES, ["advertised.host.name=a"], ["0.0.0.0:9092"], ["a:0"]),
        (
            None,
            SINGLE_VARIABLES,
            ["advertised.listeners=PLAINTEXT://a:1", "listeners=PLAINTEXT://l:1"],
            ["l:1"],
            ["a:1"],
        ),
    ],
)
def test_the_last_source_decides_between_one_listener_and_several(
    toml: str | None, environment: dict[str, str], overrides: list[str], bound: list[str], advertised: list[str]
) -> None:
    config = load(toml, environment, overrides)
    assert [str(each.address) for each in config.client_listeners] == bound
    assert [str(each.advertised) for each in config.client_listeners] == advertised


def listeners(*settings: str) -> tuple[Listener, ...]:
    return load(overrides=[*settings, "ssl.keystore.location=f"]).client_listeners


def test_without_listeners_there_is_one_at_host_name_and_port() -> None:
    (only,) = listeners("host.name=0.0.0.0", "port=1", "advertised.host.name=a", "advertised.port=2")
    assert only == Listener("PLAINTEXT", Endpoint("0.0.0.0", 1), "PLAINTEXT", Endpoint("a", 2))
    assert listeners()[0].advertised == Endpoint("127.0.0.1", 0)


def test_listeners_have_names_addresses_and_protocols() -> None:
    client, secure = listeners(
        "listeners=CLIENT://0.0.0.0:9092, SECURE://[::1]:9093",
        "advertised.listeners=SECURE://kafka.example:19093,client://10.0.0.1:0",
        "listener.security.protocol.map=CLIENT:PLAINTEXT,SECURE:SSL",
    )
    assert client == Listener("CLIENT", Endpoint("0.0.0.0", 9092), "PLAINTEXT", Endpoint("10.0.0.1", 0))
    assert secure == Listener("SECURE", Endpoint("::1", 9093), "SSL", Endpoint("kafka.example", 19093))
    assert advertised_endpoints([client, secure], {"CLIENT": 9092, "SECURE": 9093}) == {
        "CLIENT": Endpoint("10.0.0.1", 9092),  # port 0: the bound one
        "SECURE": Endpoint("kafka.example", 19093),
    }


def test_names_of_protocols_need_no_map() -> None:
    assert [each.protocol for each in listeners("listeners=PLAINTEXT://h:1,SSL://h:2")] == ["PLAINTEXT", "SSL"]


def test_a_listener_may_be_left_out_of_the_advertised_ones() -> None:
    one, other = listeners("listeners=PLAINTEXT://h:1,SSL://h:2", "advertised.listeners=SSL://a:3")
    assert (one.advertised, other.advertised) == (None, Endpoint("a", 3))
    assert advertised_endpoints([one, other], {"PLAINTEXT": 1, "SSL": 2}) == {"SSL": Endpoint("a", 3)}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["listeners=PLAINTEXT://h:1", "port=2"], "port and listeners are both given"),
        (["listeners=PLAINTEXT://h:1", "advertised.host.name=a"], "advertised.host.name and listeners are both given"),
        (["advertised.listeners=PLAINTEXT://h:1"], "without listeners"),
        (["listeners=h:1"], "must be NAME://HOST:PORT"),
        (["listeners=PLAINTEXT://h:65536"], "must be NAME://HOST:PORT"),
        (["listeners=PLAINTEXT://::1:9092"], "must be NAME://HOST:PORT"),
        (["listeners=PLAINTEXT://h:1,plaintext://h:2"], "PLAINTEXT twice"),
        (["listeners=PLAINTEXT://h:1,SSL://h:1"], "the same address h:1"),
        (["listeners=CLIENT://h:1"], "listener.security.protocol.map does not have it"),
        (["listeners=PLAINTEXT://h:1", "advertised.listeners=SSL://h:1"], "SSL, which listeners does not have"),
        (["listeners=SASL_SSL://h:1"], "TLS and no certificate"),
        (["listeners=SASL_PLAINTEXT://h:1", "sasl.enabled.mechanisms=PLAIN"], "passwords cross the network readable"),
        (["listeners=SASL_PLAINTEXT://h:1", "sasl.enabled.mechanisms="], "sasl.enabled.mechanisms is empty"),
        (["listeners=SASL_PLAINTEXT://h:1", "sasl.enabled.mechanisms=GSSAPI"], "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        (["listeners=A://h:1", "listener.security.protocol.map=A:TLS"], "a protocol of PLAINTEXT, SSL"),
    ],
)
def test_contradictions_are_refused(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(overrides=settings)
