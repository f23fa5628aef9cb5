"""TLS listeners: requests, large answers, certificates that change, and each way in which a handshake fails."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch, fetch_request
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from semel_broker.config.loading import ConfigError, load
from semel_broker.net.tls_contexts import server_context
from semel_broker.scheduling.folded_log import KIND_LINES_MAX
from semel_broker.testing.authority import Authority
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.quotas import QuotaEntity

pytestmark = pytest.mark.real_time
WAIT_S = 10


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.issue("server", "127.0.0.1", "::1", "localhost")
    made.issue("client")
    return made


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A CA that the broker does not know."""
    made = Authority(tmp_path_factory.mktemp("stranger"))
    made.issue("client")
    return made


@pytest.fixture
def start_tls(start_broker: StartBroker, authority: Authority) -> Any:
    async def start(**settings: str) -> Harness:
        return await start_broker(
            listeners="SSL://127.0.0.1:0",
            durability="os",
            **{
                "ssl_keystore_location": str(authority.directory / "server.pem"),
                "ssl_truststore_location": str(authority.ca_file),
                **settings,
            },
        )

    return start


def context_of(ca_file: Path, certificate: Path | None = None, **versions: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca_file))
    for name, version in versions.items():
        setattr(context, name, version)
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context


async def connect(broker: Harness, context: ssl.SSLContext, name: str = "localhost") -> Wire:
    streams = await asyncio.open_connection("127.0.0.1", broker.port, ssl=context, server_hostname=name)
    return Wire(*streams)


async def refuses(broker: Harness, context: ssl.SSLContext, name: str = "localhost") -> None:
    """A client that refuses the certificate of the broker, and sends the alert; asyncio's streams do not send it."""

    def connect_in_thread() -> None:
        with (
            socket.create_connection(("127.0.0.1", broker.port)) as plain,
            context.wrap_socket(plain, server_hostname=name),
        ):
            raise AssertionError("the certificate was accepted")

    with pytest.raises(ssl.SSLCertVerificationError):
        await asyncio.to_thread(connect_in_thread)


async def until(condition: Any) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)  # other threads and sockets: there is nothing to await


async def failure(broker: Harness) -> dict[str, object]:
    """The one log line of a failed handshake."""
    await until(lambda: broker.log.of("tls_handshake_failed"))
    (line,) = broker.log.of("tls_handshake_failed")
    assert line["client_host"] == "127.0.0.1"
    assert line["listener"] == "SSL"
    assert not [name for name, fields in broker.log.lines if "exc_info" in fields], "no traceback"
    assert broker.node is not None
    assert len(broker.node.server._handshakes) == 0
    return line


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_requests_are_answered(start_tls: Any, authority: Authority, version: ssl.TLSVersion) -> None:
    broker = await start_tls()
    wire = await connect(broker, context_of(authority.ca_file, minimum_version=version, maximum_version=version))
    await wire.create_topic("t")
    assert (await wire.produce("t", batch(b"a", b"b"))).error_code == 0
    assert len((await wire.fetch("t", 0)).records) > 0
    await wire.close()
    await until(lambda: broker.node.server.connection_count == 0)
    assert broker.log.of("tls_handshake_failed") == []


async def test_large_requests_and_answers_arrive_whole(start_tls: Any, authority: Authority) -> None:
    """Both are many TLS records, and more than the kernel takes at once."""
    broker = await start_tls(message_max_bytes="20000000")
    wire = await connect(broker, context_of(authority.ca_file))
    await wire.create_topic("t")
    value = bytes(range(256)) * 40_000
    for _ in range(3):
        assert (await wire.produce("t", batch(value))).error_code == 0
    for _ in range(3):
        wire.send(fetch_request("t", 0, max_bytes=40_000_000))
    for _ in range(3):
        answer = await wire.receive()
        assert bytes(answer.responses[0].partitions[0].records).count(value) == 1
    await wire.close()


async def test_pipelined_requests_behind_the_handshake_are_read(start_tls: Any, authority: Authority) -> None:
    broker = await start_tls()
    wire = await connect(broker, context_of(authority.ca_file))
    for _ in range(500):
        wire.send(ApiVersionsRequest(), 0)
    for _ in range(500):
        assert (await wire.receive()).error_code == 0
    await wire.close()


