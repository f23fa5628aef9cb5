"""Read committed: where readers end, which transactions they see as aborted, and when they are woken."""

import asyncio
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch, fetch_request, headers_of, records_of
from broker.partitions.test_partition import HeldPartition
from semel_broker.partitions.partition import READ_COMMITTED, READ_UNCOMMITTED, Partition
from semel_broker.partitions.read_view import UNSTABLE_MIN
from semel_broker.scheduling.waiters import FetchWaiter
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from semel_protocol.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from semel_protocol.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersRequestTopic
from semel_storage.producers.transactions import PAIR

COMMIT, ABORT = True, False


def write(partition: Partition, producer_id: int, *values: bytes, epoch: int = 0, **fields: Any) -> int:
    """Append a transactional batch; returns its base offset."""
    state = partition.log.producers.get(producer_id)
    sequence = state.last_sequence + 1 if state is not None and state.epoch == epoch else 0
    data = batch(
        *(values or (b"x",)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
        **fields,
    )
    return partition.append(data, header=read_header(data)).base_offset


def end(partition: Partition, producer_id: int, commit: bool, *, epoch: int = 0) -> int:
    return partition.append_marker(producer_id, epoch, commit, 0).base_offset


def plain(partition: Partition, *values: bytes) -> int:
    data = batch(*values)
    return partition.append(data, header=read_header(data)).base_offset


async def opened(broker: Harness, wire: Wire, topic: str = "t", **configs: str) -> Partition:
    """A topic of one partition, and the partition inside the broker."""
    await wire.create_topic(topic, **configs)
    assert broker.node is not None
    return broker.node.broker.topics.partition(topic, 0)


async def latest(wire: Wire, isolation: int, timestamp: int = -1, version: int | None = None) -> tuple[int, int]:
    rows = [ListOffsetsRequestPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsRequestTopic(name="t", partitions=rows)]
    )
    row = (await wire.call(request, version)).topics[0].partitions[0]
    assert row.error_code == 0, row
    return row.offset, row.timestamp


def aborted(row: Any) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in row.aborted_transactions]


# --- data read ----------------------------------------------------------------------------------------------


async def test_read_committed_ends_at_the_last_stable_offset(broker: Harness, wire: Wire) -> None:
    partition = await opened(broker, wire)
    plain(partition, b"before")
    write(partition, 7, b"undecided")
    plain(partition, b"after")
    row = await wire.fetch("t", 0, isolation_level=READ_COMMITTED)
    assert [record.value for record in records_of(row.records)] == [b"before"]
    assert (row.high_watermark, row.last_stable_offset, aborted(row)) == (3, 1, [])
    row = await wire.fetch("t", 0, isolation_level=READ_UNCOMMITTED)
    assert [record.value for record in records_of(row.records)] == [b"before", b"undecided", b"after"]
    assert (row.high_watermark, row.last_stable_offset, row.aborted_transactions) == (3, 1, None)
    end(partition, 7, COMMIT)
    row = await wire.fetch("t", 0, isolation_level=READ_COMMITTED)
    assert [header.is_control for header in headers_of(row.records)] == [False, False, False, True]
    assert (row.high_watermark, row.last_stable_offset, aborted(row)) == (4, 4, [])


async def test_a_reader_between_the_stable_offset_and_the_end_gets_nothing_and_no_error(
    broker: Harness, wire: Wire
) -> None:
    partition = await opened(broker, wire)
    write(partition, 7)
    plain(partition, b"after")
    row = await wire.fetch("t", 1, isolation_level=READ_COMMITTED, max_wait_ms=0)
    assert (row.error_code, bytes(row.records), row.last_stable_offset) == (0, b"", 0)
    row = await wire.fetch("t", 3, isolation_level=READ_COMMITTED, max_wait_ms=0)
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("commit", [COMMIT, ABORT])
async def test_the_newest_timestamp_of_a_transactional_topic_at_rest(broker: Harness, wire: Wire, commit: bool) -> None:
    """KIP-734. A marker is no record, an aborted record is one; those of an open transaction are not read yet."""
    partition = await opened(broker, wire)
    plain(partition, b"before")
    first = await latest(wire, READ_UNCOMMITTED, -3)
    write(partition, 7, b"x", timestamp=first[1] + 1)
    assert await latest(wire, READ_UNCOMMITTED, -3) == (1, first[1] + 1)
    assert await latest(wire, READ_COMMITTED, -3) == first
    end(partition, 7, commit)
    for isolation in (READ_UNCOMMITTED, READ_COMMITTED):
        assert await latest(wire, isolation, -3) == (1, first[1] + 1)
        assert await latest(wire, isolation, first[1] + 1) == (1, first[1] + 1)
        assert await latest(wire, isolation, first[1] + 2) == (-1, -1)


