"""Three whole brokers in three racks: consumers with a rack fetch from the replica there (KIP-392)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.cluster.brokers import until
from broker.replication.trio import Trio
from confluent_kafka import Consumer as LibrdkafkaConsumer
from semel import Admin, Consumer, NewTopic, Producer
from support.etcd import EtcdProcess

pytestmark = pytest.mark.real_time

FETCH = 1


class Racks(Trio):
    """Broker N is in the rack `rack-N`."""

    def settings(self, node_id: int) -> list[str]:
        return [f"broker.rack=rack-{node_id}", "replica.selector.class=rack"]

    async def create(self) -> None:
        async with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            await admin.create_topics([NewTopic("t", 1, 3, topic_configs={"min.insync.replicas": "2"})])
        await until(lambda: all(node.broker.topics.get("t") is not None for node in self.nodes.values()))

    def bytes_fetched(self, node_id: int) -> int:
        """The bytes that this broker has sent to consumers."""
        return self.nodes[node_id].broker.counters.requests.of(FETCH).bytes_out


@pytest.fixture
async def racks(tmp_path: Path, etcd_process: EtcdProcess) -> AsyncIterator[Racks]:
    racks = Racks(tmp_path, etcd_process)
    yield racks
    await racks.stop(*racks.nodes)


async def send(racks: Racks, values: range, transactional_id: str | None = None) -> None:
    async with Producer(bootstrap_servers=racks.bootstrap_servers, transactional_id=transactional_id) as producer:
        if transactional_id is None:
            for n in values:
                await producer.send_and_wait("t", b"%d" % n)
            return
        for n in values:
            await producer.begin_transaction()
            await producer.send("t", b"%d" % n)
            await producer.send_and_wait("t", b"aborted" if n % 2 else b"too")
            await (producer.commit_transaction() if n % 2 == 0 else producer.abort_transaction())


@pytest.mark.parametrize("isolation_level", ["read_uncommitted", "read_committed"])
async def test_a_consumer_reads_from_the_replica_in_its_rack(racks: Racks, isolation_level: str) -> None:
    await racks.start(1, 2, 3)
    await racks.create()
    leader = racks.leader()
    near = next(node_id for node_id in racks.nodes if node_id != leader)
    consumer = Consumer(
        "t",
        bootstrap_servers=racks.bootstrap_servers,
        auto_offset_reset="earliest",
        client_rack=f"rack-{near}",
        isolation_level=isolation_level,
    )
    async with consumer:
        await send(racks, range(20), "x")
        found = [(await anext(consumer)).value for _ in range(20 if isolation_level == "read_committed" else 40)]
        before = racks.bytes_fetched(leader)
        await send(racks, range(20, 60))
        found = [(await anext(consumer)).value for _ in range(40)]
        assert found == [b"%d" % n for n in range(20, 60)]
    fetched = racks.bytes_fetched(near)
    assert fetched > 40 * 60
    assert racks.bytes_fetched(leader) - before < fetched / 4


async def test_when_the_replica_dies_its_consumers_go_back_to_the_leader(racks: Racks) -> None:
    await racks.start(1, 2, 3)
    await racks.create()
    near = next(node_id for node_id in racks.nodes if node_id != racks.leader())
    consumer = Consumer(
        "t", bootstrap_servers=racks.bootstrap_servers, auto_offset_reset="earliest", client_rack=f"rack-{near}"
    )
    async with consumer:
        await send(racks, range(20))
        found = [(await anext(consumer)).value for _ in range(20)]
        await until(lambda: racks.bytes_fetched(near) > 0)
        await asyncio.gather(racks.stop(near), send(racks, range(20, 40)))
        found += [(await anext(consumer)).value for _ in range(20)]
        await racks.start(near)
        await asyncio.gather(racks.stop(racks.leader()), send(racks, range(40, 60)))
        found += [(await anext(consumer)).value for _ in range(20)]
    assert found == [b"%d" % n for n in range(60)]


async def test_librdkafka_reads_from_the_replica_in_its_rack(racks: Racks) -> None:
    await racks.start(1, 2, 3)
    await racks.create()
    await send(racks, range(200))
    leader = racks.leader()
    near = next(node_id for node_id in racks.nodes if node_id != leader)
    values = await asyncio.to_thread(read_with_librdkafka, racks.bootstrap_servers, f"rack-{near}", 200)
    assert values == [b"%d" % n for n in range(200)]
    assert racks.bytes_fetched(near) > 200 * 60
    assert racks.bytes_fetched(leader) < 20 * 60


def read_with_librdkafka(servers: str, rack: str, count: int) -> list[bytes | None]:
    consumer = LibrdkafkaConsumer(
        {"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest", "client.rack": rack}
    )
    try:
        consumer.subscribe(["t"])
        values: list[bytes | None] = []
        while len(values) < count:
            message = consumer.poll(20)
            assert message is not None, f"nothing for 20 s after {len(values)} records"
            assert message.error() is None, message.error()
            values.append(message.value())
        return values
    finally:
        consumer.close()
