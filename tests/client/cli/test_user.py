"""`semel user`: create, list, change and delete users; and the sources of the password."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from semel.cli.main import main
from semel_broker.node import Node
from semel_broker.security.offline_users import create_user
from semel_broker.testing.in_process import EphemeralBroker
from semel_storage.disk.os_disk import OsDisk

BOTH = [
    {"mechanism": "SCRAM-SHA-256", "iterations": 4096},
    {"mechanism": "SCRAM-SHA-512", "iterations": 4096},
]
SECRET = "a secret kettle"


def run(broker: EphemeralBroker | None, *words: str, answer: str | None = None, **environment: str) -> Result:
    if broker is not None:
        environment["SEMEL_BOOTSTRAP_SERVER"] = broker.bootstrap_servers
    return CliRunner().invoke(main, ["user", *words], env=environment, input=answer)


def listed(broker: EphemeralBroker) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(run(broker, "list", "--json").stdout)
    return found


@pytest.mark.semel_only("Kafka's broker follows its controller a moment later")
def test_a_user_is_created_changed_and_deleted(semel_broker: EphemeralBroker, tmp_path: Path) -> None:
    assert "There are no users" in run(semel_broker, "list").output
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    done = run(semel_broker, "create", "alice", "--password-file", str(file))
    assert (done.exit_code, done.output) == (0, "alice created\n")
    one = run(semel_broker, "create", "bob", "--mechanism", "scram-sha-512", "--iterations", "8192", answer="x\nx\n")
    assert one.exit_code == 0
    assert listed(semel_broker) == [
        {"user": "alice", "mechanisms": BOTH},
        {"user": "bob", "mechanisms": [{"mechanism": "SCRAM-SHA-512", "iterations": 8192}]},
    ]
    before = stored(semel_broker, "bob")
    assert run(semel_broker, "password", "bob", SEMEL_USER_PASSWORD="other").output == "bob: password changed\n"
    assert stored(semel_broker, "bob") != before
    assert run(semel_broker, "delete", "alice", answer="n\n").exit_code == 1
    assert [row["user"] for row in listed(semel_broker)] == ["alice", "bob"]
    assert run(semel_broker, "delete", "alice", "-y").output == "alice deleted\n"
    assert [row["user"] for row in listed(semel_broker)] == ["bob"]


def stored(broker: EphemeralBroker, name: str) -> object:
    async def credentials(node: Node) -> object:
        return dict(node.broker.users.credentials(name))

    return broker.call(credentials)


@pytest.mark.semel_only("Kafka's broker follows its controller a moment later")
def test_names_that_are_wrong_are_named(semel_broker: EphemeralBroker) -> None:
    assert run(semel_broker, "create", "alice", SEMEL_USER_PASSWORD=SECRET).exit_code == 0
    again = run(semel_broker, "create", "alice", SEMEL_USER_PASSWORD=SECRET)
    assert again.exit_code == 1
    assert "exists already; `semel user password alice`" in again.output
    for command in ("password", "delete"):
        done = run(semel_broker, command, "alise", SEMEL_USER_PASSWORD=SECRET)
        assert done.exit_code == 1
        assert "there is no user alise. Did you mean 'alice'?" in done.output
    assert "the password is empty" in run(semel_broker, "create", "bob", SEMEL_USER_PASSWORD="").output


def test_a_password_as_an_argument_is_warned_of(semel_broker: EphemeralBroker) -> None:
    done = run(semel_broker, "create", "alice", "--password", SECRET)
    assert done.exit_code == 0
    assert "other users of this machine can see --password" in done.stderr
    assert SECRET not in done.output


def test_the_first_user_is_made_in_the_directory_of_a_broker_that_is_stopped(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    done = run(None, "create", "admin", "--data-dir", str(data), SEMEL_USER_PASSWORD=SECRET)
    assert (done.exit_code, done.output) == (0, f"admin created in {data}\n")
    again = run(None, "create", "admin", "--data-dir", str(data), SEMEL_USER_PASSWORD=SECRET)
    assert "the user admin exists already" in again.output
    unlock = OsDisk().lock(str(data))
    busy = run(None, "create", "other", "--data-dir", str(data), SEMEL_USER_PASSWORD=SECRET)
    unlock()
    assert "in use by a broker: stop it" in busy.output


async def test_the_broker_starts_with_the_user_made_before(tmp_path: Path) -> None:
    from broker.harness import Harness
    from broker.sasl_login import log_in

    await create_user(str(tmp_path / "data"), "admin", SECRET)
    broker = await Harness(tmp_path / "data", listeners="SASL_PLAINTEXT://127.0.0.1:0").start()
    wire = await broker.wire()
    assert (await log_in(wire, "admin", SECRET)).error_code == 0
    await broker.stop()
    await asyncio.sleep(0)