async def test_the_aborted_list_covers_exactly_the_data_of_its_row(broker: Harness, wire: Wire) -> None:
    partition = await opened(broker, wire)
    size = 0
    for producer_id in (1, 2, 3):
        first = write(partition, producer_id, b"v" * 1000)
        size = len(partition.read(first, bytes_max=1))
        end(partition, producer_id, ABORT)
    row = await wire.fetch("t", 0, isolation_level=READ_COMMITTED)
    assert aborted(row) == [(1, 0), (2, 2), (3, 4)]
    row = await wire.fetch("t", 0, isolation_level=READ_COMMITTED, partition_max_bytes=size)
    assert aborted(row) == [(1, 0)]
    row = await wire.fetch("t", 1, isolation_level=READ_COMMITTED, partition_max_bytes=1)
    assert aborted(row) == [(1, 0)], "its marker is what is read"
    row = await wire.fetch("t", 2, isolation_level=READ_COMMITTED, partition_max_bytes=size)
    assert aborted(row) == [(2, 2)]
    row = await wire.fetch("t", 6, isolation_level=READ_COMMITTED, max_wait_ms=0)
    assert aborted(row) == []


async def test_the_aborted_list_ascends_by_first_offset(broker: Harness, wire: Wire) -> None:
    partition = await opened(broker, wire)
    for producer_id in (1, 2, 3):
        write(partition, producer_id)
    for producer_id in (3, 1, 2):
        end(partition, producer_id, ABORT)
    row = await wire.fetch("t", 0, isolation_level=READ_COMMITTED)
    assert aborted(row) == [(1, 0), (2, 1), (3, 2)]


async def test_aborted_and_open_transactions_survive_a_restart(either_broker: Harness) -> None:
    wire = await either_broker.wire()
    partition = await opened(either_broker, wire)
    write(partition, 1)
    end(partition, 1, ABORT)
    write(partition, 2)
    plain(partition, b"after")
    await partition.committed(4)
    await either_broker.restart()
    wire = await either_broker.wire()
    row = await wire.fetch("t", 0, isolation_level=READ_COMMITTED)
    assert (row.high_watermark, row.last_stable_offset, aborted(row)) == (4, 2, [(1, 0)])
    assert either_broker.node is not None
    partition = either_broker.node.broker.topics.partition("t", 0)
    assert partition.open_transaction(2) == 2
    assert partition.open_transaction(1) is None
    assert partition.open_transaction(99) is None
    end(partition, 2, COMMIT)
    await partition.committed(5)
    assert partition.last_stable_offset == 5


# --- time ----------------------------------------------------------------------------------------------------


async def test_a_long_poll_at_the_stable_offset_is_answered_by_the_marker(either_broker: Harness) -> None:
    wire = await either_broker.wire()
    partition = await opened(either_broker, wire)
    write(partition, 7, b"v")
    wire.send(fetch_request("t", 0, isolation_level=READ_COMMITTED, max_wait_ms=30_000))
    answer = asyncio.ensure_future(wire.receive())
    plain(partition, b"after")
    await asyncio.sleep(0.05)
    assert not answer.done(), "what comes after an open transaction is not readable"
    end(partition, 7, COMMIT)
    row = (await answer).responses[0].partitions[0]
    assert [header.is_control for header in headers_of(row.records)] == [False, False, True]
    assert row.last_stable_offset == 3


