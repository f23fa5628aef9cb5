"""The client's TLS: from files, against a broker, and each error in one sentence."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from semel import Admin, Consumer, Producer, TopicPartition
from semel.errors import KafkaConfigurationError, KafkaConnectionError, TopicAuthorizationFailedError
from semel_broker.testing.authority import Authority
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.issue("server", "127.0.0.1")
    made.issue("client")
    return made


def broker_of(authority: Authority, **settings: str) -> EphemeralBroker:
    return EphemeralBroker(
        {
            "listener.security.protocol.map": "PLAINTEXT:SSL",
            "ssl.keystore.location": authority.directory / "server.pem",
            "ssl.truststore.location": authority.ca_file,
            **settings,
        }
    )


async def test_records_go_both_ways_over_tls(authority: Authority) -> None:
    with broker_of(authority, **{"ssl.client.auth": "required"}) as broker:
        tls: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_cafile": str(authority.ca_file),
            "ssl_certfile": str(authority.directory / "client.pem"),
        }
        async with Producer(**tls) as producer:
            for number in range(100):
                await producer.send("t", b"%d" % number)
        async with Consumer("t", **tls, auto_offset_reset="earliest") as consumer:
            assert [(await consumer.getone()).value for _ in range(100)] == [b"%d" % number for number in range(100)]


async def test_the_error_of_a_missing_right_names_the_principal_of_a_certificate(authority: Authority) -> None:
    """It does not know how the broker maps its certificate: the broker's metadata say it."""
    access = {
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^.*$/reader/,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root",
    }
    with broker_of(authority, **access) as broker:
        broker.create_topic("t")
        consumer = Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol="SSL",
            ssl_cafile=str(authority.ca_file),
            ssl_certfile=str(authority.directory / "client.pem"),
        )
        async with consumer:
            consumer.assign([TopicPartition("t", 0)])
            with pytest.raises(TopicAuthorizationFailedError) as refused:
                await consumer.getone()
    assert str(refused.value).endswith(
        "User:reader may not READ TOPIC 't'. An administrator can allow it: "
        "semel acl add --principal User:reader --allow read --topic t"
    )


async def said_by(broker: EphemeralBroker, **settings: Any) -> str:
    """The error of a client that cannot connect."""
    given = {"security_protocol": "SSL", "bootstrap_timeout_ms": 500, **settings}
    with pytest.raises(KafkaConnectionError) as caught:
        await Admin(bootstrap_servers=broker.bootstrap_servers, **given).start()
    return str(caught.value)


@pytest.mark.proves("invalid-certificates")
async def test_a_wrong_ca_is_named(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    with broker_of(authority) as broker:
        said = await said_by(broker, ssl_cafile=str(other.ca_file))
    assert "the broker's certificate is not trusted: set ssl_cafile to the CA that signed it" in said


@pytest.mark.proves("invalid-certificates")
async def test_a_wrong_host_name_is_named(authority: Authority) -> None:
    renamed = str(authority.issue("renamed", "kafka.example"))
    with broker_of(authority, **{"ssl.keystore.location": renamed}) as broker:
        assert "is not valid for '127.0.0.1'" in await said_by(broker, ssl_cafile=str(authority.ca_file))
        settings: dict[str, Any] = {"ssl_cafile": str(authority.ca_file), "ssl_check_hostname": False}
        async with Admin(bootstrap_servers=broker.bootstrap_servers, security_protocol="SSL", **settings) as admin:
            assert (await admin.describe_cluster()).brokers


async def test_an_expired_certificate_is_named(authority: Authority) -> None:
    late = str(authority.issue("late", "127.0.0.1", days=-1))
    with broker_of(authority, **{"ssl.keystore.location": late}) as broker:
        assert "certificate has expired; renew it" in await said_by(broker, ssl_cafile=str(authority.ca_file))


async def test_a_missing_client_certificate_is_named(authority: Authority) -> None:
    with broker_of(authority, **{"ssl.client.auth": "required"}) as broker:
        said = await said_by(broker, ssl_cafile=str(authority.ca_file))
    assert "the broker requires a client certificate: set ssl_certfile and ssl_keyfile" in said


async def test_tls_on_a_plaintext_port_and_plaintext_on_a_tls_port_are_named(authority: Authority) -> None:
    with EphemeralBroker() as broker:
        assert "does this listener speak TLS?" in await said_by(broker, ssl_cafile=str(authority.ca_file))
    with broker_of(authority) as broker:
        said = await said_by(broker, security_protocol="PLAINTEXT")
    assert "if this listener speaks TLS, set security_protocol='SSL'" in said


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ssl_cafile": "missing.pem"}, "ssl_cafile='missing.pem': the file cannot be read: No such file"),
        ({"ssl_cafile": "CA", "ssl_certfile": "missing.pem"}, "ssl_certfile='missing.pem'.*cannot be read"),
        ({"ssl_cafile": "CA", "ssl_certfile": "CA"}, "cannot be read as PEM"),
        ({"ssl_cafile": "CA", "ssl_keyfile": "k"}, "without ssl_certfile"),
        ({"security_protocol": "PLAINTEXT", "ssl_cafile": "CA"}, "ssl_cafile is given but security_protocol is"),
        ({"security_protocol": "PLAINTEXT", "ssl_check_hostname": False}, "ssl_check_hostname is given but"),
    ],
)
def test_files_that_do_not_fit_are_named_when_the_client_is_made(
    authority: Authority, settings: dict[str, Any], words: str
) -> None:
    ca_file = str(authority.ca_file)
    given = {name: ca_file if value == "CA" else value for name, value in settings.items()}
    with pytest.raises(KafkaConfigurationError, match=words):
        Producer(**{"security_protocol": "SSL", **given})


@pytest.mark.parametrize(
    ("password", "words"),
    [
        ("wrong", "the key cannot be decrypted, its password is wrong: correct ssl_password"),
        (None, "the private key of the client is encrypted: give ssl_password"),
        ("right", None),
    ],
)
def test_a_wrong_password_of_the_key_is_named(
    authority: Authority, tmp_path: Path, password: str | None, words: str | None
) -> None:
    """Some versions of OpenSSL give no reason for it."""
    client = authority.directory / "client.pem"
    command = ["openssl", "pkey", "-in", str(client), "-aes128", "-passout", "pass:right"]
    key = tmp_path / "key.pem"
    key.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    files = {"ssl_cafile": str(authority.ca_file), "ssl_certfile": str(client), "ssl_keyfile": str(key)}
    if words is None:
        Producer(security_protocol="SSL", ssl_password=password, **files)
        return
    with pytest.raises(KafkaConfigurationError, match=words):
        Producer(security_protocol="SSL", ssl_password=password, **files)


async def test_without_files_the_cas_of_the_system_are_trusted(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker_of(authority) as broker:
        assert "the broker's certificate is not trusted: set ssl_cafile" in await said_by(broker)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))  # OpenSSL reads it in place of the system's file
        async with Producer(bootstrap_servers=broker.bootstrap_servers, security_protocol="SSL") as producer:
            await producer.send_and_wait("t", b"v")
