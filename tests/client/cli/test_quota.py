"""`semel quota`: set, list and unset; and mistyped words."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner, Result
from semel.cli.main import main
from semel.cli.quota import amount_of
from semel_broker.testing.in_process import EphemeralBroker
from support.against import OutsideBroker

WAIT_S = 10


def run(broker: EphemeralBroker, *arguments: str) -> Result:
    environment = {"SEMEL_BOOTSTRAP_SERVER": broker.bootstrap_servers}

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(main, ["quota", *words], env=environment)

    before = invoke("list", "--json").output if isinstance(broker, OutsideBroker) else ""
    done = invoke(*arguments)
    if before and done.exit_code == 0 and arguments[0] in ("set", "unset") and "--dry-run" not in arguments:
        until = time.monotonic() + WAIT_S
        while invoke("list", "--json").output == before:  # Kafka's broker follows its controller
            assert time.monotonic() < until, "the list does not change"
    return done


def listed(broker: EphemeralBroker, *arguments: str) -> list[dict[str, object]]:
    done = run(broker, "list", "--json", *arguments)
    assert done.exit_code == 0, done.output
    return [{key: value for key, value in row.items() if value is not None} for row in json.loads(done.output)]


def test_quotas_are_set_listed_and_removed(semel_broker: EphemeralBroker) -> None:
    done = run(semel_broker, "set", "--user", "alice", "--client-id", "app", "producer_byte_rate=1MB")
    assert done.exit_code == 0, done.output
    assert "set: user alice, client-id app: producer_byte_rate=1000000" in done.output
    run(semel_broker, "set", "--default-user", "request_percentage=12.5%", "consumer_byte_rate=4MiB")
    run(semel_broker, "set", "--ip", "10.0.0.1", "connection_creation_rate=5")
    alice = {"user": "alice", "client_id": "app", "producer_byte_rate": 1_000_000.0}
    default = {"user": "<default>", "request_percentage": 12.5, "consumer_byte_rate": 4_194_304.0}
    address = {"ip": "10.0.0.1", "connection_creation_rate": 5.0}
    assert sorted(listed(semel_broker), key=str) == sorted([alice, default, address], key=str)
    assert listed(semel_broker, "--user", "alice") == [alice]
    assert listed(semel_broker, "--user", "alice", "--strict") == []
    assert listed(semel_broker, "--default-user") == [default]
    done = run(semel_broker, "unset", "--default-user", "request_percentage")
    assert done.exit_code == 0, done.output
    assert listed(semel_broker, "--default-user") == [{"user": "<default>", "consumer_byte_rate": 4_194_304.0}]


def test_a_dry_run_changes_nothing(semel_broker: EphemeralBroker) -> None:
    done = run(semel_broker, "set", "--user", "alice", "--dry-run", "producer_byte_rate=1")
    assert "would set" in done.output
    assert listed(semel_broker) == []


def test_without_quotas_the_list_says_so(semel_broker: EphemeralBroker) -> None:
    assert "There is no such quota" in run(semel_broker, "list").output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["set", "--user", "a", "producer_rate=1"], "Did you mean 'producer_byte_rate'"),
        (["set", "--user", "a", "producer_byte_rate=much"], "give a number"),
        (["set", "--user", "a", "producer_byte_rate=10%"], "give a number"),
        (["set", "producer_byte_rate=1"], "name a --user"),
        (["set", "--user", "a", "--default-user", "producer_byte_rate=1"], "not both"),
        (["set", "--user", "a", "--ip", "10.0.0.1", "producer_byte_rate=1"], "leave the user"),
        (["set", "--ip", "10.0.0.1", "producer_byte_rate=1"], "connection_creation_rate"),
        (["unset", "--user", "a", "connection_creation_rate"], "there is no quota"),
    ],
)
def test_wrong_arguments_are_explained(semel_broker: EphemeralBroker, arguments: list[str], words: str) -> None:
    done = run(semel_broker, *arguments)
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())


def test_a_value_that_the_broker_refuses_is_explained(semel_broker: EphemeralBroker) -> None:
    done = run(semel_broker, "set", "--user", "alice", "producer_byte_rate=0")
    assert done.exit_code == 1
    assert "InvalidRequestError" in done.output


@pytest.mark.parametrize(
    ("text", "amount"),
    [("10", 10), ("1MB", 1e6), ("1 kb/s", 1e3), ("1.5GiB", 1.5 * (1 << 30)), ("2k", 2e3), ("0.25", 0.25)],
)
def test_amounts(text: str, amount: float) -> None:
    assert amount_of("producer_byte_rate", text) == amount