async def test_min_bytes_counts_bytes_below_the_stable_offset(broker: Harness, wire: Wire) -> None:
    partition = await opened(broker, wire)
    write(partition, 7, b"v" * 5000)
    for min_bytes, is_enough in ((5000, True), (8000, False)):
        other = await broker.wire()
        other.send(fetch_request("t", 0, isolation_level=READ_COMMITTED, max_wait_ms=30_000, min_bytes=min_bytes))
        answer = asyncio.ensure_future(other.receive())
        await asyncio.sleep(0.02)
        assert not answer.done()
        if is_enough:
            end(partition, 7, COMMIT)
            await answer
        else:
            await asyncio.sleep(0.05)
            assert not answer.done(), "the 5000 bytes are readable now, 8000 are not"
            plain(partition, b"w" * 3000)
            await answer


async def test_waiters_count_stable_bytes_across_interleaved_transactions() -> None:
    """The end of the first of two transactions makes both stable."""
    partition = HeldPartition(fsync=False)
    start = partition.view.bytes_readable(READ_COMMITTED)
    plain(partition, b"a")
    before = partition.view.bytes_readable(READ_COMMITTED)
    assert before - start == partition.view.bytes_visible
    write(partition, 1)
    write(partition, 2)
    stable, every = (FetchWaiter(asyncio.get_running_loop(), 1) for _ in range(2))
    partition.add_fetch_waiter(stable, READ_COMMITTED)
    partition.add_fetch_waiter(every, READ_UNCOMMITTED)
    end(partition, 2, ABORT)
    assert every.future.done()
    assert not stable.future.done()
    assert partition.view.bytes_readable(READ_COMMITTED) == before
    end(partition, 1, COMMIT)
    assert stable.future.done()
    assert partition.view.bytes_readable(READ_COMMITTED) == partition.view.bytes_visible


async def test_a_marker_moves_the_stable_offset_only_when_committed() -> None:
    partition = HeldPartition(fsync=True)
    write(partition, 7, b"v")
    await partition.let()
    assert (partition.high_watermark, partition.last_stable_offset) == (1, 0)
    waiter = FetchWaiter(asyncio.get_running_loop(), 1)
    partition.add_fetch_waiter(waiter, READ_COMMITTED)
    end(partition, 7, ABORT)
    assert partition.open_transaction(7) is None
    assert partition.last_stable_offset == 0
    assert partition.read_committed(0, bytes_max=1000) == (b"", [])
    assert not waiter.future.done()
    await partition.let()
    assert partition.last_stable_offset == 2
    assert waiter.future.done()
    data, found = partition.read_committed(0, bytes_max=1000)
    assert len(headers_of(data)) == 2
    assert found == [PAIR.pack(7, 0)]


async def test_a_retried_marker_changes_nothing() -> None:
    partition = HeldPartition(fsync=False)
    write(partition, 7)
    end(partition, 7, COMMIT)
    visible = partition.view.bytes_visible
    result = partition.append_marker(7, 0, COMMIT, 0)
    assert (result.duplicate, result.base_offset) == (True, 1)
    assert (partition.end_offset, partition.view.bytes_visible) == (2, visible)
    assert partition.view.bytes_readable(READ_COMMITTED) == visible == len(partition.read(0, bytes_max=10_000))


