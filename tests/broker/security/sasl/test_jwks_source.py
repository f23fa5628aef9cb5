"""The JWKS is read only from the URL in the settings: no redirect, no other scheme, limits of bytes and time."""

from __future__ import annotations

import asyncio
import http.server
import os
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from semel_broker.security.sasl import jwks_source
from semel_broker.security.sasl.jwks_source import read_jwks
from semel_broker.testing.authority import Authority
from semel_broker.world import JWKS_BYTES_MAX, JwksError

pytestmark = pytest.mark.real_time


class Handler(http.server.BaseHTTPRequestHandler):
    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.path)
        match self.path:
            case "/jwks?a=b":
                self._answer(200, b'{"keys": []}')
            case "/large":
                self._answer(200, b" " * (JWKS_BYTES_MAX + 1))
            case "/slow":
                self.send_response(200)
                self.end_headers()
                for _ in range(100):
                    self.wfile.write(b" ")
                    if stopped.wait(0.05):
                        return
            case "/moved" | "/file":
                self.send_response(302)
                self.send_header("Location", "/jwks?a=b" if self.path == "/moved" else "file:///etc/passwd")
                self.end_headers()
            case _:
                self._answer(404, b"{}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass  # the client has seen enough

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


stopped = threading.Event()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def url(authority: Authority) -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("server", "127.0.0.1"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://127.0.0.1:{server.server_address[1]}"
    stopped.set()
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_file_and_an_https_url_are_read(url: str, authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_bytes(b'{"keys": []}')
    assert await read_jwks(str(tmp_path / "jwks.json"), "") == b'{"keys": []}'
    assert await read_jwks(f"{url}/jwks?a=b", str(authority.ca_file)) == b'{"keys": []}'


@pytest.mark.proves("invalid-tokens")
@pytest.mark.parametrize("path", ["/moved", "/file"])
async def test_redirects_are_not_followed(url: str, authority: Authority, path: str) -> None:
    Handler.seen.clear()
    with pytest.raises(JwksError, match="status 302; redirects are not followed"):
        await read_jwks(url + path, str(authority.ca_file))
    assert Handler.seen == [path]


async def test_proxies_of_the_environment_are_not_used(
    url: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    assert await read_jwks(f"{url}/jwks?a=b", str(authority.ca_file))


async def test_an_answer_that_is_too_large_too_slow_or_missing_is_refused(
    url: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JwksError, match="is larger than"):
        await read_jwks(f"{url}/large", str(authority.ca_file))
    with pytest.raises(JwksError, match="status 404"):
        await read_jwks(f"{url}/absent", str(authority.ca_file))
    monkeypatch.setattr(jwks_source, "WHOLE_TIMEOUT_S", 0.3)
    with pytest.raises(JwksError, match="did not answer within"):
        await read_jwks(f"{url}/slow", str(authority.ca_file))


async def test_a_server_that_is_not_trusted_or_away_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(JwksError, match="CERTIFICATE_VERIFY_FAILED"):
        await read_jwks(f"{url}/jwks?a=b", "")
    with pytest.raises(JwksError, match="refused"):
        await read_jwks("https://127.0.0.1:1/jwks", "")
    with pytest.raises(JwksError, match="No such file"):
        await read_jwks(f"{url}/jwks?a=b", str(tmp_path / "absent.pem"))


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://127.0.0.1/jwks", "HTTPS://127.0.0.1/jwks"])
async def test_another_scheme_is_a_path_that_does_not_exist(location: str) -> None:
    with pytest.raises(JwksError, match="cannot be read"):
        await read_jwks(location, "")


async def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 33)
    assert len(await read_jwks(str(tmp_path / "large"), "")) == JWKS_BYTES_MAX + 1


async def test_a_file_that_hangs_takes_few_threads_and_none_that_others_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named pipe without a writer stands for a disk that hangs."""
    monkeypatch.setattr(jwks_source, "GIVE_UP_S", 0.01)
    path = tmp_path / "jwks.json"
    os.mkfifo(path)
    for _ in range(jwks_source.THREADS_MAX):
        with pytest.raises(JwksError, match=r"was not read within .*: its disk may hang"):
            await read_jwks(str(path), "")
    with pytest.raises(JwksError, match="4 earlier attempts hang"):
        await read_jwks(str(path), "")
    assert await asyncio.to_thread(lambda: "others") == "others"
    await asyncio.get_running_loop().shutdown_default_executor()  # waits for none of them
    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))  # the threads read the end
    while jwks_source._threads[str(path)]:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        await asyncio.sleep(0.01)
