"""A disk that hangs: requests without disk access continue, writes wait or are refused, and all continue after the
hang.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from broker.cluster.brokers import until
from broker.coordination.coordinator_cluster import CoordinatorBroker, CoordinatorCluster
from broker.wire import send_record
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.messages.k60_describe_cluster import DescribeClusterRequest

pytestmark = pytest.mark.proves("hanging-disk")


@pytest.fixture
async def nodes(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CoordinatorCluster]:
    monkeypatch.setattr("broker.wire.WAIT_S", 60)
    nodes = CoordinatorCluster()
    yield nodes
    await nodes.close()


async def alone(nodes: CoordinatorCluster, **settings: str) -> CoordinatorBroker:
    (one,) = await nodes.start(1, **settings)
    await nodes.topic([1])
    await one.put(b"before")
    return one


async def test_the_log_reports_a_hang_once_and_its_end_once(nodes: CoordinatorCluster) -> None:
    one = await alone(nodes)
    one.disk.hold_syncs()
    sent = send_record(await one.wire())
    await asyncio.sleep(9)
    assert not one.topics.local.hangs.is_hanging
    assert 8.9 <= one.topics.local.hangs.waiting_s <= 9.1
    await asyncio.sleep(20)
    (begun,) = one.log.of("disk_hangs")
    assert begun["path"] == "data/t-0/00000000000000000000.log"
    assert 10_000 <= begun["waited_ms"] <= 10_600
    wire = await one.wire()
    told = await wire.call(DescribeClusterRequest(include_cluster_authorized_operations=False))
    assert (told.disk_hangs_ms // 1000, told.disk_path) == (29, "data")
    assert not sent.done()
    one.disk.release_syncs()
    assert (await sent).error_code == 0
    await asyncio.sleep(1)
    (ended,) = one.log.of("disk_goes_on")
    assert ended["path"] == begun["path"]
    assert 28_900 <= ended["hung_ms"] <= 30_000
    assert one.topics.local.hangs.waiting_s == 0
    told = await wire.call(DescribeClusterRequest(include_cluster_authorized_operations=False))
    assert (told.disk_hangs_ms, told.disk_path) == (-1, "")


async def test_the_limit_is_a_setting(nodes: CoordinatorCluster) -> None:
    one = await alone(nodes, **{"disk.hang.timeout.ms": "1000"})
    one.disk.hold_syncs()
    sent = send_record(await one.wire())
    await asyncio.sleep(1.6)
    assert len(one.log.of("disk_hangs")) == 1
    one.disk.release_syncs()
    assert (await sent).error_code == 0


async def test_syncs_of_less_than_the_limit_are_no_hang_however_many_they_are(nodes: CoordinatorCluster) -> None:
    one = await alone(nodes)
    wire = await one.wire()
    for _ in range(10):
        one.disk.hold_syncs()
        sent = send_record(wire)
        await asyncio.sleep(9)
        one.disk.release_syncs()
        assert (await sent).error_code == 0
    assert not one.log.of("disk_hangs")


async def test_readers_and_requests_without_the_disk_are_served_meanwhile(nodes: CoordinatorCluster) -> None:
    one = await alone(nodes)
    reader = await one.wire()
    one.disk.hold_syncs()
    sent = send_record(await one.wire())
    await asyncio.sleep(20)
    row = await reader.fetch("t", 0, max_wait_ms=0)
    assert (row.error_code, row.high_watermark, bool(row.records)) == (0, 1, True)
    await reader.call(ApiVersionsRequest())
    one.disk.release_syncs()
    assert (await sent).error_code == 0


@pytest.mark.proves("read-of-a-hanging-disk")
async def test_reads_that_need_the_disk_are_refused_while_it_hangs_and_the_loop_continues(
    nodes: CoordinatorCluster,
) -> None:
    one = await alone(nodes)
    reader, asked = await one.wire(), await one.wire()
    one.disk.uncached.add("data/t-0/00000000000000000000.log")
    assert (await reader.fetch("t", 0, max_wait_ms=0)).error_code == 0, "no disk hangs: reads wait for it"
    one.disk.hold_syncs()
    sent = send_record(await one.wire())
    await asyncio.sleep(20)
    assert (await reader.fetch("t", 0, max_wait_ms=0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    by_time = ListOffsetsRequestTopic(
        name="t", partitions=[ListOffsetsRequestPartition(partition_index=0, timestamp=1)]
    )
    listed = await asked.call(ListOffsetsRequest(replica_id=-1, topics=[by_time]))
    assert listed.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    one.disk.release_syncs()
    assert (await sent).error_code == 0
    await asyncio.sleep(1)
    assert (await reader.fetch("t", 0, max_wait_ms=0)).error_code == 0


@pytest.mark.parametrize("acks", [-1, 1])
async def test_new_writes_are_refused_while_the_disk_hangs_and_accepted_afterwards(
    nodes: CoordinatorCluster, acks: int
) -> None:
    one = await alone(nodes)
    first, later = await one.wire(), await one.wire()
    one.disk.hold_syncs()
    waiting = send_record(first, acks=acks)
    await asyncio.sleep(11)
    row = await send_record(later, acks=acks)
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (one.partition().end_offset, waiting.done()) == (2, False), "nothing more is written"
    one.disk.release_syncs()
    assert (await waiting).error_code == 0
    await asyncio.sleep(1)
    assert (await send_record(later, acks=acks)).base_offset == 2


async def test_a_write_with_acks_all_is_timed_out_and_never_acknowledged_before_it_is_durable(
    nodes: CoordinatorCluster,
) -> None:
    one = await alone(nodes)
    one.disk.hold_syncs()
    assert (await send_record(await one.wire(), timeout_ms=15_000)).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert one.partition().high_watermark == 1
    one.disk.release_syncs()
    await until(lambda: one.partition().high_watermark == 2)


async def test_with_durability_os_a_hang_is_reported_and_changes_nothing(nodes: CoordinatorCluster) -> None:
    one = await alone(nodes, durability="os")
    one.disk.hold_syncs()
    syncing = asyncio.create_task(one.partition().log.durability.sync())
    await asyncio.sleep(11)
    assert len(one.log.of("disk_hangs")) == 1
    assert (await send_record(await one.wire())).error_code == 0
    one.disk.release_syncs()
    await syncing
