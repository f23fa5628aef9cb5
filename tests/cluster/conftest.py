"""Small projects: services of a few lines of Python, in every kind of network that this machine allows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tools.cluster import compose, namespaces  # noqa: E402
from tools.cluster.cluster import RunningProject  # noqa: E402
from tools.cluster.loopback import Loopback  # noqa: E402
from tools.cluster.namespaces import Namespaces  # noqa: E402
from tools.cluster.places import ServiceNetwork  # noqa: E402

NO_NAMESPACES = "partitions and namespaces not tested: this user cannot make network namespaces (root with ip can)"

ECHO = """
import socketserver, sys
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
print("listens", flush=True)
Server((sys.argv[1], int(sys.argv[2])), Echo).serve_forever()
"""
"""Answers every line with itself."""

ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3])) as s:
    s.sendall(b"hello\\n")
    assert s.recv(6) == b"hello\\n"
"""
"""Exit status 0 if the echo at an address answers within a time."""

Open = Callable[[str, str], RunningProject]


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """A project's folder with `echo.py` and `ask.py` in it, which services see as /srv."""
    (tmp_path / "echo.py").write_text(ECHO)
    (tmp_path / "ask.py").write_text(ASK)
    return tmp_path


@pytest.fixture(scope="session")
def can_have_namespaces() -> bool:
    return namespaces.works()


@pytest.fixture
def opened(scripts: Path, can_have_namespaces: bool) -> Open:
    """Make a cluster, not yet open, of the text of a compose file and a kind of place."""

    def make(text: str, kind: str = "loopback") -> RunningProject:
        if kind == "namespaces" and not can_have_namespaces:
            pytest.skip(NO_NAMESPACES)
        project = compose.parse(text, {}, str(scripts))
        state = scripts / "state"
        place: ServiceNetwork = Namespaces(project, state) if kind == "namespaces" else Loopback(project)
        return RunningProject(project, state, place)

    return make
