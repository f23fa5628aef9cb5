"""Settings of a command's clients: -X, a file, the environment, and their order."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from client.fake_broker import FakeBroker
from client.fake_sasl import PASSWORD, USER, SaslBroker
from semel._command_line.client_settings import VARIABLES, ClientSettings, client_options
from semel._command_line.setting_texts import own_name, properties, value_of
from semel._config.client import AdminConfig, ClientConfig
from semel._config.producer import ProducerConfig
from semel.errors import KafkaConfigurationError, SaslAuthenticationFailed

TLS = Path(__file__).parents[2] / "data" / "tls"
NAMES = ("bootstrap_servers", "client_id", "max_request_size", "request_timeout_ms")


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BOTH = 'username="alice" password="hush"'
CREDENTIALS = ("security_protocol", "sasl_mechanism", "sasl_plain_username", "sasl_plain_password")


def shown(
    *arguments: str, config: type[ClientConfig] = ProducerConfig, env: dict[str, str] | None = None
) -> tuple[dict[str, Any], Result]:
    """The settings of a command with these arguments, and what it printed."""
    found: dict[str, Any] = {}

    @click.command()
    @client_options(config, by_option={"acks": "give --acks"})
    def command(client: ClientSettings) -> None:
        found.update({name: client.value(name, None) for name in (*NAMES, *CREDENTIALS)})

    unset: dict[str, str | None] = dict.fromkeys(["SEMEL_BOOTSTRAP_SERVER", "SEMEL_CONFIG_FILE", *VARIABLES])
    return found, CliRunner().invoke(command, arguments, env=unset | (env or {}))


def refused(*arguments: str, **options: Any) -> str:
    _, done = shown(*arguments, **options)
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit)
    return done.output


def test_kafka_s_names_are_semel_s_with_dots() -> None:
    assert own_name("max.request.size") == "max_request_size"
    assert own_name("batch.size") == "max_batch_size"
    assert own_name("metadata.broker.list") == "bootstrap_servers"
    assert own_name("request_timeout_ms") == "request_timeout_ms"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("request_timeout_ms", "5000", 5000),
        ("linger_ms", "0.5", 0.5),
        ("enable_idempotence", "True", True),
        ("acks", "1", 1),
        ("acks", "all", "all"),
        ("client_id", "7", "7"),
        ("compression_type", "none", "none"),
        ("connections_max_idle_ms", "none", None),
        ("bootstrap_servers", "a:1,b:2", "a:1,b:2"),
    ],
)
def test_a_text_becomes_a_value_of_the_setting_s_type(name: str, text: str, value: object) -> None:
    found = value_of(name, text)
    assert found == value
    assert type(found) is type(value)


def test_a_wrong_value_is_refused_with_the_allowed_ones() -> None:
    with pytest.raises(KafkaConfigurationError, match="request_timeout_ms=soon: give a whole number from 1"):
        value_of("request_timeout_ms", "soon")


def test_a_file_has_names_values_comments_and_empty_lines() -> None:
    rows = list(properties("# one\n\n! two\na.b = c=d # no comment\nurl: x:1\nempty=\n"))
    assert [(row.name, row.text, row.line) for row in rows] == [
        ("a.b", "c=d # no comment", 4),
        ("url", "x:1", 5),
        ("empty", "", 6),
    ]
    with pytest.raises(ValueError, match=r"^line 2 is not NAME=VALUE$"):
        list(properties("a=b\nsecret\n"))


def test_the_option_wins_over_x_over_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=file:1\nclient.id=of-file\nrequest.timeout.ms=7\n")
    by_file = ("--config-file", str(file))
    environment = {"SEMEL_BOOTSTRAP_SERVER": "environment:1"}
    steps: list[tuple[tuple[str, ...], dict[str, str], str | None]] = [
        ((), {}, None),
        (by_file, {}, "file:1"),
        (by_file, environment, "environment:1"),
        ((*by_file, "-X", "bootstrap.servers=x:1"), environment, "x:1"),
        ((*by_file, "-X", "bootstrap.servers=x:1", "-b", "option:1"), environment, "option:1"),
    ]
    for arguments, env, servers in steps:
        found, done = shown(*arguments, env=env)
        assert done.exit_code == 0, done.output
        assert found["bootstrap_servers"] == servers
    found, _ = shown(*by_file, "-X", "request_timeout_ms=9")
    assert (found["client_id"], found["request_timeout_ms"]) == ("of-file", 9)
    found, _ = shown(env={"SEMEL_CONFIG_FILE": str(file)})
    assert found["client_id"] == "of-file"


def test_an_unknown_setting_of_x_is_an_error_with_the_nearest_name() -> None:
    said = refused("-X", "max.requst.size=1")
    assert "max.requst.size: the client has no such setting. Did you mean 'max_request_size'" in said
    assert "has no use for it" in refused("-X", "max.request.size=1", config=AdminConfig)
    assert "-X: acks: give --acks" in refused("-X", "acks=1")
    assert "an object of Python" in refused("-X", "partitioner=x")
    assert "is not KEY=VALUE" in refused("-X", "acks")


def test_unknown_settings_of_a_file_are_named_once_and_those_of_other_clients_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("acks=1\nmax.request.size=7\nsasl.login.class=x\nsasl.login.class=x\nwhat=1\n")
    found, done = shown("--config-file", str(file), config=AdminConfig)
    assert done.exit_code == 0
    assert found["max_request_size"] == 7
    assert done.stderr == f"{file}: the client has no such setting, ignored: sasl.login.class, what\n"


@pytest.mark.proves("secrets-shown")
def test_no_value_of_a_file_reaches_the_output(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    for text, says in (
        ("the-secret\n", "line 1 is not NAME=VALUE"),
        ("sasl.jaas.config=the-secret\n", "sasl.jaas.config: write one login module"),
        ("sasl.password=" + "the-secret" * 4_000 + "\n", "line 1: sasl_plain_password: give a str"),
        ("ssl.key.password=the-secret\nsecurity.protocol=the-protocol\n", "line 2: "),
    ):
        file.write_text(text)
        said = refused("--config-file", str(file))
        assert says in said
        assert "the-secret" not in said


def test_a_file_that_does_not_exist_is_wrong_usage() -> None:
    _, done = shown("--config-file", "/does/not/exist")
    assert done.exit_code == 2


async def test_tls_trusts_the_certificates_of_the_file_that_is_named() -> None:
    broker = FakeBroker({"t": 1})
    broker.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    broker.tls.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
    async with broker:
        given = {"bootstrap_servers": f"localhost:{broker.port}", "security_protocol": "SSL"}
        async with ClientSettings(given | {"ssl_cafile": str(TLS / "localhost.pem")}, {}).admin() as admin:
            assert await admin.list_topics() == ["t"]
        with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
            async with ClientSettings(given | {"bootstrap_timeout_ms": 500}, {}).admin():
                pass
    with pytest.raises(KafkaConfigurationError, match="ssl_cafile='/does/not/exist': the file cannot be read"):
        async with ClientSettings(given | {"ssl_cafile": "/does/not/exist"}, {}).admin():
            pass


def credentials_of(*arguments: str, env: dict[str, str] | None = None) -> tuple[list[Any], str]:
    """security_protocol, sasl_mechanism, user and password; and what the command said."""
    found, done = shown(*arguments, env=env)
    assert done.exit_code == 0, done.output
    return [found[name] for name in CREDENTIALS], done.stderr


@pytest.mark.parametrize(
    "text",
    [
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} required {BOTH};\n",
        "security.protocol=SASL_SSL\nsasl.mechanisms=PLAIN\nsasl.username=alice\nsasl.password=hush\n",
        "security_protocol=SASL_SSL\nsasl_mechanism=PLAIN\nsasl_plain_username=alice\nsasl_plain_password=hush\n",
    ],
    ids=["kafka", "librdkafka", "semel"],
)
def test_a_file_has_credentials_under_the_names_of_kafka_librdkafka_or_semel(tmp_path: Path, text: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    file.chmod(0o600)
    assert credentials_of("--config-file", str(file)) == (["SASL_SSL", "PLAIN", "alice", "hush"], "")


def test_a_file_with_a_secret_that_every_user_can_read_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.password=hush\n")
    file.chmod(0o644)
    _, said = credentials_of("--config-file", str(file))
    assert said == f"{file}: every user of this machine can read the secrets in it. Try: chmod 600 {file}\n"
    file.write_text("sasl.username=alice\n")
    assert credentials_of("--config-file", str(file))[1] == ""


def test_credentials_come_from_the_environment_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.password=of-file\nsasl.username=of-file\n")
    file.chmod(0o600)
    env = {
        "SEMEL_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "SEMEL_SASL_MECHANISM": "SCRAM-SHA-512",
        "SEMEL_SASL_PASSWORD": "hush",
    }
    found, said = credentials_of("--config-file", str(file), env=env)
    assert found == ["SASL_PLAINTEXT", "SCRAM-SHA-512", "of-file", "hush"]
    assert said == ""
    assert "SEMEL_SASL_MECHANISM: sasl_mechanism=x: give one of" in refused(env={"SEMEL_SASL_MECHANISM": "x"})


def test_a_password_among_the_arguments_is_warned_of() -> None:
    found, said = credentials_of("-X", "sasl.username=alice", "-X", "sasl.password=hush")
    assert found[2:] == ["alice", "hush"]
    assert "-X sasl.password: other users of this machine can see it" in said
    assert "hush" not in said


def test_jaas_of_x_replaces_the_user_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.username=of-file\nsasl.password=of-file\n")
    file.chmod(0o600)
    jaas = f"sasl.jaas.config={PLAIN} required username=alice password=hush;"
    assert credentials_of("--config-file", str(file), "-X", jaas)[0][2:] == ["alice", "hush"]
    scram = jaas.replace("plain.Plain", "scram.Scram")
    assert "and sasl.mechanism is 'PLAIN'" in " ".join(refused("-X", scram).split()), "it would send the password"
    said = refused("-X", jaas, "-X", "sasl.mechanism=SCRAM-SHA-256")
    assert "its login module is for PLAIN, and sasl.mechanism is 'SCRAM-SHA-256'" in " ".join(said.split())


async def test_a_command_authenticates() -> None:
    async with SaslBroker("PLAIN") as broker:
        given = {
            "bootstrap_servers": broker.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }
        async with ClientSettings(given, {}).admin() as admin:
            assert await admin.list_topics() == ["t"]
        with pytest.raises(SaslAuthenticationFailed, match="refused the client with PLAIN") as caught:
            async with ClientSettings(given | {"sasl_plain_password": "another"}, {}).admin():
                pass
        assert "another" not in str(caught.value)
    with pytest.raises(click.ClickException, match="no source of tokens"):
        ClientSettings(given | {"sasl_mechanism": "OAUTHBEARER"}, {}).admin()
