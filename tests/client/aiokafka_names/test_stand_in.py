"""`semel.aiokafka` in place of aiokafka: its names, its submodules, and programs that import aiokafka."""

from __future__ import annotations

import importlib
import inspect
import operator
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import aiokafka
import aiokafka.admin
import aiokafka.errors
import pytest
import semel.aiokafka
from semel.aiokafka import errors
from semel_protocol.errors import ErrorCode
from support.processes import BrokerProcess

INNER = (
    "codec",
    "conn",
    "protocol",
    "record",
    "consumer.fetcher",
    "consumer.group_coordinator",
    "coordinator.assignors.sticky.partition_movements",
    "coordinator.assignors.sticky.sorted_set",
    "producer.sender",
    "producer.transaction_manager",
)
"""Submodules of aiokafka's inside: no application imports them."""


def test_every_public_name_of_aiokafka_is_there() -> None:
    assert not [name for name in aiokafka.__all__ if not hasattr(semel.aiokafka, name)]


def test_every_error_of_aiokafka_is_there_and_is_an_error_of_semel() -> None:
    theirs = [name for name, value in vars(aiokafka.errors).items() if isinstance(value, type)]
    theirs = [name for name in theirs if issubclass(getattr(aiokafka.errors, name), aiokafka.errors.KafkaError)]
    assert len(theirs) > 100
    assert not [name for name in theirs if not issubclass(getattr(errors, name, object), errors.KafkaError)]


def test_a_code_of_the_broker_has_the_class_that_aiokafka_calls_so() -> None:
    """`except errors.NotCoordinatorError` catches what semel raises for the code."""
    for theirs in aiokafka.errors.kafka_errors.values():
        if theirs.errno > 0:
            ours = getattr(errors, theirs.__name__)
            assert issubclass(errors.for_code(theirs.errno), ours), theirs.__name__
    assert errors.for_code(ErrorCode.NOT_COORDINATOR) is errors.NotCoordinatorError
    assert errors.for_code(30_000) is errors.UnknownError


def test_the_submodules_that_applications_import_are_there() -> None:
    for module in pkgutil.walk_packages(aiokafka.__path__, ""):
        if not any(module.name == inner or module.name.startswith(f"{inner}.") for inner in INNER):
            ours = importlib.import_module(f"semel.aiokafka.{module.name}")
            theirs = importlib.import_module(f"aiokafka.{module.name}")
            names = [name for name in getattr(theirs, "__all__", ()) if not hasattr(ours, name)]
            assert not names, module.name


CLASSES = ("AIOKafkaProducer", "AIOKafkaConsumer", "admin.AIOKafkaAdminClient")


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_of_aiokafkas_is_there_with_its_arguments_in_their_order(name: str) -> None:
    theirs, ours = operator.attrgetter(name)(aiokafka), operator.attrgetter(name)(semel.aiokafka)
    methods = {key: value for key, value in vars(theirs).items() if not key.startswith("_") and callable(value)}
    assert methods
    for key, method in methods.items():
        wanted = list(inspect.signature(method).parameters)[1:]
        found = [each for each in inspect.signature(getattr(ours, key)).parameters if each in wanted]
        assert found == wanted, key


OTHER_DEFAULTS = (
    "acks",
    "client_id",
    "client_rack",
    "consumer_timeout_ms",
    "enable_idempotence",
    "max_poll_records",
    "partition_assignment_strategy",
    "request_timeout_ms",
    "session_timeout_ms",
)
"""The settings whose default is another one than aiokafka's, each with a row in docs/moving-from-aiokafka.md."""
SAME_MEANING = ("bootstrap_servers", "partitioner")
"""The defaults are not equal as objects: "localhost" has the port 9092, and None is the same partitioner."""


@pytest.mark.parametrize("name", CLASSES)
def test_the_defaults_that_differ_from_aiokafkas_are_those_of_the_page(name: str) -> None:
    theirs = inspect.signature(operator.attrgetter(name)(aiokafka).__init__).parameters
    ours = inspect.signature(operator.attrgetter(name)(semel.aiokafka).__init__).parameters
    differing = {
        key
        for key, each in theirs.items()
        if key in ours and each.default is not each.empty and each.default != ours[key].default
    }
    differing -= set(SAME_MEANING)
    assert differing <= set(OTHER_DEFAULTS)
    page = (Path(__file__).parents[3] / "docs" / "moving-from-aiokafka.md").read_text()
    for key in differing:
        assert f"`{key}`" in page, key


PROGRAM = """
import semel.aiokafka
semel.aiokafka.install()
semel.aiokafka.install()

import asyncio, sys
import aiokafka, aiokafka.admin.client
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError, TopicAlreadyExistsError
from aiokafka.helpers import create_ssl_context
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.producer.producer import _missing
from aiokafka.structs import RecordMetadata

assert AIOKafkaConsumer.__module__.startswith("semel.")
create_ssl_context()


class Listener(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        pass

    def on_partitions_assigned(self, assigned):
        print("assigned", len(assigned))


async def main(server):
    admin = AIOKafkaAdminClient(bootstrap_servers=server)
    await admin.start()
    await admin.create_topics([NewTopic("t", 3, 1)])
    ((_, code, _),) = (await admin.create_topics([NewTopic("t", 3, 1)])).topic_errors
    assert code == TopicAlreadyExistsError.errno
    print("there already", code)
    await admin.close()
    client = AIOKafkaClient(bootstrap_servers=server)
    await client.bootstrap()
    print("topics", sorted(client.cluster.topics()))
    await client.close()
    defaults = {"partitioner": DefaultPartitioner(), "acks": _missing, "sasl_mechanism": "PLAIN", "api_version": "auto"}
    producer = AIOKafkaProducer(bootstrap_servers=server, **defaults)
    await producer.start()
    sent = await producer.send_and_wait("t", b"value", key=b"key")
    await producer.stop()
    assert isinstance(sent, RecordMetadata)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=server, group_id="g", auto_offset_reset="earliest",
        partition_assignment_strategy=(RoundRobinPartitionAssignor,), sasl_plain_username=None,
    )
    consumer.subscribe(["t"], listener=Listener())
    await consumer.start()
    record = await consumer.getone()
    print(record.value, bool(consumer._coordinator.member_id))
    await consumer.stop()

asyncio.run(main(sys.argv[1]))
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=dict(os.environ),
    )


@pytest.mark.real_time
def test_a_program_that_imports_aiokafka_runs_on_semel(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, **{"group.initial.rebalance.delay.ms": "0"}).start()
    try:
        done = run(PROGRAM, broker.address)
    finally:
        assert broker.stop() == 0
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "there already 36", "topics ['t']", "assigned 3", "b'value' True"
    ]  # fmt: skip


def test_aiokafka_that_is_imported_already_is_not_replaced() -> None:
    done = run("import aiokafka, semel.aiokafka; semel.aiokafka.install()")
    assert done.returncode == 1
    assert "call semel.aiokafka.install() before the first import of aiokafka" in done.stderr


def test_a_submodule_that_semel_lacks_is_named() -> None:
    done = run("import semel.aiokafka; semel.aiokafka.install(); import aiokafka.conn")
    assert "No module named 'aiokafka.conn'" in done.stderr
