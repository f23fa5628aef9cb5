"""TLS towards etcd: files are checked at the start, certificates are verified, and each error names the setting to
change.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from broker.cluster.scripted_etcd import ScriptedEtcd, body
from broker.cluster.store_setups import world
from semel_broker.cluster.etcd.gateway import EtcdRefusedError, Gateway, NotSentError, UnansweredError
from semel_broker.cluster.etcd.store import EtcdStore
from semel_broker.cluster.etcd.tls import EtcdTls
from semel_broker.cluster.store import Put, StoreEntry
from semel_broker.config.loading import ConfigError, load
from support import etcd
from support.etcd import EtcdProcess
from support.processes import why_it_failed

FILES = Path(__file__).parents[2] / "data" / "tls" / "etcd"
SOON_S = 20
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
EMPTY = body('{"header":{"revision":"7"}}')
CLIENT_FILES = {"certificate_file": str(FILES / "client.pem"), "key_file": str(FILES / "client.key")}
STRANGER_FILES = {"certificate_file": str(FILES / "stranger.pem"), "key_file": str(FILES / "stranger.key")}


def client_tls(**settings: str) -> EtcdTls:
    return EtcdTls.load(**{"ca_file": str(FILES / "ca.pem"), **settings})


def server_tls(name: str = "server", *, wants_certificate: bool = False, is_tls12: bool = False) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(FILES / "ca.pem"))
    context.load_cert_chain(FILES / f"{name}.pem", FILES / f"{name}.key")
    if wants_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
    if is_tls12:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


async def revision_at(url: str, tls: EtcdTls) -> int:
    store = EtcdStore([url], namespace="/semel-tests/tls", world=world(), tls=tls)
    try:
        return (await store.list("")).revision
    finally:
        await store.close()


async def refusal_at(url: str, tls: EtcdTls) -> str:
    """The error of a single attempt. A store retries until its time limit."""
    gateway = Gateway([url], tls)
    with pytest.raises((NotSentError, UnansweredError, EtcdRefusedError)) as caught:
        await gateway.call("/v3/kv/range", b"{}", SOON_S * 1000)
    gateway.close()
    return str(caught.value)


@asynccontextmanager
async def server_that_answers(data: bytes) -> AsyncIterator[str]:
    """A server without TLS that answers the first bytes of a client, whatever they are, and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(data)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()


# --- a server on loopback ---


async def test_etcd_is_asked_over_tls_when_its_certificate_verifies() -> None:
    async with ScriptedEtcd(EMPTY, tls=server_tls()) as server:
        assert await revision_at(server.url, client_tls()) == 7
        assert await revision_at(server.url.replace("127.0.0.1", "localhost"), client_tls()) == 7


async def test_a_certificate_of_an_unknown_ca_is_refused() -> None:
    async with ScriptedEtcd(EMPTY, tls=server_tls()) as server:
        for tls in (client_tls(ca_file=str(FILES / "other-ca.pem")), EtcdTls.load()):
            refusal = await refusal_at(server.url, tls)
            assert "the certificate of etcd does not verify (" in refusal
            assert "; set etcd.tls.ca.file to the CA that signed it" in refusal
        assert server.requests == []


async def test_a_certificate_for_another_name_is_refused_unless_that_name_is_set() -> None:
    async with ScriptedEtcd(EMPTY, tls=server_tls("renamed")) as server:
        for host in ("127.0.0.1", "localhost"):
            refusal = await refusal_at(server.url.replace("127.0.0.1", host), client_tls())
            assert f"not valid for '{host}'; set etcd.tls.server.name" in refusal
        assert await revision_at(server.url, client_tls(server_name="etcd.example")) == 7
        assert "not valid for 'etcd.test'" in await refusal_at(server.url, client_tls(server_name="etcd.test"))


