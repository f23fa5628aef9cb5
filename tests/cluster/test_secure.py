"""deploy/docker-compose.secure.yml as it stands: users over TLS, ACLs, brokers and an etcd that know each other."""

from __future__ import annotations

import asyncio
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from semel import Admin, Consumer, NewTopic, Producer
from semel.admin import Acl, Operation, PatternType, Permission, ResourceType
from semel.admin import ScramCredentialInfo as Info
from semel.admin import UserScramCredentialUpsertion as Upsertion
from semel.errors import KafkaError, SaslAuthenticationFailed, TopicAuthorizationFailedError
from semel_protocol.scram import ScramMechanism
from support import etcd

from tools.cluster import choice, compose, secrets
from tools.cluster.cluster import RunningProject
from tools.cluster.compose import ComposeError
from tools.cluster.interpolation import dotenv

ROOT = Path(__file__).parents[2]
FILE = ROOT / "deploy/docker-compose.secure.yml"
BROKERS = ("broker-1", "broker-2", "broker-3")
NO_SECRETS = dict.fromkeys(secrets.VARIABLES, "x")
needs_etcd = pytest.mark.skipif(etcd.binary() is None, reason=etcd.WHY_NOT)


def test_brokers_differ_in_nothing_but_their_names_and_ports() -> None:
    project = compose.load(FILE, NO_SECRETS)
    assert project.enabled() == ["etcd", "etcd-users", *BROKERS]
    assert len({str(project.services[name].environment) for name in BROKERS}) == 1
    for name in BROKERS:
        assert [mount.target for mount in compose.mounts(project.services[name])] == [
            "/var/lib/semel",
            "/etc/semel/tls",
        ]
        (port,) = compose.ports(project.services[name])
        assert port.host == "127.0.0.1"


def test_no_password_is_in_the_file_and_without_passwords_nothing_starts() -> None:
    with pytest.raises(ComposeError, match=r"--env-file tls/passwords\.env"):
        compose.load(FILE, {})
    variables = compose.load(FILE, {name: f"<{name}>" for name in secrets.VARIABLES}).services["broker-1"].variables
    passwords = {name: value for name, value in variables.items() if "PASSWORD" in name}
    assert passwords == {"SEMEL_BOOTSTRAP_PASSWORD": "<ADMIN_PASSWORD>", "SEMEL_ETCD_PASSWORD": "<ETCD_PASSWORD>"}


def test_secrets_are_readable_for_their_user_alone_and_made_once(tmp_path: Path) -> None:
    folder = tmp_path / "tls"
    first = secrets.make(folder)
    file = secrets.write_client_settings(folder, first["ADMIN_PASSWORD"], ["127.0.0.1:19092"], "127.0.0.1")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert {name for name, mode in modes.items() if mode != 0o600} == {"ca.pem"}
    assert set(modes) == {"ca.pem", "server.pem", "etcd.pem", "passwords.env", file.name}
    assert len(set(first.values())) == len(secrets.VARIABLES)
    assert min(map(len, first.values())) >= 20
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert secrets.make(folder) == first
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert secrets.make(tmp_path / "other") != first
    (folder / "etcd.pem").unlink()
    with pytest.raises(ComposeError, match=r"no etcd\.pem.*remove"):
        secrets.make(folder)


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """The variables of the compose file, with secrets and ports of this test."""
    ports = {f"BROKER_{i}_PORT": str(port) for i, port in enumerate(etcd.free_ports(3), 1)}
    return {**secrets.make(tmp_path / "tls"), **ports, "TLS_FILES": str(tmp_path / "tls"), "PEER_NAMES": ""}


