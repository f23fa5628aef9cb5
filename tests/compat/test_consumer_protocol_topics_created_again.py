"""A topic that is deleted and created again while members of a group of the consumer protocol (KIP-848) have it.

The members read the new topic from its start. Nothing is carried over by its name, least of all committed offsets.

The records of the new topic are written once the members have got it. Until then they have positions of the old topic,
and librdkafka 2.16 continues from these in the new one (docs/compatibility.md). semel's client does not, which has a
test of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest
from confluent_kafka import Consumer, TopicPartition
from support.group_processes import SETTINGS, GroupProcess, Library, committed, not_once, shared, until
from support.group_program import ProgramJob
from support.processes import BrokerProcess
from support.strangers import ConfluentStranger
from support.tiers import tiered

Start = Callable[[str], GroupProcess]
PARTITIONS = 3
FRESH = {"librdkafka": {"topic.metadata.refresh.interval.ms": 1000}, "semel": {"metadata_max_age_ms": 1000}}
"""Settings with which a client soon notices that the topic is a new one."""
CASES = [
    (library, subscription, moment)
    for library in get_args(Library)
    for subscription in ("orders", "^orders.*")
    for moment in ("at once", "after the broker was killed", "after all have given it up")
]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that creates no topic by itself: a request of a consumer would create the deleted topic again."""
    settings = {**SETTINGS, "auto.create.topics.enable": "false"}
    process = BrokerProcess(tmp_path / "data", **settings).start()
    yield process
    process.stop()


@pytest.fixture
def start(broker: BrokerProcess, library: Library) -> Iterator[Start]:
    started: list[GroupProcess] = []

    def start(subscription: str) -> GroupProcess:
        job = ProgramJob(bootstrap=broker.address, subscription=subscription, config=FRESH[library])
        started.append(GroupProcess(job, library))
        return started[-1]

    yield start
    for member in started:
        member.kill()


def committed_offsets(broker: BrokerProcess) -> list[int]:
    """The committed offset of each partition. -1001: there is none."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
    found = consumer.committed([TopicPartition("orders", partition) for partition in range(PARTITIONS)], 30)
    consumer.close()
    return [place.offset for place in found]


def revocations(member: GroupProcess) -> int:
    return len(member.more_of("revoked"))


@pytest.mark.parametrize(
    ("library", "subscription", "moment"),
    tiered(CASES, lambda case: case == ("librdkafka", "^orders.*", "at once")),
)
def test_members_read_a_topic_that_is_created_again_from_its_start(
    broker: BrokerProcess, start: Start, subscription: str, moment: str
) -> None:
    face = ConfluentStranger(broker.address)
    face.create_topic("orders", PARTITIONS)
    members = [start(subscription), start(subscription)]
    until(lambda: shared(members, PARTITIONS), members, "two members share three partitions")
    face.produce("orders", [(n % PARTITIONS, None, b"old-%d" % n) for n in range(60)])
    until(lambda: committed(members) == 60, members, "the old topic is read")
    assert committed_offsets(broker) == [20, 20, 20]
    before = [revocations(member) for member in members]
    face.delete_topic("orders")
    if moment == "after the broker was killed":
        broker.kill()
        broker.start()
    if moment == "after all have given it up":
        until(lambda: not any(member.assigned for member in members), members, "the old topic is revoked")
    face.create_topic("orders", PARTITIONS)
    until(
        lambda: (
            all(revocations(member) > count for member, count in zip(members, before, strict=True))
            and shared(members, PARTITIONS)
        ),
        members,
        "the old topic is revoked, and two members share the new one",
    )
    assert committed_offsets(broker) == [-1001, -1001, -1001]
    face.produce("orders", [(n % PARTITIONS, None, b"new-%d" % n) for n in range(30)])
    until(lambda: committed(members) == 90, members, "the new topic is read")
    values = [value for member in members for value in member.values]
    assert not_once(values, [f"old-{n}" for n in range(60)] + [f"new-{n}" for n in range(30)]) == {}
    assert committed_offsets(broker) == [10, 10, 10]


@pytest.mark.parametrize("library", tiered(["semel"], lambda _: False))
def test_no_record_is_missed_that_is_written_before_the_members_have_the_new_topic(
    broker: BrokerProcess, start: Start
) -> None:
    """The new topic is longer than the old one, so the old positions are in its range."""
    face = ConfluentStranger(broker.address)
    face.create_topic("orders", PARTITIONS)
    members = [start("orders"), start("orders")]
    until(lambda: shared(members, PARTITIONS), members, "two members share three partitions")
    face.produce("orders", [(n % PARTITIONS, None, b"old-%d" % n) for n in range(60)])
    until(lambda: committed(members) == 60, members, "the old topic is read")
    face.delete_topic("orders")
    face.create_topic("orders", PARTITIONS)
    face.produce("orders", [(n % PARTITIONS, None, b"new-%d" % n) for n in range(120)])
    until(lambda: committed(members) == 180, members, "the new topic is read")
    values = [value for member in members for value in member.values]
    assert not_once(values, [f"old-{n}" for n in range(60)] + [f"new-{n}" for n in range(120)]) == {}
    assert committed_offsets(broker) == [40, 40, 40]