async def test_a_server_that_does_not_speak_tls_is_named_as_such() -> None:
    async with server_that_answers(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        assert "does not speak TLS; write its URL in etcd.endpoints with http://" in await refusal_at(url, client_tls())
    async with server_that_answers(b"") as url:
        assert "closed the connection during the TLS handshake; if it does" in await refusal_at(url, client_tls())


@pytest.mark.parametrize("is_tls12", [False, True], ids=["tls1.3", "tls1.2"])
async def test_a_missing_or_untrusted_client_certificate_is_named_as_such(is_tls12: bool) -> None:
    async with ScriptedEtcd(EMPTY, tls=server_tls(wants_certificate=True, is_tls12=is_tls12)) as server:
        assert await revision_at(server.url, client_tls(**CLIENT_FILES)) == 7
        assert "set etcd.tls.certificate.file and etcd.tls.key.file" in await refusal_at(server.url, client_tls())
        assert len(server.requests) == 1


async def test_a_server_certificate_that_etcd_refuses_of_its_own_gateway_is_named_as_such() -> None:
    """Word for word what etcd 3.5.1 answers if its --cert-file is valid for servers only."""
    error = (
        'connection error: desc = \\"transport: authentication handshake failed: remote error: tls: bad certificate\\"'
    )
    answer = body(f'{{"error":"{error}","code":14,"message":"{error}"}}', "503 Service Unavailable")
    async with ScriptedEtcd(answer, tls=server_tls()) as server:
        assert "must be valid for clients too (extended key usage clientAuth)" in await refusal_at(
            server.url, client_tls()
        )


async def test_a_port_where_nothing_listens_is_no_failure_of_tls() -> None:
    refusal = await refusal_at(f"https://127.0.0.1:{etcd.free_ports(1)[0]}", client_tls())
    assert "Connect call failed" in refusal
    assert "TLS" not in refusal


async def test_a_response_that_is_cut_short_over_tls_is_refused() -> None:
    async def cut(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        writer.close()

    async with ScriptedEtcd(cut, tls=server_tls()) as server:
        assert "closed connection without sending complete message body" in await refusal_at(server.url, client_tls())


# --- files and settings ---


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"ca_file": "absent.pem"}, "etcd.tls.ca.file = .*absent.pem: the file cannot be read: No such file"),
        ({"ca_file": ""}, "etcd.tls.ca.file = .*: the file cannot be read: Is a directory"),
        ({"ca_file": "client.key"}, "etcd.tls.ca.file = .*client.key: the file holds no certificate in PEM"),
        ({"certificate_file": "absent.pem"}, "etcd.tls.certificate.file = .*absent.pem: the file cannot be read"),
        ({"certificate_file": "client.key"}, "etcd.tls.certificate.file = .*: the file holds no certificate"),
        ({"certificate_file": "client.pem"}, "etcd.tls.certificate.file = .*: the file holds no private key"),
        ({"certificate_file": "client.pem", "key_file": "absent.key"}, "etcd.tls.key.file = .*: the file cannot be"),
        ({"certificate_file": "client.pem", "key_file": "ca.pem"}, "etcd.tls.key.file = .*: the file holds no private"),
        ({"certificate_file": "client.pem", "key_file": "server.key"}, "etcd.tls.key.file = .*: this is not the priv"),
        (
            {"certificate_file": "client.pem", "key_file": "client-encrypted.key"},
            "etcd.tls.key.file = .*: the private key is encrypted; give one without a password",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_setting_and_path(settings: dict[str, str], refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal):
        EtcdTls.load(**{name: str(FILES / file) for name, file in settings.items()})


def test_a_file_with_damaged_certificates_is_refused(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.pem"
    damaged.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(ConfigError, match=r"etcd\.tls\.ca\.file = .*damaged\.pem: the certificates cannot be read"):
        EtcdTls.load(ca_file=str(damaged))


def test_a_certificate_and_its_key_may_be_in_one_file(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text((FILES / "client.pem").read_text() + (FILES / "client.key").read_text())
    EtcdTls.load(certificate_file=str(both))


@pytest.mark.parametrize("name", [".etcd", "a..b", "x" * 64])
def test_a_server_name_that_is_no_host_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"etcd\.tls\.server\.name = "):
        EtcdTls.load(server_name=name)


@pytest.mark.parametrize(
    ("overrides", "refusal"),
    [
        (["etcd.endpoints=http://a:2379", "etcd.tls.ca.file=x"], "etcd.tls.ca.file is given, but etcd.endpoints has"),
        (["etcd.tls.server.name=x"], "etcd.tls.server.name is given, but etcd.endpoints has no URL with https://"),
        (["etcd.endpoints=https://a:2379", "etcd.tls.key.file=x"], "without etcd.tls.certificate.file; give both"),
    ],
)
def test_settings_of_tls_that_could_have_no_effect_are_refused(overrides: list[str], refusal: str) -> None:
    with pytest.raises(ConfigError, match=refusal):
        load(overrides=overrides)


# --- a real etcd that requires client certificates ---


@pytest.fixture(scope="module")
def etcd_over_tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    if etcd.binary() is None:
        pytest.skip(etcd.WHY_NOT)
    files = {"--cert-file": "server.pem", "--key-file": "server.key", "--trusted-ca-file": "ca.pem"}
    flags = ["--client-cert-auth", *(f"{flag}={FILES / file}" for flag, file in files.items())]
    context = ssl.create_default_context(cafile=str(FILES / "ca.pem"))
    context.load_cert_chain(FILES / "client.pem", FILES / "client.key")
    process = EtcdProcess(tmp_path_factory.mktemp("etcd-tls") / "data", flags, context).start()
    yield process
    process.kill()


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_store_over_tls_reads_writes_watches_and_holds_sessions(
    etcd_over_tls: EtcdProcess, loop_factory: LoopFactory
) -> None:
    async def run() -> None:
        tls = client_tls(**CLIENT_FILES)
        namespace = f"/semel-tests/tls/{loop_factory.__module__}"
        store = EtcdStore([etcd_over_tls.url], namespace=namespace, world=world(), tls=tls)
        session = await store.open_session(60_000)
        first = await store.transact([], [Put("a", b"1", session.lease)])
        assert first is not None
        watch = store.watch("", first)
        assert await store.transact([], [Put("b", b"x" * 1_000_000)]) == first + 1
        async with asyncio.timeout(SOON_S):
            assert (await anext(watch)).changes == (StoreEntry("b", b"x" * 1_000_000, first + 1),)
        await session.close()
        assert await store.get("a") is None
        await store.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_real_etcd_that_refuses_the_client_is_named(etcd_over_tls: EtcdProcess, loop_factory: LoopFactory) -> None:
    async def run() -> None:
        url = etcd_over_tls.url
        assert "etcd requires a client certificate; set" in await refusal_at(url, client_tls())
        assert "etcd refused the client certificate" in await refusal_at(url, client_tls(**STRANGER_FILES))

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


async def serve(url: str, data_dir: Path, *overrides: str) -> asyncio.subprocess.Process:
    arguments = ["--etcd", url, "--cluster", data_dir.name, "--data-dir", str(data_dir), "--port", "0"]
    for override in overrides:
        arguments += ["--set", override]
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "semel_broker", *arguments, "--log-format", "json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_a_broker_joins_a_cluster_over_tls(etcd_over_tls: EtcdProcess, tmp_path: Path) -> None:
    overrides = [f"etcd.tls.ca.file={FILES / 'ca.pem'}", f"etcd.tls.certificate.file={FILES / 'client.pem'}"]
    process = await serve(
        etcd_over_tls.url, tmp_path / "joins", *overrides, f"etcd.tls.key.file={FILES / 'client.key'}"
    )
    assert process.stdout is not None
    async with asyncio.timeout(SOON_S):
        while b'"event":"ready"' not in (line := await process.stdout.readline()).replace(b": ", b":"):
            assert line, await why_it_failed(process)
        process.terminate()
        await process.communicate()
    assert process.returncode == 0


async def test_a_broker_that_cannot_use_tls_ends_with_one_sentence(etcd_over_tls: EtcdProcess, tmp_path: Path) -> None:
    ca = f"etcd.tls.ca.file={FILES / 'ca.pem'}"
    for overrides, expected in (
        ([ca], "etcd requires a client certificate; set etcd.tls.certificate.file and etcd.tls.key.file"),
        ([ca, "etcd.tls.certificate.file=absent.pem"], "etcd.tls.certificate.file = absent.pem: the file cannot"),
        ([ca, "etcd.tls.key.file=absent.pem"], "etcd.tls.key.file is given without"),
    ):
        process = await serve(etcd_over_tls.url, tmp_path / "refused", *overrides)
        async with asyncio.timeout(SOON_S):
            output, errors = await process.communicate()
        assert (process.returncode, errors) == (1, b"")
        last = json.loads(output.splitlines()[-1])
        assert last["event"] == "start_failed"
        assert expected in last["error"]
