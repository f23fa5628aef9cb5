"""Fetch over the wire: the returned data, the end of a long poll, and fairness between partitions."""

import asyncio
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire, batch, fetch_request, headers_of, produce_request, records_of
from semel_broker.partitions.read_view import ReadView
from semel_broker.scheduling.turns import SLICE_STEPS, Slices
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from semel_protocol.messages.k20_delete_topics import DeleteTopicsRequest
from semel_protocol.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)

COUNT = 20


def fetch_many(topic: str, offsets: dict[int, int], **fields: Any) -> FetchRequest:
    """A fetch of several partitions of one topic, partition -> offset."""
    request = fetch_request(topic, 0, **fields)
    most = request.topics[0].partitions[0].partition_max_bytes
    rows = [FetchRequestPartition(partition=p, fetch_offset=o, partition_max_bytes=most) for p, o in offsets.items()]
    request.topics = [FetchRequestTopic(topic=topic, partitions=rows)]
    return request


async def delete_records(wire: Wire, topic: str, before: int, partition: int = 0) -> Any:
    rows = [DeleteRecordsRequestPartition(partition_index=partition, offset=before)]
    topics = [DeleteRecordsRequestTopic(name=topic, partitions=rows)]
    return (await wire.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000))).topics[0].partitions[0]


# --- data read ----------------------------------------------------------------------------------------------


async def test_an_offset_inside_a_batch_gives_the_whole_batch(wire: Wire) -> None:
    await wire.create_topic("t")
    await wire.produce("t", batch(b"a", b"b", b"c"))
    row = await wire.fetch("t", 1)
    assert [header.base_offset for header in headers_of(row.records)] == [0]
    assert [record.value for record in records_of(row.records, 1)] == [b"b", b"c"]