async def test_a_new_certificate_is_used_by_new_connections_alone(
    start_tls: Any, tmp_path: Path, authority: Authority
) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    file = first.issue("server", "localhost")
    broker = await start_tls(ssl_keystore_location=str(file))
    old = await connect(broker, context_of(first.ca_file))
    file.write_text("-----BEGIN CERTIFICATE-----\nhalf of it")
    await until(lambda: broker.log.of("certificates_not_reloaded"))
    again = await connect(broker, context_of(first.ca_file))  # a broken file changes nothing
    second.issue("server", "localhost").replace(file)
    await until(lambda: broker.log.of("certificates_reloaded"))
    new = await connect(broker, context_of(second.ca_file))
    for wire in (old, again, new):
        assert (await wire.call(ApiVersionsRequest(), 0)).error_code == 0
        await wire.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(broker, context_of(first.ca_file))


async def test_forged_bytes_after_the_handshake_cost_the_connection(start_tls: Any, authority: Authority) -> None:
    broker = await start_tls()
    wire = await connect(broker, context_of(authority.ca_file))
    assert (await wire.call(ApiVersionsRequest(), 0)).error_code == 0
    os.write(wire.writer.get_extra_info("socket").fileno(), b"\x17\x03\x03\x00\x20" + b"x" * 32)
    assert await wire.closed_by_peer()
    await until(lambda: broker.log.of("connection_closed"))
    (line,) = broker.log.of("connection_closed")
    assert line["reason"] == "connection_lost"
    assert "RECORD" in str(line["error"])  # OpenSSL says what failed: BAD_RECORD_MAC, or RECORD_LAYER_FAILURE with 3.5
    await wire.close()


async def test_a_stop_does_not_wait_for_handshakes(start_tls: Any) -> None:
    broker = await start_tls()
    wire = await Wire.connect(broker.port)
    await until(lambda: len(broker.node.server._handshakes) == 1)
    async with asyncio.timeout(2):
        await broker.stop()
    assert await wire.closed_by_peer()
    await wire.close()


# --- handshakes that fail


async def test_a_plaintext_client_is_named(start_tls: Any) -> None:
    broker = await start_tls()
    wire = await Wire.connect(broker.port)
    wire.send(ApiVersionsRequest(), 0)
    assert await wire.closed_by_peer()
    line = await failure(broker)
    assert (line["reason"], line["error"]) == ("not_tls", "this looks like Kafka's protocol in plaintext")
    await wire.close()


async def test_http_is_named(start_tls: Any) -> None:
    broker = await start_tls()
    wire = await Wire.connect(broker.port)
    wire.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
    assert await wire.closed_by_peer()
    line = await failure(broker)
    assert line["reason"] == "not_tls"
    assert "HTTP" in str(line["error"])
    await wire.close()


async def test_a_client_that_does_not_know_the_ca_is_named(start_tls: Any, stranger: Authority) -> None:
    broker = await start_tls()
    await refuses(broker, context_of(stranger.ca_file))
    assert (await failure(broker))["reason"] == "client_does_not_know_ca"


async def test_a_client_that_expects_another_host_is_named(start_tls: Any, authority: Authority) -> None:
    broker = await start_tls()
    await refuses(broker, context_of(authority.ca_file), "other.example")
    assert (await failure(broker))["reason"] == "client_refused_certificate"


@pytest.mark.proves("invalid-certificates")
async def test_an_expired_certificate_of_the_broker_is_named(start_tls: Any, tmp_path: Path) -> None:
    late = Authority(tmp_path / "late")
    broker = await start_tls(ssl_keystore_location=str(late.issue("server", "localhost", days=-1)))
    await refuses(broker, context_of(late.ca_file))
    assert (await failure(broker))["reason"] == "broker_certificate_expired"


async def test_no_common_protocol_is_named(start_tls: Any, authority: Authority) -> None:
    broker = await start_tls(ssl_enabled_protocols="TLSv1.3")
    with pytest.raises(ssl.SSLError):
        await connect(broker, context_of(authority.ca_file, maximum_version=ssl.TLSVersion.TLSv1_2))
    assert (await failure(broker))["reason"] == "no_common_protocol"


async def refused_at_once(broker: Harness, context: ssl.SSLContext) -> None:
    """With TLS 1.3 the client learns of it after its own side of the handshake."""

    async def connect_and_ask() -> None:
        wire = await connect(broker, context)
        await wire.call(ApiVersionsRequest(), 0)

    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await connect_and_ask()


async def test_a_missing_client_certificate_is_named(start_tls: Any, authority: Authority) -> None:
    broker = await start_tls(ssl_client_auth="required")
    await refused_at_once(broker, context_of(authority.ca_file))
    assert (await failure(broker))["reason"] == "no_client_certificate"


