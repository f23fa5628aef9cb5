"""A group of the consumer protocol (KIP-848) on three brokers: coordinators and leaders are killed, all are restarted.

The members are librdkafka's, or semel's. Each internal topic has one partition: its leader is the coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
from semel import Admin
from semel.errors import KafkaError
from support import etcd
from support.group_processes import (
    SETTINGS,
    GroupProcess,
    Library,
    committed,
    not_once,
    ownership_faults,
    shared,
    until,
)
from support.group_program import ProgramJob
from support.strangers import ConfluentStranger
from support.three import NODES, EtcdAndThreeBrokers, three

PARTITIONS = 6
ASSIGNMENTS = [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2
OF_GROUPS, OF_TRANSACTIONS = "__consumer_offsets", "__transaction_state"
THREE = {
    **SETTINGS,
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "broker.session.timeout.ms": "3000",
    # Longer than a busy machine keeps members from running: none may lose its membership here.
    "group.consumer.session.timeout.ms": "15000",
}
TIMEOUT_S = 240

Start = Callable[..., GroupProcess]
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(etcd.binary() is None, reason=etcd.WHY_NOT),
    pytest.mark.parametrize("library", get_args(Library)),
]


def are_all(conditions: list[Callable[[], bool]]) -> bool:
    return all(condition() for condition in conditions)


class ReadTopic:
    """The cluster, the written values, and the processes that read them."""

    def __init__(self, cluster: EtcdAndThreeBrokers) -> None:
        self.cluster = cluster
        self.sent = 0
        self.started: list[GroupProcess] = []

    def start(self, library: Library, name: str, target: str = "") -> GroupProcess:
        job = ProgramJob(bootstrap=self.cluster.addresses, members=(name,), target=target)
        self.started.append(GroupProcess(job, library))
        return self.started[-1]

    def feed(self, count: int) -> None:
        rows = [(n % PARTITIONS, None, b"%d" % n) for n in range(self.sent, self.sent + count)]
        ConfluentStranger(self.cluster.addresses).produce("t", rows)
        self.sent += count

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, [each for each in self.started if each.is_running], what, TIMEOUT_S)

    def leader(self, topic: str, partition: int = 0) -> int:
        async def ask() -> int:
            async with Admin(bootstrap_servers=self.cluster.addresses) as admin:
                (described,) = await admin.describe_topics([topic])
                return described.partitions[partition].leader

        return asyncio.run(ask())

    def restart(self, node_id: int) -> None:
        """Start a broker that is down; return when it is a replica in sync of everything."""
        self.cluster.brokers[node_id].start(TIMEOUT_S)
        for topic in ("t", OF_GROUPS):
            self.cluster.wait(topic, lambda partition: len(partition.isr) == len(NODES) and partition.leader >= 0)

    def leader_of_input(self, partition: int) -> int:
        return self.leader("t", partition)

    def kill_and_restart(self, node_id: int, done: Callable[[], bool]) -> None:
        """Kill a broker while records are read; start it again once all are."""
        self.feed(300)
        self.cluster.brokers[node_id].kill()
        self.feed(300)
        self.until(done, f"all is read after broker {node_id} was killed")
        self.restart(node_id)

    def roll(self, done: Callable[[], bool]) -> None:
        """Stop and start each broker, while records are read."""
        for node_id in NODES:
            self.feed(120)
            assert self.cluster.brokers[node_id].stop(TIMEOUT_S) == 0
            self.feed(120)
            self.restart(node_id)
        self.until(done, "all is read while the brokers are rolled")

    def inputs_done(self) -> int:
        """The inputs before the committed offsets of the group. -1: the coordinator does not answer."""

        async def ask() -> int:
            async with Admin(bootstrap_servers=self.cluster.addresses) as admin:
                return sum(row.offset for row in (await admin.list_consumer_group_offsets("g")).values())

        try:
            return asyncio.run(ask())
        except KafkaError:
            return -1


@pytest.fixture
def work(tmp_path: Path) -> Iterator[ReadTopic]:
    with three(tmp_path / "cluster", **THREE) as cluster:
        cluster.create("t", ASSIGNMENTS)
        cluster.create("out", ASSIGNMENTS)
        work = ReadTopic(cluster)
        yield work
        for process in work.started:
            process.kill()


def test_members_read_each_value_once_over_killed_coordinators_and_leaders_and_a_rolling_restart(
    work: ReadTopic, library: Library
) -> None:
    members = [work.start(library, name) for name in ("one", "two", "three")]

    def is_done() -> bool:
        return committed(members) == work.sent

    work.until(lambda: shared(members), "three members share six partitions")
    work.feed(300)
    work.until(is_done, "all is read")
    coordinator = work.leader(OF_GROUPS)
    work.kill_and_restart(coordinator, is_done)
    leader = next(node for node in map(work.leader_of_input, range(PARTITIONS)) if node != work.leader(OF_GROUPS))
    work.kill_and_restart(leader, is_done)
    work.roll(is_done)
    for member in members:
        member.leave()
    values = [value for member in members for value in member.values]
    assert not_once(values, map(str, range(work.sent))) == {}
    assert ownership_faults(event for member in members for event in member.events) == []


def test_transactions_of_workers_are_exact_over_killed_coordinators_and_leaders_and_a_rolling_restart(
    work: ReadTopic, library: Library
) -> None:
    one, two, three = (work.start(library, name, "out") for name in ("one", "two", "three"))

    def is_done() -> bool:
        return work.inputs_done() >= work.sent

    for role in (OF_GROUPS, OF_TRANSACTIONS, "out"):
        work.until(lambda: shared([one, two, three]), "three workers share six partitions")
        node_id = work.leader(role)
        held = [one.hold("sent"), two.hold("offsets")]
        work.feed(300)
        work.until(partial(are_all, held), "two are amid a transaction")
        work.cluster.brokers[node_id].kill()
        one.tell("go")
        two.tell("go")
        work.feed(300)
        work.until(is_done, f"all is done after the leader of {role} was killed")
        work.restart(node_id)
    work.until(lambda: shared([one, two, three]), "three workers share six partitions")
    is_held = one.hold("offsets")
    work.feed(300)
    work.until(is_held, "one is amid a transaction")
    one.kill()
    one = work.start(library, "one", "out")
    work.roll(is_done)
    for worker in (one, two, three):
        worker.leave()
    face = ConfluentStranger(work.cluster.addresses)
    rows = face.read_to_end("out")
    values = [row.value.decode() for row in rows if row.value is not None]
    assert not_once(values, [f"done-{n}" for n in range(work.sent)]) == {}
    assert len(face.read_to_end("out", "read_uncommitted")) > len(rows), "the killed worker had written records"