async def test_the_end_is_empty_and_beyond_either_end_is_out_of_range(wire: Wire) -> None:
    await wire.create_topic("t")
    for _ in range(3):
        await wire.produce("t", batch(b"a"))
    await delete_records(wire, "t", 1)
    at_end = await wire.fetch("t", 3, max_wait_ms=0)
    assert (at_end.error_code, bytes(at_end.records), at_end.high_watermark, at_end.log_start_offset) == (0, b"", 3, 1)
    for offset in (0, 4, -1, 2**62):
        row = await wire.fetch("t", offset, max_wait_ms=10_000)  # an error is answered at once
        assert (row.error_code, row.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert bytes(row.records) == b""


async def test_a_topic_that_was_never_written_reads_as_empty(wire: Wire) -> None:
    await wire.create_topic("t")
    row = await wire.fetch("t", 0, max_wait_ms=0)
    assert (row.error_code, row.high_watermark, bytes(row.records)) == (0, 0, b"")


async def test_an_unknown_partition_has_an_error_beside_the_others_data(wire: Wire) -> None:
    await wire.create_topic("t")
    await wire.produce("t", batch(b"a"))
    response = await wire.call(fetch_many("t", {0: 0, 5: 0}, max_wait_ms=10_000))
    first, second = response.responses[0].partitions
    assert [record.value for record in records_of(first.records)] == [b"a"]
    assert (second.partition_index, second.error_code) == (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_the_first_batch_is_whole_also_above_every_limit(wire: Wire) -> None:
    await wire.create_topic("t")
    await wire.produce("t", batch(b"x" * 10_000))
    await wire.produce("t", batch(b"y"))
    row = await wire.fetch("t", 0, partition_max_bytes=1, max_bytes=1)
    assert [len(record.value or b"") for record in records_of(row.records)] == [10_000]


async def test_limits_are_kept_in_whole_batches(wire: Wire) -> None:
    await wire.create_topic("t", partitions=3)
    data = batch(b"x" * 1000)
    for partition in range(3):
        for _ in range(5):
            await wire.produce("t", data, partition=partition)
    row = await wire.fetch("t", 0, partition_max_bytes=2 * len(data) + 10)
    assert len(headers_of(row.records)) == 2
    response = await wire.call(fetch_many("t", {0: 0, 1: 0, 2: 0}, max_bytes=7 * len(data) + 10))
    counts = [len(headers_of(row.records)) for row in response.responses[0].partitions]
    assert sum(counts) == 7
    assert max(counts) == 5


async def test_no_partition_starves_behind_others_that_are_always_full(wire: Wire) -> None:
    await wire.create_topic("t", partitions=4)
    data = batch(b"x" * 5000)
    for partition in range(4):
        for _ in range(3):
            await wire.produce("t", data, partition=partition)
    served = dict.fromkeys(range(4), 0)
    for _ in range(8):  # always from 0: the first partitions always have data
        response = await wire.call(fetch_many("t", dict.fromkeys(served, 0), max_bytes=len(data)))
        for row in response.responses[0].partitions:
            served[row.partition_index] += len(headers_of(row.records))
    assert all(served.values()), served


async def test_the_brokers_own_bound_holds_whatever_the_client_asks(start_broker: StartBroker) -> None:
    broker = await start_broker(fetch_max_bytes="5000", durability="os")
    wire = await broker.wire()
    await wire.create_topic("t")
    for _ in range(10):
        await wire.produce("t", batch(b"x" * 1000))
    row = await wire.fetch("t", 0, max_bytes=2**31 - 1, partition_max_bytes=2**31 - 1)
    assert 1 < len(headers_of(row.records)) < 5


async def test_read_committed_gives_an_empty_list_of_aborted_transactions(wire: Wire) -> None:
    await wire.create_topic("t")
    await wire.produce("t", batch(b"a"))
    committed = await wire.fetch("t", 0, isolation_level=1)
    uncommitted = await wire.fetch("t", 0, isolation_level=0)
    assert (committed.aborted_transactions, uncommitted.aborted_transactions) == ([], None)
    assert committed.records == uncommitted.records
    assert committed.preferred_read_replica == -1


async def test_leader_epochs_are_checked(wire: Wire) -> None:
    await wire.create_topic("t")
    for epoch, code in ((-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        request = fetch_request("t", 0, max_wait_ms=0)
        request.topics[0].partitions[0].current_leader_epoch = epoch
        assert (await wire.call(request)).responses[0].partitions[0].error_code == code


async def test_replicas_do_not_fetch_from_a_client_listener(wire: Wire) -> None:
    await wire.create_topic("t")
    response = await wire.call(fetch_request("t", 0, replica_id=1))
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize("version", range(4, 12))
async def test_every_served_version_reads_the_same(broker: Harness, version: int) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    await wire.produce("t", batch(b"a"))
    response = await wire.call(fetch_request("t", 0), version)
    assert [record.value for record in records_of(response.responses[0].partitions[0].records)] == [b"a"]


# --- long poll -----------------------------------------------------------------------------------------------


async def test_a_long_poll_is_answered_by_the_append_of_another(either_broker: Harness) -> None:
    reader, writer = await either_broker.wire(), await either_broker.wire()
    await reader.create_topic("t", partitions=3)
    reader.send(fetch_many("t", {0: 0, 1: 0, 2: 0}, max_wait_ms=60_000))
    await asyncio.sleep(0.05)
    await writer.produce("t", batch(b"a"), partition=2)
    row = (await reader.receive()).responses[0].partitions[2]
    assert [record.value for record in records_of(row.records)] == [b"a"]


async def test_a_long_poll_ends_at_its_deadline(wire: Wire) -> None:
    await wire.create_topic("t")
    loop = asyncio.get_running_loop()
    began = loop.time()
    row = await wire.fetch("t", 0, max_wait_ms=150)
    assert loop.time() - began == pytest.approx(0.15)
    assert (row.error_code, bytes(row.records)) == (0, b"")


async def test_a_long_poll_waits_for_min_bytes_over_all_partitions(broker: Harness) -> None:
    reader, writer = await broker.wire(), await broker.wire()
    await reader.create_topic("t", partitions=2)
    data = batch(b"x" * 400)
    reader.send(fetch_many("t", {0: 0, 1: 0}, max_wait_ms=60_000, min_bytes=3 * len(data)))
    await writer.produce("t", data, partition=0)
    await writer.produce("t", data, partition=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await reader.reader.read(1)
    await writer.produce("t", data, partition=0)
    rows = (await reader.receive()).responses[0].partitions
    assert [len(headers_of(row.records)) for row in rows] == [2, 1]


async def test_readable_bytes_count_towards_min_bytes(broker: Harness) -> None:
    reader, writer = await broker.wire(), await broker.wire()
    await reader.create_topic("t")
    data = batch(b"x" * 400)
    await writer.produce("t", data)
    reader.send(fetch_request("t", 0, max_wait_ms=60_000, min_bytes=2 * len(data)))
    await asyncio.sleep(0.02)
    await writer.produce("t", data)
    assert len(headers_of((await reader.receive()).responses[0].partitions[0].records)) == 2


async def test_deleting_the_topic_ends_the_long_poll(broker: Harness) -> None:
    reader, other = await broker.wire(), await broker.wire()
    await reader.create_topic("t")
    await reader.produce("t", batch(b"a"))
    reader.send(fetch_request("t", 1, max_wait_ms=60_000))
    await asyncio.sleep(0.02)
    await other.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000))
    assert (await reader.receive()).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_disconnected_reader_leaves_no_waiter(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    other = await broker.wire()
    other.send(fetch_request("t", 0, max_wait_ms=60_000))
    assert broker.node is not None
    partition = broker.node.broker.topics.partition("t", 0)
    async with asyncio.timeout(10):
        while not partition.view._waiters:
            await asyncio.sleep(0.005)
        await other.close()
        while partition.view._waiters:
            await asyncio.sleep(0.005)


WIDE = 600


def waiting(broker: Harness, topic: str) -> list[int]:
    """The partitions of a topic of `WIDE` partitions on which a fetch waits."""
    assert broker.node is not None
    topics = broker.node.broker.topics
    return [index for index in range(WIDE) if topics.partition(topic, index).view._waiters]


@pytest.mark.parametrize("at", [0, WIDE - 1])
async def test_a_fetch_of_very_many_partitions_is_woken_by_any_of_them(broker: Harness, at: int) -> None:
    reader, writer = await broker.wire(), await broker.wire()
    await reader.create_topic("t", partitions=WIDE)
    reader.send(fetch_many("t", dict.fromkeys(range(WIDE), 0), max_wait_ms=60_000))
    await asyncio.sleep(0.02)
    assert waiting(broker, "t") == list(range(WIDE))
    await writer.produce("t", batch(b"a"), partition=at)
    rows = (await reader.receive()).responses[0].partitions
    assert [row.partition_index for row in rows if row.records] == [at]
    assert waiting(broker, "t") == []


async def test_readable_bytes_count_towards_min_bytes_of_a_fetch_of_very_many_partitions(broker: Harness) -> None:
    reader, writer = await broker.wire(), await broker.wire()
    await reader.create_topic("t", partitions=WIDE)
    data = batch(b"x" * 400)
    await writer.produce("t", data)
    wanted = fetch_many("t", dict.fromkeys(range(WIDE), 0), max_wait_ms=60_000, min_bytes=2 * len(data))
    reader.send(wanted)
    await asyncio.sleep(0.02)
    await writer.produce("t", data, partition=WIDE - 1)
    rows = (await reader.receive()).responses[0].partitions
    assert [row.partition_index for row in rows if row.records] == [0, WIDE - 1]


async def test_a_disconnected_reader_of_very_many_partitions_leaves_no_waiter(broker: Harness) -> None:
    wire, other = await broker.wire(), await broker.wire()
    await wire.create_topic("t", partitions=WIDE)
    other.send(fetch_many("t", dict.fromkeys(range(WIDE), 0), max_wait_ms=60_000))
    await asyncio.sleep(0.02)
    assert waiting(broker, "t") == list(range(WIDE))
    await other.close()
    await asyncio.sleep(0.02)
    assert waiting(broker, "t") == []


async def test_a_fetch_of_very_many_partitions_takes_its_places_in_slices(
    broker: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = await broker.wire()
    await wire.create_topic("t", partitions=WIDE)
    places = {"add_waiter": [0], "remove_waiter": [0]}
    next_slice = Slices.next

    def counted(name: str) -> Any:
        original = getattr(ReadView, name)

        def call(*arguments: Any) -> None:
            places[name][-1] += 1
            original(*arguments)

        return call

    async def next_counted(slices: Slices) -> None:
        for counts in places.values():
            counts.append(0)
        await next_slice(slices)

    for name in places:
        monkeypatch.setattr(ReadView, name, counted(name))
    monkeypatch.setattr(Slices, "next", next_counted)
    await wire.call(fetch_many("t", dict.fromkeys(range(WIDE), 0), max_wait_ms=20))
    for counts in places.values():
        assert sum(counts) == WIDE
        assert max(counts) <= SLICE_STEPS


async def test_a_tail_reader_sees_every_record_once_in_order(either_broker: Harness) -> None:
    reader, writer = await either_broker.wire(), await either_broker.wire()
    await reader.create_topic("t")
    for i in range(200):
        writer.send(produce_request("t", batch(b"%d" % i)))
    seen: list[bytes | None] = []
    while len(seen) < 200:
        row = await reader.fetch("t", len(seen), max_wait_ms=5000)
        seen += [record.value for record in records_of(row.records, len(seen))]
    assert seen == [b"%d" % i for i in range(200)]
    for _ in range(200):
        await writer.receive()


async def test_with_fsync_unsynced_records_are_not_visible(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="fsync")
    reader, writer = await broker.wire(), await broker.wire()
    await reader.create_topic("t")
    await writer.produce("t", batch(b"synced"))
    assert broker.node is not None
    partition = broker.node.broker.topics.partition("t", 0)
    may_sync = asyncio.Event()
    real_sync = partition.log.durability.sync

    async def held_sync() -> None:
        await may_sync.wait()
        await real_sync()

    partition.log.durability.sync = held_sync  # type: ignore[method-assign]
    assert partition.durability is not None
    # else a quick disk is synced without `sync`:
    partition.durability.unsynced_file = lambda: None  # type: ignore[method-assign]
    try:
        writer.send(produce_request("t", batch(b"not yet")))
        async with asyncio.timeout(10):
            while partition.end_offset < 2:
                await asyncio.sleep(0.002)
        row = await reader.fetch("t", 0, max_wait_ms=0)
        assert (row.high_watermark, [record.value for record in records_of(row.records)]) == (1, [b"synced"])
        reader.send(fetch_request("t", 1, max_wait_ms=60_000))
    finally:
        may_sync.set()  # otherwise the broker could not stop
    assert (await writer.receive()).responses[0].partition_responses[0].base_offset == 1
    assert len(headers_of((await reader.receive()).responses[0].partitions[0].records)) == 1


# --- DeleteRecords -------------------------------------------------------------------------------------------


async def test_delete_records_moves_the_log_start_for_good(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("t")
    for _ in range(5):
        await wire.produce("t", batch(b"a"))
    assert (await delete_records(wire, "t", 3)).low_watermark == 3
    assert (await delete_records(wire, "t", 1)).low_watermark == 3  # the low watermark never decreases
    assert (await delete_records(wire, "t", 6)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    await broker.restart()
    wire = await broker.wire()
    assert (await wire.fetch("t", 3)).log_start_offset == 3
    assert (await delete_records(wire, "t", -1)).low_watermark == 5
    assert (await wire.produce("t", batch(b"b"))).base_offset == 5
    missing = await delete_records(wire, "t", 0, partition=4)
    assert (missing.error_code, missing.low_watermark) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


async def test_a_sweep_over_many_logs_does_not_hold_an_answer_about_many(
    broker: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint files are written at most twice for the answer, however many changes the sweep records
    meanwhile.
    """
    wire = await broker.wire()
    await wire.create_topic("t", partitions=COUNT)
    for partition in range(COUNT):
        await wire.produce("t", batch(b"a"), partition=partition)
    assert broker.node is not None
    logs = [partition.log for partition in broker.node.broker.topics.local.all()]
    disk = logs[0].disk
    writes: list[str] = []
    write_aside = disk.write_aside

    async def write(path: str, data: bytes, **more: Any) -> None:
        writes.append(path)
        await write_aside(path, data, **more)
        for log in logs[: len(writes)]:
            log.durability.recovery_point = log.end_offset  # as a sweep raises it

    monkeypatch.setattr(disk, "write_aside", write)
    rows = [DeleteRecordsRequestPartition(partition_index=each, offset=1) for each in range(COUNT)]
    topics = [DeleteRecordsRequestTopic(name="t", partitions=rows)]
    answer = await wire.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    assert [row.low_watermark for row in answer.topics[0].partitions] == [1] * COUNT
    assert len(writes) <= 4
