"""A disk that runs full: writes of clients are refused in time, deletions continue, and writes resume with free
space.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.consumers import HeartbeatingMember
from broker.harness import Harness, batch, produce_request
from broker.members import WireMember, committed
from broker.transactional import TransactionalProducer
from broker.wire import Wire
from semel_broker.partitions.disk_space import DiskSpace, mark_of
from semel_broker.txn.model.group_state import Begin, Decide
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k16_list_groups import ListGroupsRequest
from semel_protocol.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from semel_protocol.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_storage.disk.disk import Space
from semel_storage.log_directory import RESERVE_FILE

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MARK = 1_000_000


class SpaceLimitedBroker:
    """A broker whose disk has the number of free bytes that the test sets."""

    def __init__(self, harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        assert harness.node is not None
        self.harness = harness
        self.space: DiskSpace = harness.node.broker.topics.local.space
        self._free_bytes = GIB
        disk = harness.node.broker.world.disk
        monkeypatch.setattr(disk, "space", lambda path: Space(self._free_bytes, GIB))

    def leave(self, free_bytes: int) -> None:
        self._free_bytes = free_bytes
        self.space.look()


@pytest.fixture
async def limited_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SpaceLimitedBroker]:
    harness = await Harness(tmp_path / "data", log_min_free_bytes=str(MARK)).start()
    yield SpaceLimitedBroker(harness, monkeypatch)
    await harness.stop()


@pytest.mark.parametrize(
    ("total", "mark"),
    [(MIB, 128 * KIB), (4 * MIB, 512 * KIB), (16 * MIB, MIB), (GIB, GIB // 100), (100 * GIB, 64 * MIB)],
)
def test_the_mark_fits_the_disk(total: int, mark: int) -> None:
    assert mark_of(total) == mark


@pytest.mark.proves("full-disk-start")
async def test_below_the_mark_clients_writes_are_refused_and_all_else_continues(
    limited_disk: SpaceLimitedBroker,
) -> None:
    wire = await limited_disk.harness.wire()
    for name in ("t", "u"):
        await wire.create_topic(name)
        assert (await wire.produce(name, batch(b"stored"))).error_code == 0
    limited_disk.leave(MARK - 1)
    answer = await wire.call(produce_request("t", batch(b"refused")), 8)
    (row,) = answer.responses[0].partition_responses
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert f"has {MARK - 1} bytes free" in row.error_message
    assert "log.min.free.bytes" in row.error_message
    topic = CreateTopicsRequestTopic(name="v", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    created = await wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=False), 5)
    assert created.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert await wire.values("t") == [b"stored"]
    deleted = await wire.call(
        DeleteRecordsRequest(
            topics=[
                DeleteRecordsRequestTopic(
                    name="t", partitions=[DeleteRecordsRequestPartition(partition_index=0, offset=1)]
                )
            ],
            timeout_ms=1000,
        ),
        2,
    )
    assert deleted.topics[0].partitions[0].low_watermark == 1
    await wire.delete_topic("u")
    assert not (limited_disk.harness.directory / "u-0").exists()
    limited_disk.leave(MARK + MARK // 4)
    assert (await wire.produce("t", batch(b"again"))).error_code == 0
    (begun,) = limited_disk.harness.log.of("disk_nearly_full")
    assert (begun["free_bytes"], begun["min_free_bytes"]) == (MARK - 1, MARK)
    assert len(limited_disk.harness.log.of("disk_has_room_again")) == 1


async def test_below_half_of_the_mark_groups_store_nothing_new(limited_disk: SpaceLimitedBroker) -> None:
    wire = await limited_disk.harness.wire()
    await wire.create_topic("t")
    member = WireMember(wire, "g")
    await member.enter()
    limited_disk.leave(MARK // 2)
    assert await member.commit({0: 1}) == [0]
    assert await committed(wire, "g", 0) == [1]
    limited_disk.leave(MARK // 2 - 1)
    assert await member.commit({0: 2}) == [ErrorCode.NOT_COORDINATOR]
    limited_disk.leave(GIB)
    assert await member.commit({0: 3}) == [0]
    assert await committed(wire, "g", 0) == [3]


async def states_of_groups(wire: Wire) -> dict[str, str]:
    return {row.group_id: row.group_state for row in (await wire.call(ListGroupsRequest(), 4)).groups}


async def test_below_half_of_the_mark_a_member_can_leave_its_group(limited_disk: SpaceLimitedBroker) -> None:
    """The record of its leaving has a value, but the group stores less than before."""
    wire = await limited_disk.harness.wire()
    await wire.create_topic("t")
    member, consumer = WireMember(wire, "classic"), HeartbeatingMember(wire, "m", "consumer")
    await member.enter()
    assert await consumer.beat() == 0
    limited_disk.leave(MARK // 2 - 1)
    other = HeartbeatingMember(wire, "n", "consumer")
    assert await other.beat() == ErrorCode.NOT_COORDINATOR
    assert await consumer.leave() == 0
    assert (await member.leave()).members[0].error_code == 0
    assert await states_of_groups(wire) == {"classic": "Empty", "consumer": "Empty"}
    assert not limited_disk.harness.log.of("group_not_stored")
    await limited_disk.harness.restart()
    assert await states_of_groups(await limited_disk.harness.wire()) == {"classic": "Empty", "consumer": "Empty"}


async def test_below_half_of_the_mark_a_consumer_whose_session_ends_is_removed(
    limited_disk: SpaceLimitedBroker,
) -> None:
    wire = await limited_disk.harness.wire()
    await wire.create_topic("t")
    assert await HeartbeatingMember(wire, "m", "g").beat() == 0
    limited_disk.leave(MARK // 2 - 1)
    await asyncio.sleep(46)
    assert await states_of_groups(wire) == {"g": "Empty"}
    assert not limited_disk.harness.log.of("consumer_not_removed")


async def init(producer: TransactionalProducer) -> int:
    request = InitProducerIdRequest(transactional_id=producer.name, transaction_timeout_ms=60_000)
    return int((await producer.wire.call(request, 4)).error_code)


@pytest.mark.parametrize("version", [1, 2])
async def test_below_half_of_the_mark_transactions_end_and_none_begins(
    limited_disk: SpaceLimitedBroker, version: int
) -> None:
    wire = await limited_disk.harness.wire()
    await wire.create_topic("t", partitions=2)
    await WireMember(wire).enter()
    commits, aborts, idle, dead = [
        await TransactionalProducer(wire, version, name).init() for name in ("commits", "aborts", "idle", "dead")
    ]
    for producer in (commits, aborts, dead):
        assert (await producer.produce("t", producer.name.encode())).error_code == 0
    limited_disk.leave(MARK // 2)
    assert await init(TransactionalProducer(wire, version, "early")) == 0
    limited_disk.leave(MARK // 2 - 1)
    refused = ErrorCode.NOT_COORDINATOR
    assert await init(TransactionalProducer(wire, version, "new")) == refused
    assert await init(idle) == refused
    assert await idle.add("t", 0) == refused
    assert await idle.add_group() == refused
    assert await commits.add("t", 1) == refused, "a transaction that is open grows no more"
    assert await commits.add("t", 0) == 0, "nothing is stored for it"
    assert await commits.end() == 0
    assert await aborts.end(commit=False) == 0
    assert await init(dead) == refused, "its transaction is aborted, and the next instance is refused"
    row = await wire.fetch("t", 0, max_wait_ms=0)
    assert row.last_stable_offset == row.high_watermark, "each transaction has its marker"
    limited_disk.leave(GIB)
    for name in ("commits", "aborts", "idle", "dead"):
        producer = await TransactionalProducer(wire, version, name).init()
        assert (await producer.produce("t", b"again")).error_code == 0
        assert await producer.end() == 0


async def test_below_half_of_the_mark_a_step_of_a_transaction_group_ends_and_none_begins(
    limited_disk: SpaceLimitedBroker,
) -> None:
    assert limited_disk.harness.node is not None
    groups = limited_disk.harness.node.broker.transactions.groups
    begin = Begin(group="g", owner="query", timeout_ms=60_000)
    step = await groups.begin(begin)
    limited_disk.leave(MARK // 2 - 1)
    with pytest.raises(KafkaError, match="bytes free") as refusal:
        await groups.begin(begin)
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    decision = await groups.decide(Decide(group="g", epoch=step.epoch, commit=False))
    assert decision.group is not None
    assert decision.group.epoch == step.epoch
    limited_disk.leave(GIB)
    assert (await groups.begin(begin)).epoch == step.epoch + 1


async def test_writes_are_allowed_again_only_well_above_the_mark(limited_disk: SpaceLimitedBroker) -> None:
    wire = await limited_disk.harness.wire()
    await wire.create_topic("t")
    codes = []
    for free_bytes in (MARK, MARK - 1, MARK, MARK + MARK // 4 - 1, MARK + MARK // 4, MARK):
        limited_disk.leave(free_bytes)
        codes.append((await wire.produce("t", batch(b"x"))).error_code)
    refused = ErrorCode.KAFKA_STORAGE_ERROR
    assert codes == [0, refused, refused, refused, 0, 0]


async def test_a_burst_of_writes_does_not_pass_the_mark_between_two_looks(limited_disk: SpaceLimitedBroker) -> None:
    """The free space is checked again after half of the space above the mark was written."""
    limited_disk.leave(MARK + 10 * MIB)
    limited_disk._free_bytes = MARK - 1
    for _ in range(5 * MIB // (64 * KIB)):
        limited_disk.space.check(64 * KIB)
    with pytest.raises(KafkaError, match="bytes free"):
        limited_disk.space.check(64 * KIB)


async def test_a_batch_that_is_larger_than_the_room_is_refused(limited_disk: SpaceLimitedBroker) -> None:
    limited_disk.leave(MARK)
    limited_disk.space.check(MARK // 2)
    with pytest.raises(KafkaError, match="bytes free"):
        limited_disk.space.check(MARK // 2 + 1)
    assert not limited_disk.space.is_short
    limited_disk.space.check(1)


async def test_a_reserve_is_kept_while_there_is_room_and_none_without_a_mark(tmp_path: Path) -> None:
    for mark, size in ((MARK, MARK // 4), (0, None)):
        harness = await Harness(tmp_path / str(mark), log_min_free_bytes=str(mark)).start()
        reserve = harness.directory / RESERVE_FILE
        assert (reserve.stat().st_size if reserve.exists() else None) == size
        await harness.stop()
