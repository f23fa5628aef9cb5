"""The program that makes the users of an etcd, which may be started just before it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from semel_broker import etcd_users
from semel_broker.etcd_users import START_S, EtcdUsers


class LoginHandler(BaseHTTPRequestHandler):
    """Lets each user log in."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *words: object) -> None: ...


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """A server whose port refuses connections until `server_activate`."""
    found = HTTPServer(("127.0.0.1", 0), LoginHandler, bind_and_activate=False)
    found.server_bind()
    yield found
    found.server_close()


@pytest.mark.real_time
def test_an_etcd_that_does_not_listen_yet_is_waited_for(server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    answering: list[threading.Thread] = []

    def start(_: float) -> None:
        server.server_activate()
        answering.append(threading.Thread(target=server.handle_request))
        answering[0].start()

    monkeypatch.setattr(etcd_users, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=start))
    users = EtcdUsers(f"http://127.0.0.1:{server.server_port}", None)
    assert users.ensure("semel", "secret", "other secret", "semel") is False
    answering[0].join()


@pytest.mark.real_time
def test_an_etcd_that_is_not_there_is_given_up_after_a_while(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(etcd_users, "time", SimpleNamespace(monotonic=lambda: now, sleep=sleep))
    with pytest.raises(ConnectionRefusedError):
        EtcdUsers(f"http://127.0.0.1:{server.server_port}", None).ensure("semel", "secret", "other secret", "semel")
    assert now == pytest.approx(START_S, abs=1)
