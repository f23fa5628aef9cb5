"""`semel cert dev`: files that a broker and clients can use."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from click.testing import CliRunner
from semel_broker.testing.cert_command import cert


def test_the_files_fit_together_and_are_for_the_hosts(tmp_path: Path) -> None:
    made = CliRunner().invoke(cert, ["dev", str(tmp_path / "tls"), "--host", "kafka-1", "--host", "10.0.0.7"])
    assert made.exit_code == 0, made.output
    assert "localhost, 127.0.0.1, ::1, kafka-1, 10.0.0.7" in made.output
    trusted = ssl.create_default_context(cafile=str(tmp_path / "tls" / "ca.pem"))
    assert len(trusted.get_ca_certs()) == 1
    for name in ("server.pem", "client.pem"):
        file = tmp_path / "tls" / name
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(file)
        assert "-----BEGIN PRIVATE KEY-----" in file.read_text(), "Java reads PKCS #8"
        assert file.stat().st_mode & 0o077 == 0, "others cannot read the key"


def test_existing_certificates_are_not_replaced(tmp_path: Path) -> None:
    arguments = ["dev", str(tmp_path)]
    assert CliRunner().invoke(cert, arguments).exit_code == 0
    again = CliRunner().invoke(cert, arguments)
    assert again.exit_code == 1
    assert "has a ca.pem" in again.output


def test_each_server_has_a_certificate_of_its_own(tmp_path: Path) -> None:
    made = CliRunner().invoke(cert, ["dev", str(tmp_path), "--server", "broker", "--server", "etcd"])
    assert made.exit_code == 0, made.output
    assert {path.name for path in tmp_path.iterdir()} == {"ca.pem", "broker.pem", "etcd.pem", "client.pem"}
    assert (tmp_path / "broker.pem").read_text() != (tmp_path / "etcd.pem").read_text()
    assert "CN=etcd" in made.output
    assert f"ssl.keystore.location={tmp_path}/broker.pem" in made.output


@pytest.mark.parametrize("name", ["ca", "client", "../server", ""])
def test_the_name_of_a_server_does_not_replace_another_file(tmp_path: Path, name: str) -> None:
    refused = CliRunner().invoke(cert, ["dev", str(tmp_path), "--server", name])
    assert refused.exit_code == 2
    assert "give the name of a file" in refused.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("host", ["a..b", "x y", "", "a" * 70, "\udcff"])
def test_a_host_that_cannot_be_one_is_refused_and_nothing_is_left(tmp_path: Path, host: str) -> None:
    made = CliRunner().invoke(cert, ["dev", str(tmp_path), "--host", host])
    assert made.exit_code == 2, made.output
    assert "--host" in made.output
    assert list(tmp_path.iterdir()) == []
