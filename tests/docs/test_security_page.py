"""docs/security.md: its commands, its program and its configuration work, and its table has every reason."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
import semel_broker
from click.testing import CliRunner
from semel._command_line.setting_texts import KNOWN, own_name, properties, without_jaas
from semel._config.producer import ProducerConfig
from semel.cli.main import main
from semel_broker.config.loading import load
from semel_broker.config.peer_listener import NotABrokerError
from semel_broker.config.principal_rules import NoPrincipalError, PrincipalRules
from semel_broker.net import login, tls_connection, tls_session
from semel_broker.testing.cert_command import cert
from support.processes import BrokerProcess

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()
CONFIGURATIONS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
BROKER = Path(semel_broker.__file__).parent
FILES = ("net/tls_session.py", "net/tls_connection.py", "net/server.py", "net/handshakes.py")


def test_the_commands_and_the_program_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made, serve = re.findall(r"^\$ semel (.+)$", PAGE.partition("## Listeners")[0], re.MULTILINE)
    assert CliRunner().invoke(cert, shlex.split(made)[1:]).exit_code == 0
    given = dict(setting.split("=", 1) for setting in re.findall(r"--set (\S+)", serve))
    given["listeners"] = given["listeners"].replace("9093", "0")
    given["ssl.keystore.location"] = str(tmp_path / given["ssl.keystore.location"])
    broker = BrokerProcess(tmp_path / "data", **given).start()
    try:
        program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
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


def test_the_configuration_with_sasl_is_accepted() -> None:
    config = load(CONFIGURATIONS[1])
    (listener,) = config.client_listeners
    assert config.sasl_of(listener).mechanisms == ("SCRAM-SHA-512",)
    assert config.super_user_names == ["User:admin"]


def test_the_commands_of_users_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMEL_USER_PASSWORD", "a kettle")
    users, first = (PAGE.partition(title)[2].partition("\n## ")[0] for title in ("## Users", "## First user"))
    commands = [
        shlex.split(line.partition("#")[0]) for line in re.findall(r"^\$ semel (.+)$", users + first, re.MULTILINE)
    ]
    assert [words[:2] for words in commands][-1] == ["user", "create"]
    assert CliRunner().invoke(main, commands.pop()).exit_code == 0
    broker = BrokerProcess(tmp_path / "semel-data").start()
    try:
        for words in commands:
            done = CliRunner().invoke(main, words, input="y\n", env={"SEMEL_BOOTSTRAP_SERVER": broker.address})
            assert done.exit_code == 0, done.output
            assert words != ["user", "list"] or done.output.split("\n")[1].startswith("admin")
    finally:
        broker.stop()


def test_the_table_of_sasl_has_every_reason() -> None:
    table = PAGE.partition("| reason | the client |")[2].partition("Until it is authenticated")[0]
    listed = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", table))
    known = set(login.REFUSALS) | {"listener_without_sasl"}
    for file in sorted((BROKER / "security" / "sasl").glob("*.py")):
        known |= set(re.findall(r'(?:AuthenticationFailed|fail)\(\s*"([a-z_]+)"', file.read_text()))
        known |= set(re.findall(r'"([a-z]+_[a-z_]+)",\s*(?:do\)|"(?:let|check) )', file.read_text()))
    assert listed == known | {"closed_in_authentication"}


def test_the_configuration_of_tokens_is_accepted() -> None:
    listener = CONFIGURATIONS[1].replace('sasl.enabled.mechanisms = ["SCRAM-SHA-512"]', "")
    config = load(f"{listener}\n{CONFIGURATIONS[2]}")
    oauth = config.sasl_of(config.client_listeners[0]).oauth
    assert oauth is not None
    assert (oauth.issuer, oauth.audiences) == ("https://issuer.example", ("semel",))


def test_every_reason_of_a_refused_token_is_listed() -> None:
    section = PAGE.partition("## Tokens of an issuer")[2].partition("## Re-authentication")[0]
    listed = set(re.findall(r"`([a-z_]+)`", section.partition("Reasons:")[2]))
    known = {"unknown_key"}
    for name in ("oauth_bearer.py", "oauth_bearer_exchange.py"):
        text = (BROKER / "security" / "sasl" / name).read_text()
        known |= set(re.findall(r'TokenRefusedError\(\s*"([a-z_]+)"', text))
    assert listed == known | {"closed_in_authentication"}


def test_the_settings_of_the_client_with_sasl_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    program = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]
    monkeypatch.setenv("PASSWORD", "a kettle")
    exec(program, {"Producer": ProducerConfig, "os": os})
    file = PAGE.partition("$ cat client.properties\n")[2].partition("$ chmod")[0]
    found = {own_name(row.name): row.text for row in properties(file)}
    assert without_jaas(found)["sasl_plain_username"] == "alice"
    assert set(without_jaas(found)) <= KNOWN


def test_the_configuration_of_brokers_is_accepted() -> None:
    (text,) = (each for each in CONFIGURATIONS if "inter.broker" in each)
    config = load(text + 'etcd.endpoints = "https://etcd:2379"')
    assert [each.name for each in config.client_listeners] == ["CLIENT"]
    assert config.peer_listener.name == "INTERNAL"
    assert config.tls_of("INTERNAL").keystore_location == "/etc/semel/broker-1.pem"
    assert len(config.broker_principal_names) == 3
    (rule,) = re.findall(r"ssl.principal.mapping.rules=(RULE\S+)`", PAGE)
    assert PrincipalRules(rule)._rules[0].apply("CN=broker-12,O=example") == "broker"


def test_the_rules_are_accepted() -> None:
    PrincipalRules(tomllib.loads(CONFIGURATIONS[3])["ssl"]["principal"]["mapping"]["rules"])


def test_the_table_has_every_reason() -> None:
    table = PAGE.partition("## Handshakes that fail")[2].partition("A connection that is closed")[0]
    listed = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", table.partition("|---|")[2]))
    known = {name for name, _ in tls_session.FAILURES.values()} | set(tls_connection.REFUSALS)
    known |= {NoPrincipalError.reason, NotABrokerError.reason}
    for file in FILES:
        text = (BROKER / file).read_text()
        known |= set(re.findall(r'(?:TlsFailure|_log_failure|refuse)\(\s*"([a-z_]+)"', text))
    assert listed == known - {"stopping"} | {"handshake_failed"}