def client(given: dict[str, str], user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": ",".join(f"127.0.0.1:{given[f'BROKER_{i}_PORT']}" for i in (1, 2, 3)),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": f"{given['TLS_FILES']}/ca.pem",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


@pytest.mark.proves("right-taken-away")
@pytest.mark.thorough
@needs_etcd
async def test_users_have_the_rights_that_acls_give_them_on_all_brokers_and_after_a_restart(
    tmp_path: Path, given: dict[str, str]
) -> None:
    project, state = compose.load(FILE, given), tmp_path / "state"
    admin_settings, alice = client(given, "admin", given["ADMIN_PASSWORD"]), client(given, "alice", "her password")
    async with RunningProject(project, state, choice.place(project, state)) as cluster:
        async with Admin(**admin_settings) as admin:
            await admin.create_topics([NewTopic("t", 3, 3), NewTopic("hidden", 1, 3)])
            await admin.alter_user_scram_credentials(
                [Upsertion("alice", Info(ScramMechanism.SCRAM_SHA_512), "her password")]
            )
            topic = (ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*")
            await admin.create_acls([Acl(*topic, each, Permission.ALLOW) for each in (Operation.READ, Operation.WRITE)])
        await eventually_written(alice, "t", 30)
        async with Consumer("t", **alice, auto_offset_reset="earliest") as consumer:
            assert len({(await consumer.getone()).value for _ in range(30)}) == 30
        async with Producer(**alice) as producer:
            with pytest.raises(TopicAuthorizationFailedError):
                await producer.send_and_wait("hidden", b"x")
        with pytest.raises(SaslAuthenticationFailed):
            await Admin(**{**alice, "sasl_plain_password": "wrong"}).start()
        with pytest.raises(KafkaError):
            await Admin(bootstrap_servers=alice["bootstrap_servers"], bootstrap_timeout_ms=2_000).start()
        for name in BROKERS:
            await cluster.kill(name)
        for name in BROKERS:
            await cluster.start(name)
        for name in BROKERS:
            await cluster.healthy(name)
        await eventually_written(alice, "t", 3)
        await asyncio.to_thread(check_etcd_refuses_strangers, cluster)
    lines = audit_lines(state)
    assert ("allowed", "User:admin", "t") in lines
    assert ("denied", "User:alice", "hidden") in lines
    secret = [*(given[name] for name in secrets.VARIABLES), "her password"]
    for file in [*state.glob("logs/*.log"), *state.glob("volumes/**/*.log")]:
        text = file.read_bytes()
        assert not [each for each in secret if each.encode() in text], file


async def eventually_written(settings: dict[str, Any], topic: str, count: int) -> None:
    """Write once a change of users and ACLs is in force on the other brokers."""
    async with asyncio.timeout(60):
        while True:
            try:
                async with Producer(**settings, acks="all") as producer:
                    for number in range(count):
                        await producer.send_and_wait(topic, b"%d" % number, partition=number % 3)
                return
            except (SaslAuthenticationFailed, TopicAuthorizationFailedError):
                await asyncio.sleep(0.1)


def check_etcd_refuses_strangers(cluster: RunningProject) -> None:
    """Without the user and its password, etcd gives no key away."""
    service = cluster.services["etcd"].spec
    assert service.check is not None
    command = [word for word in service.check.command if word not in ("endpoint", "health")]
    asked = [*command, "get", "--prefix", "semel/", "--keys-only"]
    own = {name: value for name, value in service.environment.items() if name != "ETCDCTL_USER"}
    refused = subprocess.run(asked, env=own, capture_output=True, text=True, timeout=30, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "user name is empty" in refused.stderr
    known = subprocess.run(asked, env=service.environment, capture_output=True, text=True, timeout=30, check=True)
    assert "semel/" in known.stdout


def audit_lines(state: Path) -> set[tuple[str, str, str]]:
    texts = [line for file in state.glob("logs/broker-*.log") for line in file.read_text().splitlines()]
    lines = [json.loads(text) for text in texts if '"decision":' in text]
    return {(each["decision"], each["principal"], each.get("resource", "")) for each in lines}


@pytest.mark.proves("secrets-shown")
@pytest.mark.thorough
@needs_etcd
@pytest.mark.parametrize("place", ["auto", "loopback"])
def test_the_commands_that_up_prints_work_as_printed(tmp_path: Path, given: dict[str, str], place: str) -> None:
    folder, state = Path(given["TLS_FILES"]), str(tmp_path / "state")
    ours = {name: value for name, value in given.items() if name not in secrets.VARIABLES}
    environment = {**os.environ, **ours, "PYTHONPATH": str(ROOT), "SEMEL_USER_PASSWORD": "her password"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    runner = [sys.executable, "-m", "tools.cluster", "-f", str(FILE), "--state", state]

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    run(*runner, "secrets", str(folder))
    try:
        for _ in range(2):  # a second start finds users in etcd and in the cluster
            printed = run(*runner, "--env-file", str(folder / "passwords.env"), "up", "-d", "--on", place)
            commands = re.findall(r"^  (semel .+)$", printed, re.M)
            assert len(commands) == len(secrets.FIRST_COMMANDS)
            passwords = dotenv((folder / "passwords.env").read_text()).values()
            assert not [each for each in passwords if each in printed]
            assert not [each for each in passwords if each in "".join(command_lines())]
            if "orders" not in run("semel", "topic", "list", *commands[0].split()[2:]):
                outputs = [run(*command.split()) for command in commands]
                assert "Healthy: 3 brokers" in outputs[0]
                alice = (folder / "admin.properties").read_text().replace("username=admin", "username=alice")
                alice = re.sub("sasl.password=.*", "sasl.password=her password", alice)
                (tmp_path / "alice.properties").write_text(alice)
            (tmp_path / "orders.txt").write_text("one kettle\n")
            run("bash", "-c", "semel produce orders --config-file alice.properties < orders.txt")
            run(*runner, "--env-file", str(folder / "passwords.env"), "down")
    finally:
        run(*runner, "--env-file", str(folder / "passwords.env"), "down")


def command_lines() -> Iterator[str]:
    """The arguments of all processes, which every user of the machine can read."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            yield (process / "cmdline").read_text()
        except OSError:
            continue  # it ended meanwhile
