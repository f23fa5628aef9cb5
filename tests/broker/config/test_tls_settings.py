"""The TLS settings of listeners: those of the broker, those of one listener, and refused values."""

import pytest
from semel_broker.config.loading import BROKER_SETTINGS, ConfigError, load

TWO = ["listeners=IN_SIDE://h:1,OUT://h:2", "listener.security.protocol.map=IN_SIDE:SSL,OUT:SSL"]


def test_a_listener_has_the_settings_of_the_broker_and_its_own_over_them() -> None:
    config = load(
        overrides=[
            *TWO,
            "ssl.keystore.location=all.pem",
            "ssl.truststore.location=ca.pem",
            "listener.name.out.ssl.keystore.location=out.pem",
            "listener.name.out.ssl.client.auth=required",
        ]
    )
    inside, out = config.tls_of("IN_SIDE"), config.tls_of("OUT")
    assert (inside.keystore_location, inside.client_auth) == ("all.pem", "none")
    assert (out.keystore_location, out.client_auth, out.truststore_location) == ("out.pem", "required", "ca.pem")


@pytest.mark.parametrize(
    ("toml", "environment"),
    [
        ("", {"SEMEL_LISTENER_NAME_IN_SIDE_SSL_KEYSTORE_LOCATION": "own.pem"}),
        ('[listener.name.in_side]\nssl.keystore.location = "own.pem"', {}),
        ('listener.name."IN_SIDE".ssl.keystore.location = "own.pem"', {}),
    ],
)
def test_files_and_variables_name_listeners_too(toml: str, environment: dict[str, str]) -> None:
    config = load(toml, environment, [*TWO, "ssl.keystore.location=all.pem"])
    assert config.tls_of("IN_SIDE").keystore_location == "own.pem"
    assert config.tls_of("OUT").keystore_location == "all.pem"
    assert config.warnings == []


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([], "TLS and no certificate: give ssl.keystore.location"),
        (["ssl.keystore.type=JKS"], "must be one of PEM"),
        (["ssl.key.location=k"], "no certificate"),
        (["ssl.keystore.key=k"], "ssl.keystore.certificate.chain and ssl.keystore.key together"),
        (["ssl.keystore.location=f", "ssl.keystore.certificate.chain=c"], "are both given"),
        (["ssl.keystore.location=f", "ssl.client.auth=required"], "needs the CAs of the clients' certificates"),
        (["ssl.keystore.location=f", "ssl.client.auth=maybe"], "must be one of none, requested, required"),
        (["ssl.keystore.location=f", "ssl.enabled.protocols=TLSv1.1"], "TLSv1.2, TLSv1.3"),
        (["ssl.keystore.location=f", "ssl.enabled.protocols="], "ssl.enabled.protocols is empty"),
        (["listener.name.other.ssl.client.auth=none"], "listeners does not have this listener; it has SSL"),
        (["listener.name.ssl.port=1"], "settings ssl.*, sasl.* and connections.max.reauth.ms of its own"),
        (["listener.name.ssl.ssl.client.auth=maybe"], "must be one of none, requested, required"),
    ],
)
def test_incomplete_settings_are_refused(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load(overrides=["listeners=SSL://h:1", *settings])


def test_settings_of_tls_without_a_listener_with_tls_are_not_checked() -> None:
    assert load(overrides=["ssl.client.auth=required"]).ssl_client_auth == "required"


@pytest.mark.proves("secrets-shown")
def test_secrets_are_in_no_error_and_no_repr() -> None:
    config = load(
        overrides=["listeners=SSL://h:1", "ssl.keystore.location=f", "ssl.key.password=hunter2", "ssl.keystore.key="]
    )
    assert "hunter2" not in repr(config)
    assert "hunter2" not in repr(config.tls_of("SSL"))
    with pytest.raises(ConfigError) as error:
        BROKER_SETTINGS["ssl.key.password"].parse(["hunter2"])
    assert "hunter2" not in str(error.value)
