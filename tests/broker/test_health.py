"""The health check of a container: exit status 0 only for a broker that answers."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest
from semel_broker import health
from semel_broker.testing.in_process import EphemeralBroker

pytestmark = pytest.mark.real_time


def test_a_broker_that_answers_is_healthy(semel_broker: EphemeralBroker) -> None:
    assert health.main([semel_broker.bootstrap_servers]) == 0


def test_a_broker_that_is_gone_is_not(semel_broker: EphemeralBroker, capsys: pytest.CaptureFixture[str]) -> None:
    semel_broker.kill()
    assert health.main([semel_broker.bootstrap_servers]) == 1
    assert "refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "no Kafka broker"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x07\x00\x23", "error code 35"),
    ],
)
def test_a_port_that_answers_otherwise_is_not(answer: bytes, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert health.main([f"127.0.0.1:{listening.getsockname()[1]}"]) == 1
        thread.join()
    assert said in capsys.readouterr().err


def test_a_wrong_address_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert health.main(["nowhere"]) == 2
    assert "HOST:PORT" in capsys.readouterr().err


def test_it_imports_the_standard_library_alone() -> None:
    """Otherwise each check of a container would cost what a command costs."""
    program = "import sys, semel_broker.health; print({'msgspec', 'uvloop', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
