"""librdkafka with group.protocol=consumer (KIP-848), alone and with semel's client: each record is read once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import semel
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from support.group_processes import SETTINGS, GroupProcess, committed, shared, until
from support.group_program import ProgramJob
from support.processes import BrokerProcess
from support.strangers import ConfluentStranger

Start = Callable[..., GroupProcess]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", **SETTINGS).start()
    yield process
    process.stop()


@pytest.fixture
def start(broker: BrokerProcess) -> Iterator[Start]:
    """Start a member; more settings of its consumer by their names, with underscores for dots."""
    started: list[GroupProcess] = []

    def start(subscription: str = "t", **config: str) -> GroupProcess:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        started.append(GroupProcess(ProgramJob(bootstrap=broker.address, subscription=subscription, config=settings)))
        return started[-1]

    yield start
    for member in started:
        member.kill()


def group_type(broker: BrokerProcess) -> str:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.list_topics(timeout=20)
    (listed,) = admin.list_consumer_groups(request_timeout=20).result().valid
    return str(listed.type.name).lower()


def values(first: int, last: int) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(number % 6, None, b"%d" % number) for number in range(first, last)]


def test_three_members_share_and_the_others_take_over_from_one_that_is_killed(
    broker: BrokerProcess, start: Start
) -> None:
    face = ConfluentStranger(broker.address)
    face.create_topic("t", 6)
    members = [start() for _ in range(3)]
    until(lambda: shared(members), members, "three members share six partitions")
    face.produce("t", values(0, 300))
    until(lambda: committed(members) == 300, members, "all is read and committed")
    members[1].kill()
    left = [members[0], members[2]]
    until(lambda: shared(left), left, "two members take over")
    face.produce("t", values(300, 600))
    until(lambda: committed(members) == 600, left, "all is read and committed")
    counts = Counter(value for member in members for value in member.values)
    assert counts == Counter(str(number) for number in range(600)), "each value once"


def test_a_static_member_that_is_killed_and_returns_gets_its_partitions_after_its_session(
    broker: BrokerProcess, start: Start
) -> None:
    face = ConfluentStranger(broker.address)
    face.create_topic("t", 6)
    one, two = start(group_instance_id="one"), start(group_instance_id="two")
    until(lambda: shared([one, two]), [one, two], "two members share six partitions")
    one.kill()
    until(lambda: two.assigned == list(range(6)), [two], "the session has ended")
    again = start(group_instance_id="one")
    until(lambda: shared([again, two]), [again, two], "the next incarnation shares")


def test_a_subscription_by_pattern_gets_topics_that_come_later(broker: BrokerProcess, start: Start) -> None:
    face = ConfluentStranger(broker.address)
    face.create_topic("orders-1", 2)
    one = start("^orders-.*")
    until(lambda: one.assigned == [0, 1], [one], "the first topic is matched")
    face.create_topic("orders-2", 2)
    until(lambda: one.assigned == [0, 0, 1, 1], [one], "the second topic is matched")
    face.produce("orders-2", [(0, None, b"x")])
    until(lambda: one.committed == 1, [one], "the record is read")


def test_an_administrator_sets_the_session_timeout_of_a_group(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.list_topics(timeout=20)
    entry = ConfigEntry("consumer.session.timeout.ms", "50000", incremental_operation=AlterConfigOpType.SET)
    (altered,) = admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.GROUP, "g", incremental_configs=[entry])]
    ).values()
    altered.result(20)
    (found,) = admin.describe_configs([ConfigResource(ConfigResource.Type.GROUP, "g")]).values()
    assert found.result(20)["consumer.session.timeout.ms"].value == "50000"


def test_members_continue_when_the_broker_is_killed_and_started_again(broker: BrokerProcess, start: Start) -> None:
    face = ConfluentStranger(broker.address)
    face.create_topic("t", 6)
    members = [start(), start()]
    until(lambda: shared(members), members, "two members share six partitions")
    face.produce("t", values(0, 60))
    until(lambda: committed(members) == 60, members, "all is read and committed")
    broker.kill()
    broker.start()
    ConfluentStranger(broker.address).produce("t", values(60, 120))
    until(lambda: committed(members) == 120, members, "reading goes on")
    counts = Counter(value for member in members for value in member.values)
    assert counts == Counter(str(number) for number in range(120)), "each value once"


def test_members_of_semels_client_and_of_librdkafka_share_a_group(broker: BrokerProcess, start: Start) -> None:
    face = ConfluentStranger(broker.address)
    face.create_topic("t", 6)
    other = start()
    until(lambda: other.assigned == list(range(6)), [other], "the first member has all partitions")

    async def reading() -> list[bytes]:
        ours: list[bytes] = []
        async with semel.Consumer(
            "t", bootstrap_servers=broker.address, group_id="g", group_protocol="consumer", auto_offset_reset="earliest"
        ) as consumer:
            async with asyncio.timeout(40):
                while len(consumer.assignment()) != 3 or len(other.assigned) != 3:
                    await consumer.getmany(timeout_ms=50)
                await asyncio.to_thread(face.produce, "t", values(0, 300))
                while len(ours) + other.committed < 300:
                    for records in (await consumer.getmany(timeout_ms=50)).values():
                        ours += [record.value for record in records]
        return ours

    ours = asyncio.run(reading())
    assert len(ours) == 150
    assert Counter([value.decode() for value in ours] + other.values) == Counter(str(number) for number in range(300))
    until(lambda: other.assigned == list(range(6)), [other], "the member that stays takes over")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("strategy", "dies"),
    [
        ("range", False),
        ("cooperative-sticky", False),
        ("cooperative-sticky", True),
    ],
)
def test_a_group_is_rolled_to_the_consumer_protocol_and_back_while_it_reads(
    broker: BrokerProcess, start: Start, strategy: str, dies: bool
) -> None:
    """`dies`: the coordinator is killed and started again while the group has members of both protocols."""
    face = ConfluentStranger(broker.address)
    face.create_topic("t", 6)
    protocols = {
        "classic": {
            "group.protocol": "classic",
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "200",
        },
        "consumer": {"group.protocol": "consumer"},
    }
    members = [start(**protocols["classic"]) for _ in range(3)]
    everyone = list(members)
    until(lambda: shared(members), members, "three classic members share six partitions")
    sent = 0

    def produce() -> None:
        nonlocal sent
        face.produce("t", values(sent, sent + 60))
        sent += 60

    for protocol in ("consumer", "classic"):
        for index in range(3):
            produce()  # is read while the group rebalances
            members[index].leave()
            produce()
            members[index] = start(**protocols[protocol])
            everyone.append(members[index])
            until(lambda: shared(members), members, f"member {index} is back with {protocol}")
            if dies and index == 1:
                broker.kill()
                broker.start()
            produce()
            until(lambda: committed(everyone) >= sent, members, "all is read and committed")
        assert group_type(broker) == protocol
    counts = Counter(value for member in everyone for value in member.values)
    assert counts == Counter(str(number) for number in range(sent)), "each value once"