@pytest.mark.proves("invalid-certificates")
@pytest.mark.parametrize("client_auth", ["requested", "required"])
async def test_a_client_certificate_of_an_unknown_ca_is_named(
    start_tls: Any, authority: Authority, stranger: Authority, client_auth: str
) -> None:
    broker = await start_tls(ssl_client_auth=client_auth)
    await refused_at_once(broker, context_of(authority.ca_file, stranger.directory / "client.pem"))
    assert (await failure(broker))["reason"] == "client_certificate_not_trusted"


@pytest.mark.proves("invalid-certificates")
async def test_an_expired_client_certificate_is_named(start_tls: Any, authority: Authority) -> None:
    broker = await start_tls(ssl_client_auth="required")
    await refused_at_once(broker, context_of(authority.ca_file, authority.issue("late", days=-1)))
    assert (await failure(broker))["reason"] == "client_certificate_expired"


@pytest.mark.proves("invalid-certificates")
async def test_a_client_certificate_with_a_weak_key_is_named(start_tls: Any, authority: Authority, weak: Path) -> None:
    broker = await start_tls(ssl_client_auth="required", ssl_truststore_location=str(weak))
    context = context_of(authority.ca_file)
    context.set_ciphers("DEFAULT@SECLEVEL=0")  # the client itself would refuse to show it
    context.load_cert_chain(weak)
    await refused_at_once(broker, context)
    line = await failure(broker)
    assert line["reason"] == "client_certificate_weak"
    assert "RSA of 2048 bits" in str(line["do"])


@pytest.mark.proves("invalid-certificates")
async def test_a_weak_key_of_a_listener_stops_the_start(start_tls: Any, weak: Path) -> None:
    with pytest.raises(ConfigError, match="too weak; use RSA of 2048 bits"):
        await start_tls(ssl_keystore_location=str(weak))


