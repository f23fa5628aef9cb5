"""docs/security.md: its commands, its program and its configuration work, and its table has every reason."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from semel_broker.config.loading import load
from semel_broker.config.peer_listener import NotABrokerError
from semel_broker.config.principal_rules import NoPrincipalError, PrincipalRules
from semel_broker.net import tls_connection, tls_session
from semel_broker.testing.cert_command import cert
from support.processes import BrokerProcess

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
CONFIGURATIONS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
FILES = ("net/tls_session.py", "net/tls_connection.py", "net/server.py", "net/handshakes.py")


def test_the_commands_and_the_program_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made, serve = re.findall(r"^\$ semel (.+)$", PAGE, re.MULTILINE)
    assert CliRunner().invoke(cert, shlex.split(made)[1:]).exit_code == 0
    given = dict(setting.split("=", 1) for setting in re.findall(r"--set (\S+)", serve))
    given["listeners"] = given["listeners"].replace("9093", "0")
    given["ssl.keystore.location"] = str(tmp_path / given["ssl.keystore.location"])
    broker = BrokerProcess(tmp_path / "data", **given).start()
    try:
        (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
        imports, _, body = program.replace("9093", str(broker.port)).partition("\n\n")
        main = f"{imports}\nimport asyncio\n\nasync def main():\n{textwrap.indent(body, '    ')}\nasyncio.run(main())\n"
        done = subprocess.run([sys.executable, "-c", main], capture_output=True, text=True, timeout=60, check=False)
    finally:
        broker.stop()
    assert done.returncode == 0, done.stderr


def test_the_configuration_is_accepted() -> None:
    config = load(CONFIGURATIONS[0])
    assert [(each.name, each.has_tls) for each in config.client_listeners] == [("CLIENT", False), ("SECURE", True)]
    assert config.tls_of("SECURE").client_auth == "required"
    assert "SEMEL_LISTENER_NAME_SECURE_SSL_CLIENT_AUTH" in PAGE


def test_the_configuration_of_brokers_is_accepted() -> None:
    config = load(CONFIGURATIONS[2] + 'etcd.endpoints = "https://etcd:2379"')
    assert [each.name for each in config.client_listeners] == ["CLIENT"]
    assert config.peer_listener.name == "INTERNAL"
    assert config.tls_of("INTERNAL").keystore_location == "/etc/semel/broker-1.pem"
    assert len(config.broker_principal_names) == 3
    (rule,) = re.findall(r"ssl.principal.mapping.rules=(RULE\S+)`", PAGE)
    assert PrincipalRules(rule)._rules[0].apply("CN=broker-12,O=example") == "broker"


def test_the_rules_are_accepted() -> None:
    PrincipalRules(tomllib.loads(CONFIGURATIONS[1])["ssl"]["principal"]["mapping"]["rules"])


def test_the_table_has_every_reason() -> None:
    table = PAGE.partition("## Handshakes that fail")[2].partition("A connection that is closed")[0]
    listed = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", table.partition("|---|")[2]))
    known = {name for name, _ in tls_session.FAILURES.values()} | set(tls_connection.REFUSALS)
    known |= {NoPrincipalError.reason, NotABrokerError.reason}
    for file in FILES:
        text = (ROOT / "broker" / "semel_broker" / file).read_text()
        known |= set(re.findall(r'(?:TlsFailure|_log_failure|refuse)\(\s*"([a-z_]+)"', text))
    assert listed == known - {"stopping"} | {"handshake_failed"}
