"""Transactions of off-the-shelf clients: consume, transform, produce; aborts; a fenced zombie; kill -9 of the broker.

All of them speak the old protocol (transaction version 1), semel's own the new. Each reads the records of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from support.processes import BrokerProcess
from support.strangers import EVERYONE, STRANGERS
from support.tiers import tiered
from support.transactional import TRANSACTIONAL, ConfluentOfTheConsumerProtocol, TransactionalClient

Make = Callable[..., TransactionalClient]
PIPELINES = [*TRANSACTIONAL, ConfluentOfTheConsumerProtocol]
each_pipeline = pytest.mark.parametrize(
    "make", tiered(PIPELINES, lambda make: make in TRANSACTIONAL), ids=lambda m: m.name
)
# Of the same client, and of the next one: semel's speaks transaction version 2, the others 1.
SUCCESSIONS = [(make, make) for make in TRANSACTIONAL] + list(pairwise([*PIPELINES, TRANSACTIONAL[0]]))


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(start, start + count)]


def fill(address: str, topic: str, count: int, start: int = 0) -> None:
    rows = [(i % 3, None, value) for i, value in enumerate(values(count, start), start)]
    STRANGERS[0](address).produce(topic, rows)


def outputs(address: str, topic: str, count: int, client: Any = STRANGERS[0]) -> list[bytes]:
    """The values that a read_committed reader gets: at least `count`, and all others present."""
    rows = client(address).consume(topic, count, isolation="read_committed")
    return [row.value for row in rows]


def make_topics(address: str, source: str, target: str) -> None:
    STRANGERS[0](address).create_topic(source, 3)
    STRANGERS[0](address).create_topic(target, 3)


def check_each_once(found: list[bytes], wanted: list[bytes]) -> None:
    counts = Counter(found)
    assert not [value for value, n in counts.items() if n > 1], "duplicates"
    assert sorted(counts) == sorted(wanted)


@each_pipeline
def test_consume_transform_produce_with_aborts_is_exact_for_every_reader(
    broker: BrokerProcess, topic: str, make: Make
) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    make_topics(broker.address, source, target)
    fill(broker.address, source, 300)
    pipeline = make(broker.address, source, target, f"group-{topic}", f"tx-{topic}")
    with pipeline:
        pipeline.run(300, abort_every=3)
    assert pipeline.aborted > 0
    wanted = [b"done-" + value for value in values(300)]
    for reader in EVERYONE:
        check_each_once(outputs(broker.address, target, 300, reader), wanted)


@pytest.mark.parametrize(
    ("before", "after"), tiered(SUCCESSIONS, lambda pair: pair[0] is pair[1]), ids=lambda m: m.name
)
def test_a_zombie_is_fenced_and_nothing_of_it_is_read(
    broker: BrokerProcess, topic: str, before: Make, after: Make
) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    make_topics(broker.address, source, target)
    fill(broker.address, source, 30)
    zombie = before(broker.address, source, target, f"group-{topic}", f"tx-{topic}")
    with zombie:
        zombie.write_and_leave_open(b"of-the-zombie")
        successor = after(broker.address, source, target, f"group-{topic}", f"tx-{topic}")
        with successor:
            successor.run(30)
            assert zombie.is_fenced_when_it_commits()
    check_each_once(outputs(broker.address, target, 30), [b"done-" + value for value in values(30)])


# kafka-python is left out: its producer does not survive this with any broker. The file beside this one
# (test_kafka_python_transactions.py) says why, and goes as far as it can.
@pytest.mark.parametrize(
    "make",
    tiered([m for m in PIPELINES if m.name != "kafka-python"], lambda make: make.name == "confluent-kafka"),
    ids=lambda m: m.name,
)
def test_kill_9_of_the_broker_leaves_every_input_with_exactly_one_output(
    own_broker: BrokerProcess, topic: str, make: Make
) -> None:
    source, target = f"{topic}-in", f"{topic}-out"
    make_topics(own_broker.address, source, target)
    fill(own_broker.address, source, 600)
    pipeline = make(own_broker.address, source, target, "group", "tx")
    kills = iter((150, 350))

    def between(done: int) -> None:
        nonlocal due
        if due is not None and done >= due:
            own_broker.kill_and_restart()
            due = next(kills, None)

    due: int | None = next(kills)
    pipeline.keep_alive(600, between)
    check_each_once(outputs(own_broker.address, target, 600), [b"done-" + value for value in values(600)])