@pytest.fixture
def weak(tmp_path: Path) -> Path:
    """A certificate without restrictions, signed with its own RSA key of 1024 bits, and this key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "weak")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    file = tmp_path / "weak.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file.write_bytes(private + made.public_bytes(Encoding.PEM))
    return file


@pytest.mark.proves("unauthenticated-clients")
def test_renegotiation_is_off(authority: Authority) -> None:
    config = load(
        overrides=["listeners=SSL://127.0.0.1:0", f"ssl.keystore.location={authority.directory / 'server.pem'}"]
    )
    assert server_context(config.tls_of("SSL")).options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize("client_auth", ["requested", "required"])
async def test_a_client_certificate_is_accepted(start_tls: Any, authority: Authority, client_auth: str) -> None:
    broker = await start_tls(ssl_client_auth=client_auth)
    wire = await connect(broker, context_of(authority.ca_file, authority.directory / "client.pem"))
    assert (await wire.call(ApiVersionsRequest(), 0)).error_code == 0
    await wire.close()


async def test_a_certificate_is_not_needed_if_it_is_only_requested(start_tls: Any, authority: Authority) -> None:
    broker = await start_tls(ssl_client_auth="requested")
    wire = await connect(broker, context_of(authority.ca_file))
    assert (await wire.call(ApiVersionsRequest(), 0)).error_code == 0
    await wire.close()


async def test_a_client_that_goes_in_the_middle_is_named(start_tls: Any) -> None:
    broker = await start_tls()
    wire = await Wire.connect(broker.port)
    wire.send_bytes(b"\x16\x03\x01\x02\x00\x01\x00")
    await wire.writer.drain()
    await wire.close()
    assert (await failure(broker))["reason"] == "closed_in_handshake"


async def test_bytes_that_only_begin_like_tls_are_named(start_tls: Any) -> None:
    broker = await start_tls()
    wire = await Wire.connect(broker.port)
    wire.send_bytes(b"\x16\x03\x01\x00\x05hello")
    await wire.reader.read()
    assert (await failure(broker))["reason"] == "handshake_failed"
    await wire.close()


# --- principals


async def principals(broker: Harness, context: ssl.SSLContext) -> list[str]:
    wire = await connect(broker, context)
    assert (await wire.call(ApiVersionsRequest(), 0)).error_code == 0
    assert broker.node is not None
    found = [connection.peer.principal.name for connection in broker.node.server._connections]
    await wire.close()
    return found


async def test_the_subject_of_the_certificate_is_the_principal(start_tls: Any, authority: Authority) -> None:
    with_certificate = context_of(authority.ca_file, authority.directory / "client.pem")
    broker = await start_tls(ssl_client_auth="requested")
    (principal,) = await principals(broker, with_certificate)
    assert principal.startswith("User:CN=client,")
    await until(lambda: broker.node.server.connection_count == 0)
    assert await principals(broker, context_of(authority.ca_file)) == ["User:ANONYMOUS"]


async def test_a_rule_of_one_listener_names_the_principal(start_tls: Any, authority: Authority) -> None:
    own = {"listener_name_ssl_ssl_principal_mapping_rules": "RULE:^CN=([^,]*),.*$/$1/U"}
    broker = await start_tls(ssl_client_auth="required", **own)
    assert await principals(broker, context_of(authority.ca_file, authority.directory / "client.pem")) == [
        "User:CLIENT"
    ]


async def test_a_subject_without_a_rule_is_refused(start_tls: Any, authority: Authority) -> None:
    broker = await start_tls(ssl_client_auth="required", ssl_principal_mapping_rules="RULE:CN=other/x/")
    await refused_at_once(broker, context_of(authority.ca_file, authority.directory / "client.pem"))
    assert (await failure(broker))["reason"] == "no_principal"


# --- bounds


def limit(broker: Harness, **limits: int) -> None:
    from msgspec.structs import replace

    assert broker.node is not None
    server = broker.node.server
    server._tls_context.limits = replace(server._tls_context.limits, **limits)
    now = server._tls_context.limits
    server._handshakes._count_max = now.tls_handshakes_max
    server._handshakes._per_address_max = now.tls_handshakes_per_address_max
    server._handshakes._stalled_s = now.tls_handshake_stalled_ms / 1000


@pytest.mark.proves("unauthenticated-clients")
async def test_silent_connections_are_closed(start_tls: Any) -> None:
    broker = await start_tls()
    limit(broker, tls_handshake_timeout_ms=50)
    wire = await Wire.connect(broker.port)
    assert await wire.closed_by_peer()
    assert (await failure(broker))["reason"] == "handshake_timeout"
    await wire.close()


@pytest.mark.proves("unauthenticated-clients")
async def test_a_long_handshake_is_closed(start_tls: Any) -> None:
    broker = await start_tls()
    limit(broker, tls_handshake_bytes_max=1_000)
    wire = await Wire.connect(broker.port)
    wire.send_bytes(b"\x16\x03\x01\x3f\xff\x01\x00\x3f\xf0" + b"x" * 2_000)
    assert await wire.closed_by_peer()
    assert (await failure(broker))["reason"] == "handshake_too_long"
    await wire.close()


@pytest.mark.proves("unauthenticated-clients")
async def test_half_open_handshakes_leave_room_for_others(start_tls: Any, authority: Authority) -> None:
    broker = await start_tls()
    limit(broker, tls_handshakes_per_address_max=8, tls_handshake_stalled_ms=0)
    silent = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(50)]
    server = broker.node.server
    failed = server._tls_context.counters.failed_handshakes
    await until(lambda: sum(failed.values()) == 42)
    assert len(server._handshakes) == 8
    assert len(broker.log.of("tls_handshake_failed")) == KIND_LINES_MAX, "the others are folded"
    assert {line["reason"] for line in broker.log.of("tls_handshake_failed")} == {"handshake_stalled"}
    wire = await connect(broker, context_of(authority.ca_file))
    assert (await wire.call(ApiVersionsRequest(), 0)).error_code == 0
    await wire.close()
    for each in silent:
        each.close()


# --- files


@pytest.fixture
def damaged(authority: Authority, tmp_path: Path) -> dict[str, Path]:
    other = Authority(tmp_path / "other").issue("other")
    text = (authority.directory / "server.pem").read_text()
    key, _, certificate = text.partition("-----BEGIN CERTIFICATE-----")
    files = {
        "missing": tmp_path / "missing.pem",
        "empty": tmp_path / "empty.pem",
        "keyless": tmp_path / "keyless.pem",
        "mismatched": tmp_path / "mismatched.pem",
    }
    files["empty"].write_text("")
    files["keyless"].write_text("-----BEGIN CERTIFICATE-----" + certificate)
    files["mismatched"].write_text(
        key + "-----BEGIN CERTIFICATE-----" + other.read_text().partition("-----BEGIN CERTIFICATE-----")[2]
    )
    return files


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("missing", "cannot be read: No such file"),
        ("empty", "holds no certificate in PEM"),
        ("keyless", "holds no private key in PEM"),
        ("mismatched", "the private key does not belong to the first certificate"),
    ],
)
async def test_files_that_cannot_be_used_stop_the_start(
    start_tls: Any, damaged: dict[str, Path], name: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=rf"listener SSL: ssl\.keystore\.location = .*{words}"):
        await start_tls(ssl_keystore_location=str(damaged[name]))


def encrypted(pem: Path, into: Path, *form: str) -> Path:
    """The certificate and key of `pem` in another file, the key under the password `right`."""
    command = ["openssl", "pkey", "-in", str(pem), "-aes128", "-passout", "pass:right", *form]
    key = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    into.write_text(key + pem.read_text()[pem.read_text().index("-----BEGIN CERTIFICATE-----") :])
    return into


@pytest.mark.parametrize("form", [(), ("-traditional",)])
@pytest.mark.parametrize(
    ("password", "words"),
    [
        ("wrong", "the private key cannot be decrypted: its password is wrong; correct ssl.key.password"),
        ("", "the private key is encrypted; give ssl.key.password"),
        ("right", None),
    ],
)
async def test_an_encrypted_key_needs_its_password(
    start_tls: Any, authority: Authority, tmp_path: Path, form: tuple[str, ...], password: str, words: str | None
) -> None:
    """Some versions of OpenSSL give no reason for a wrong password."""
    pem = encrypted(authority.directory / "server.pem", tmp_path / "encrypted.pem", *form)
    settings = {"ssl_keystore_location": str(pem), **({"ssl_key_password": password} if password else {})}
    if words is None:
        await start_tls(**settings)
        return
    with pytest.raises(ConfigError, match=words):
        await start_tls(**settings)


async def test_certificates_may_be_given_as_text(start_tls: Any, authority: Authority) -> None:
    key, mark, chain = (authority.directory / "server.pem").read_text().partition("-----BEGIN CERTIFICATE-----")
    broker = await start_tls(
        ssl_keystore_location="",
        ssl_keystore_certificate_chain=mark + chain,
        ssl_keystore_key=key,
        ssl_truststore_location="",
        ssl_truststore_certificates=authority.ca_file.read_text(),
        ssl_client_auth="required",
    )
    wire = await connect(broker, context_of(authority.ca_file, authority.directory / "client.pem"))
    assert (await wire.call(ApiVersionsRequest(), 0)).error_code == 0
    await wire.close()


async def test_connections_above_the_rate_of_their_address_wait_before_the_handshake(
    start_tls: Any, authority: Authority
) -> None:
    broker = await start_tls(quota_window_num="1")
    quotas = broker.node.broker.quotas
    await quotas.alter(QuotaEntity(ip="127.0.0.1"), [("connection_creation_rate", 2, False)])
    wires = await asyncio.gather(*(connect(broker, context_of(authority.ca_file)) for _ in range(4)))
    for wire in wires:
        assert (await wire.call(ApiVersionsRequest(), 0)).error_code == 0
    assert quotas.quotas.throttled["connection_creation_rate"].count == 2
    assert 0.5 < quotas.quotas.throttled["connection_creation_rate"].seconds <= 1.5
    await asyncio.gather(*(wire.close() for wire in wires))


@pytest.mark.skipif(
    sys.version_info < (3, 11, 7),
    reason="asyncio of 3.11.2 reads on after pause_reading() in connection_made(); the broker runs on uvloop",
)
async def test_connections_far_above_the_rate_of_their_address_are_closed(start_tls: Any, authority: Authority) -> None:
    broker = await start_tls(quota_window_num="1")
    quotas = broker.node.broker.quotas
    await quotas.alter(QuotaEntity(ip="127.0.0.1"), [("connection_creation_rate", 1, False)])
    outcomes = await asyncio.gather(
        *(connect(broker, context_of(authority.ca_file)) for _ in range(4)), return_exceptions=True
    )
    assert sum(isinstance(each, ConnectionError) for each in outcomes) == 2
    reasons = [line["reason"] for line in broker.log.of("tls_handshake_failed")]
    assert reasons == ["connection_creation_rate"] * 2
    await asyncio.gather(*(each.close() for each in outcomes if isinstance(each, Wire)))


async def test_a_client_that_proves_no_principal_is_in_the_audit_log(start_tls: Any, authority: Authority) -> None:
    broker = await start_tls(ssl_client_auth="required", audit_log_file="-")

    async def attempt() -> None:
        wire = await connect(broker, context_of(authority.ca_file))
        await wire.call(ApiVersionsRequest(), 0)

    for _ in range(3):
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await attempt()
    await until(lambda: len(broker.log.of("tls_handshake_failed")) == 3)
    (line,) = map(json.loads, broker.audit)
    assert line["operation"] == "AUTHENTICATE"
    assert (line["decision"], line["rule"], line["mechanism"]) == ("denied", "no_client_certificate", "SSL")
    assert (line["host"], line["listener"]) == ("127.0.0.1", "SSL")