async def test_transactions_open_at_the_start_are_counted_from_below(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os")
    wire = await broker.wire()
    partition = await opened(broker, wire)
    write(partition, 7, b"v" * 5000)
    await broker.restart()
    wire = await broker.wire()
    wire.send(fetch_request("t", 0, isolation_level=READ_COMMITTED, max_wait_ms=30_000, min_bytes=5000))
    answer = asyncio.ensure_future(wire.receive())
    await asyncio.sleep(0.05)
    assert not answer.done()
    assert broker.node is not None
    end(broker.node.broker.topics.partition("t", 0), 7, COMMIT)
    assert len((await answer).responses[0].partitions[0].records) > 5000


async def test_state_of_ended_transactions_is_dropped_behind_an_open_one() -> None:
    partition = HeldPartition(fsync=False)
    write(partition, 1)
    for n in range(UNSTABLE_MIN + 10):
        write(partition, 2)
        end(partition, 2, n % 2 == 0)
    assert len(partition.view._undecided) < 50
    assert partition.view.bytes_readable(READ_COMMITTED) == 0
    second = write(partition, 2)
    end(partition, 1, COMMIT)
    below = len(partition.read(0, bytes_max=10_000_000, isolation=READ_COMMITTED))
    assert partition.last_stable_offset == second
    assert partition.view.bytes_readable(READ_COMMITTED) == below


# --- the other requests --------------------------------------------------------------------------------------


@pytest.mark.proves("end-beyond-the-stable-offset")
async def test_list_offsets_ends_at_the_last_stable_offset(broker: Harness, wire: Wire) -> None:
    partition = await opened(broker, wire)
    for value, timestamp in ((b"a", 1000), (b"b", 3000)):
        data = batch(value, timestamp=timestamp)
        partition.append(data, header=read_header(data))
    write(partition, 7, timestamp=5000)
    assert await latest(wire, READ_COMMITTED) == (2, -1)
    assert await latest(wire, READ_UNCOMMITTED) == (3, -1)
    assert await latest(wire, READ_COMMITTED, 2000) == (1, 3000)
    assert await latest(wire, READ_COMMITTED, 4000) == (-1, -1), "at or above the stable offset is not there yet"
    assert await latest(wire, READ_UNCOMMITTED, 4000) == (2, 5000)
    assert await latest(wire, READ_COMMITTED, -3) == (1, 3000)
    assert await latest(wire, READ_UNCOMMITTED, -3) == (2, 5000)
    assert await latest(wire, READ_COMMITTED, -2) == (0, -1)
    end(partition, 7, ABORT)
    assert await latest(wire, READ_COMMITTED) == (4, -1)


@pytest.mark.proves("delete-records-amid-a-transaction")
async def test_delete_records_amid_a_transaction_moves_the_stable_offset_with_the_start(
    broker: Harness, wire: Wire
) -> None:
    partition = await opened(broker, wire)
    write(partition, 7)
    for _ in range(4):
        plain(partition, b"after")
    assert partition.last_stable_offset == 0
    rows = [DeleteRecordsRequestPartition(partition_index=0, offset=3)]
    topics = [DeleteRecordsRequestTopic(name="t", partitions=rows)]
    await wire.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    assert (partition.log_start_offset, partition.last_stable_offset, partition.high_watermark) == (3, 3, 5)
    row = await wire.fetch("t", 3, isolation_level=READ_COMMITTED, max_wait_ms=0)
    assert (row.error_code, bytes(row.records), row.last_stable_offset) == (0, b"", 3)
    assert await latest(wire, READ_COMMITTED) == (3, -1)
    end(partition, 7, ABORT)
    row = await wire.fetch("t", 3, isolation_level=READ_COMMITTED)
    assert (row.last_stable_offset, aborted(row)) == (6, [(7, 0)])


async def test_describe_producers_tells_where_a_transaction_began(broker: Harness, wire: Wire) -> None:
    partition = await opened(broker, wire)
    plain(partition, b"a")
    write(partition, 7, epoch=3)
    partition.append_marker(8, 5, COMMIT, 2)
    request = DescribeProducersRequest(topics=[DescribeProducersRequestTopic(name="t", partition_indexes=[0])])

    async def described() -> list[tuple[int, int, int, int]]:
        row = (await wire.call(request)).topics[0].partitions[0]
        return [
            (p.producer_id, p.producer_epoch, p.coordinator_epoch, p.current_txn_start_offset)
            for p in row.active_producers
        ]

    assert await described() == [(7, 3, -1, 1), (8, 5, 2, -1)]
    partition.append_marker(7, 4, ABORT, 2)
    assert await described() == [(7, 4, 2, -1), (8, 5, 2, -1)]


async def test_an_open_transaction_does_not_hold_other_partitions_back(broker: Harness, wire: Wire) -> None:
    partition = await opened(broker, wire)
    write(partition, 7)
    await wire.create_topic("other")
    await wire.produce("other", batch(b"a"))
    row = await wire.fetch("other", 0, isolation_level=READ_COMMITTED)
    assert [record.value for record in records_of(row.records)] == [b"a"]
