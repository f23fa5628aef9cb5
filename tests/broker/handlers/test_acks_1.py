"""acks=1: an acknowledged record is on the leader's disk; without followers, readers see it (decision 18)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from broker.cluster.brokers import until
from broker.conftest import StartBroker
from broker.coordination.coordinator_cluster import CoordinatorBroker, CoordinatorCluster
from broker.handlers.test_list_offsets import look_up
from broker.wire import Wire, batch, produce_request, records_of, send_record
from semel_broker.partitions.partition import LATEST
from semel_protocol.errors import ErrorCode
from semel_storage.disk.os_disk import OsDisk

LEADER = 1


@pytest.fixture
async def nodes() -> AsyncIterator[CoordinatorCluster]:
    nodes = CoordinatorCluster()
    yield nodes
    await nodes.close()


async def alone(nodes: CoordinatorCluster, **settings: str) -> CoordinatorBroker:
    (one,) = await nodes.start(1, **settings)
    await nodes.topic([1])
    return one


send = partial(send_record, acks=LEADER)


async def latest(wire: Wire) -> int:
    return int((await look_up(wire, LATEST)).offset)


async def test_an_acknowledged_record_is_visible_to_all_readers_at_once(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with slow syncs, in a thread."""
    monkeypatch.setattr(OsDisk, "sync_if_quick", lambda *_: False)
    broker = await start_broker(durability="fsync")
    writer, reader = await broker.wire(), await broker.wire()
    await writer.create_topic("t")
    for n in range(50):
        assert (await writer.produce("t", batch(b"%d" % n), acks=LEADER)).base_offset == n
        assert await latest(reader) == n + 1
        row = await reader.fetch("t", n, max_wait_ms=0)
        assert [record.value for record in records_of(row.records)] == [b"%d" % n]


async def test_acks_1_is_answered_only_after_the_leaders_sync(nodes: CoordinatorCluster) -> None:
    one = await alone(nodes)
    writer, reader = await one.wire(), await one.wire()
    one.disk.hold_syncs()
    sent = send(writer)
    await until(lambda: one.partition().end_offset == 1)
    assert await latest(reader) == 0
    assert not sent.done()
    one.disk.release_syncs()
    assert (await sent).error_code == 0
    assert await latest(reader) == 1


async def test_acks_1_does_not_wait_for_followers(nodes: CoordinatorCluster) -> None:
    """As in Kafka: the record is in the leader's log; readers see it once all in-sync replicas have it."""
    one, two = await nodes.start(1, 2, **{"replica.lag.time.max.ms": "60000"})
    await nodes.topic([1, 2])
    await one.put(b"both")
    two.disk.hold_syncs()
    writer = await one.wire()
    assert (await send(writer)).base_offset == 1
    assert (one.partition().durable_end, await latest(writer)) == (2, 1)
    two.disk.release_syncs()
    await until(lambda: one.partition().high_watermark == 2)


async def test_a_replaced_leader_does_not_acknowledge_acks_1(nodes: CoordinatorCluster) -> None:
    one, _ = await nodes.start(1, 2, **{"replica.lag.time.max.ms": "60000"})
    await nodes.topic([1, 2])
    await one.put(b"both")
    writer = await one.wire()
    one.disk.hold_syncs()
    sent = send(writer)
    await until(lambda: one.partition().end_offset == 2)
    await nodes.move("t", 0, 2)
    assert (await sent).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    one.disk.release_syncs()


async def test_the_request_timeout_does_not_limit_the_leaders_sync(nodes: CoordinatorCluster) -> None:
    """As in Kafka: a timeout would make the producer send the record again."""
    one = await alone(nodes)
    one.disk.hold_syncs()
    sent = send(await one.wire(), timeout_ms=0)
    await until(lambda: one.partition().end_offset == 1)
    await latest(await one.wire())
    assert not sent.done()
    one.disk.release_syncs()
    assert (await sent).error_code == 0


async def test_with_durability_os_acks_1_is_answered_at_once(nodes: CoordinatorCluster) -> None:
    one = await alone(nodes, durability="os")
    one.disk.hold_syncs()
    wire = await one.wire()
    assert (await send(wire)).error_code == 0
    assert await latest(wire) == 1
    one.disk.release_syncs()


async def test_a_duplicate_batch_waits_for_the_sync_of_the_first(nodes: CoordinatorCluster) -> None:
    one = await alone(nodes)
    wires = [await one.wire(), await one.wire()]
    one.disk.hold_syncs()
    data = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0)
    for wire in wires:
        wire.send(produce_request("t", data, acks=LEADER))
    answers = [asyncio.create_task(wire.receive()) for wire in wires]
    await until(lambda: one.partition().end_offset == 1)
    await latest(await one.wire())
    assert not any(answer.done() for answer in answers)
    one.disk.release_syncs()
    for answer in answers:
        row = (await answer).responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, 0)
