"""`semel acl`: add, list and remove entries; and mistyped words."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner, Result
from semel.cli.main import main
from semel_broker.testing.in_process import EphemeralBroker
from support.against import OutsideBroker

pytestmark = pytest.mark.semel(
    settings={
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
)


WAIT_S = 10


def run(broker: EphemeralBroker, *arguments: str, answer: str | None = None) -> Result:
    environment = {"SEMEL_BOOTSTRAP_SERVER": broker.bootstrap_servers}

    def invoke(*words: str) -> Result:
        return CliRunner().invoke(main, ["acl", *words], env=environment, input=answer)

    before = invoke("list", "--json").output if isinstance(broker, OutsideBroker) else ""
    done = invoke(*arguments)
    if before and done.exit_code == 0 and arguments[0] in ("add", "remove"):
        until = time.monotonic() + WAIT_S
        while invoke("list", "--json").output == before:  # Kafka's broker follows its controller
            assert time.monotonic() < until, "the list does not change"
    return done


def listed(broker: EphemeralBroker, *arguments: str) -> list[tuple[str, str, str]]:
    done = run(broker, "list", "--json", *arguments)
    assert done.exit_code == 0, done.output
    return [(row["principal"], row["operation"], row["name"]) for row in json.loads(done.output)]


def test_entries_for_a_producer_and_a_consumer(semel_broker: EphemeralBroker) -> None:
    done = run(semel_broker, "add", "--principal", "User:alice", "--allow", "read,write", "--topic", "flights")
    assert done.exit_code == 0, done.output
    assert "added: ALLOW READ on TOPIC 'flights' to User:alice from *" in done.output
    run(
        semel_broker, "add", "--principal", "User:bob", "--allow", "read", "--topic", "fl", "--group", "g", "--prefixed"
    )
    assert listed(semel_broker) == [
        ("User:bob", "read", "fl"),
        ("User:alice", "read", "flights"),
        ("User:alice", "write", "flights"),
        ("User:bob", "read", "g"),
    ]
    assert listed(semel_broker, "--principal", "User:bob") == [("User:bob", "read", "fl"), ("User:bob", "read", "g")]
    assert ("User:bob", "read", "fl") in listed(semel_broker, "--for", "--topic", "flights")
    assert ("User:bob", "read", "fl") not in listed(semel_broker, "--topic", "flights")


def test_remove_shows_what_it_removes_and_asks(semel_broker: EphemeralBroker) -> None:
    run(semel_broker, "add", "--principal", "User:alice", "--deny", "all", "--cluster")
    kept = run(semel_broker, "remove", "--principal", "User:alice", answer="n\n")
    assert kept.exit_code == 1
    assert "kafka-cluster" in kept.output
    assert len(listed(semel_broker)) == 1
    done = run(semel_broker, "remove", "--principal", "User:alice", "--yes")
    assert "removed: DENY ALL on CLUSTER 'kafka-cluster' to User:alice from *" in done.output
    assert listed(semel_broker) == []
    assert run(semel_broker, "remove", "--principal", "User:alice", "--yes").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", "--principal", "User:a", "--allow", "reed", "--topic", "t"], "Did you mean 'read'"),
        (["add", "--principal", "User:a", "--allow", "write", "--group", "g"], "no operation 'write' on a group"),
        (["add", "--principal", "User:a", "--topic", "t"], "give --allow or --deny"),
        (["add", "--principal", "User:a", "--allow", "read"], "name a resource"),
        (["remove", "--yes"], "say which entries"),
    ],
)
def test_wrong_arguments_are_explained(semel_broker: EphemeralBroker, arguments: list[str], words: str) -> None:
    done = run(semel_broker, *arguments)
    assert done.exit_code == 2
    assert words in " ".join(done.output.split())


@pytest.mark.semel(settings={"super.users": "User:root"})
@pytest.mark.semel_only("needs a broker with other super users")
def test_without_the_right_the_error_names_principal_operation_and_resource(semel_broker: EphemeralBroker) -> None:
    done = run(semel_broker, "list")
    assert done.exit_code == 1
    assert "ClusterAuthorizationFailedError" in done.output


@pytest.mark.semel(settings={"super.users": "User:root"})
@pytest.mark.semel_only("needs a broker with other super users")
@pytest.mark.parametrize(
    ("arguments", "operation"),
    [(["consume", "t", "--from-beginning", "--exit-at-end"], "read"), (["produce", "t"], "write")],
)
def test_a_command_that_lacks_a_right_prints_the_command_that_gives_it(
    semel_broker: EphemeralBroker, arguments: list[str], operation: str
) -> None:
    """Its first look at the topic needs DESCRIBE alone, and that would not be enough."""
    semel_broker.create_topic("t")
    done = CliRunner().invoke(main, [*arguments, "-b", semel_broker.bootstrap_servers], input="x\n")
    assert done.exit_code == 1
    command = f"semel acl add --principal User:ANONYMOUS --allow {operation} --topic t"
    assert " ".join(done.output.split()).endswith(command)


def test_without_an_authorizer_the_error_says_what_to_set() -> None:
    with EphemeralBroker() as broker:
        done = run(broker, "list")
    assert done.exit_code == 1
    assert "authorizer.class.name" in done.output
