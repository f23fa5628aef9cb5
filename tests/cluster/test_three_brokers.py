"""docker-compose.yml as it stands: three brokers and an etcd come up, lose a leader, and lose no record."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from semel import Admin, NewTopic
from semel.cli.main import main
from semel.errors import UnknownTopicOrPartitionError
from semel.structs import TopicMetadata
from support import etcd

from tools.cluster import choice, compose
from tools.cluster.cluster import RunningProject

ROOT = Path(__file__).parents[2]
TOPIC = "flights"
RECORDS = 300
DELIVERY_S = 30

pytestmark = [pytest.mark.skipif(etcd.binary() is None, reason=etcd.WHY_NOT)]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningProject]:
    ports = {f"BROKER_{i}_PORT": str(port) for i, port in enumerate(etcd.free_ports(3), 1)}
    project = compose.load(ROOT / "docker-compose.yml", {**os.environ, **ports})
    async with RunningProject(project, tmp_path / "state", choice.place(project, tmp_path / "state")) as running:
        yield running


def addresses(cluster: RunningProject) -> str:
    published = [
        compose.ports(each)[0] for name, each in cluster.project.services.items() if name.startswith("broker-")
    ]
    return ",".join(f"{port.host}:{port.published}" for port in published)


def produce(producer: Producer, first: int) -> None:
    """RECORDS numbers from `first` on, each acknowledged by two brokers at least."""
    refused: list[object] = []

    def delivered(error: object, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, str(number).encode(), str(number).encode(), on_delivery=delivered)
    assert producer.flush(DELIVERY_S) == 0
    assert refused == []


def consumed(bootstrap: str, count: int) -> list[int]:
    """`count` numbers from the beginning of every partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, OFFSET_BEGINNING) for partition in range(3)])
    found: list[int] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count, DELIVERY_S)
            assert messages, f"nothing for {DELIVERY_S} s; {len(found)} of {count} until then"
            for message in messages:
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                found.append(int(value))
    finally:
        consumer.close()
    return found


async def described(admin: Admin) -> TopicMetadata:
    """The description of the topic, once the asked broker knows it; the broker that created it knows it first."""
    async with asyncio.timeout(20):
        while True:
            try:
                (topic,) = await admin.describe_topics([TOPIC])
            except UnknownTopicOrPartitionError:
                await asyncio.sleep(0.02)
            else:
                return topic


async def test_a_killed_leader_costs_no_record_and_comes_back(cluster: RunningProject) -> None:
    bootstrap = addresses(cluster)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, 3, 3)])
        topic = await described(admin)
        assert sorted(each.leader for each in topic.partitions) == [1, 2, 3]
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    await asyncio.to_thread(produce, producer, 0)
    leader = f"broker-{topic.partitions[0].leader}"
    await cluster.kill(leader)
    await asyncio.to_thread(produce, producer, RECORDS)
    await cluster.start(leader)
    await cluster.healthy(leader)
    await asyncio.to_thread(produce, producer, 2 * RECORDS)
    found = await asyncio.to_thread(consumed, bootstrap, 3 * RECORDS)
    assert sorted(found) == list(range(3 * RECORDS))
    assert cluster.services[leader].starts == 2
    assert all(each.starts == 1 for name, each in cluster.services.items() if name != leader)


async def shown(bootstrap: str) -> Result:
    """The output of `semel cluster`, which runs its own loop in another thread."""
    return await asyncio.to_thread(CliRunner().invoke, main, ["cluster", "-b", bootstrap])


async def says(bootstrap: str, words: str) -> str:
    """The output, once its last line contains these words. No line may name a broker as the cause of an etcd outage."""
    seen: list[str] = []
    try:
        async with asyncio.timeout(60):
            while not seen or words not in seen[-1]:
                done = await shown(bootstrap)
                seen.append(done.output.strip().splitlines()[-1])
                assert "Start broker" not in seen[-1], seen
    except TimeoutError:
        raise AssertionError(f"never {words!r}, but {list(dict.fromkeys(seen))}") from None
    return done.output


@pytest.mark.thorough
async def test_a_dead_broker_is_shown_at_once_and_a_dead_etcd_is_distinguished(cluster: RunningProject) -> None:
    bootstrap = addresses(cluster)
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, 3, 3)])
        leader = (await described(admin)).partitions[0].leader
    await says(bootstrap, "Healthy: ")
    await cluster.kill(f"broker-{leader}")
    told = await shown(bootstrap)
    assert "Healthy" not in told.output, "its session has not run out yet"
    assert "does not answer" in told.output
    await cluster.start(f"broker-{leader}")
    await says(bootstrap, "Healthy: ")
    await cluster.kill("etcd")
    out = await says(bootstrap, "without it no broker may lead")
    assert "brokers 1, 2, 3 answer, but cannot reach the cluster's store (etcd)" in out
    await cluster.start("etcd")
    await says(bootstrap, "Healthy: ")
