"""Transactional Produce: verified by the coordinator, adds its partition in version 2, and keeps its order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness
from broker.transactional import TransactionalProducer
from broker.wire import Wire, batch, fetch_request, produce_request, records_of
from semel_broker.coordination.shards import Stage
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from semel_protocol.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.records import Record, build_batch


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
async def broker(start_broker: StartBroker, version: int) -> Harness:
    broker = await start_broker(durability="os", transaction_version=str(version))
    await (await broker.wire()).create_topic("out", 3)
    return broker


@pytest.fixture
async def modern(start_broker: StartBroker) -> Harness:
    """Transaction version 2, where a Produce has to wait for the disk before it may append."""
    broker = await start_broker(durability="fsync")
    await (await broker.wire()).create_topic("out", 3)
    return broker


async def producer(broker: Harness, version: int = 2, name: str = "tx") -> TransactionalProducer:
    return await TransactionalProducer(await broker.wire(), version, name).init()


async def stable_end(wire: Wire, partition: int = 0) -> tuple[int, int]:
    """(last stable offset, high watermark)."""
    row = await wire.fetch("out", 0, partition=partition, max_wait_ms=0)
    return row.last_stable_offset, row.high_watermark


async def committed_values(wire: Wire, partition: int = 0) -> list[bytes | None]:
    row = await wire.fetch("out", 0, partition=partition, isolation_level=1, max_wait_ms=0)
    aborted = {each.producer_id for each in row.aborted_transactions or ()}
    assert not aborted, "these tests tell by values"
    return [record.value for record in records_of(row.records) if record.value and len(record.value) < 6]


# --- verification (KIP-890 part 1) ---


async def test_batches_of_a_transaction_are_appended(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    for partition in (0, 1):
        for value in (b"a", b"b"):
            row = await one.produce("out", value, partition=partition)
            assert (row.error_code, row.base_offset) == (0, value == b"b")
    assert await stable_end(one.wire) == (0, 2)
    assert await one.end() == 0
    assert await stable_end(one.wire) == (3, 3)
    assert (await one.produce("out", b"c")).base_offset == 3
    assert await one.end(commit=False) == 0
    assert await stable_end(one.wire) == (5, 5)


@pytest.mark.parametrize(("api_version", "code"), [(7, 48), (10, 48), (11, 120)])
async def test_partition_that_was_not_added_is_refused_kip890(modern: Harness, api_version: int, code: int) -> None:
    one = await producer(modern, 1)
    request = one.produce_request("out", b"a")
    assert (await one.send(request, api_version)).error_code == code  # no transaction is open
    assert await one.add("out", 1) == 0
    row = await one.send(request, api_version)
    assert (row.error_code, row.base_offset) == (code, -1)
    if api_version >= 8:
        assert "out-0" in (row.error_message or "")
    assert await stable_end(one.wire) == (0, 0)


@pytest.mark.proves("records-after-the-marker")
async def test_hanging_transaction_a_produce_after_the_marker_is_refused(broker: Harness, version: int) -> None:
    """It would open a transaction without an end: the last stable offset would never advance."""
    one = await producer(broker, version)
    assert (await one.produce("out", b"a")).error_code == 0
    late = one.produce_request("out", b"b")
    assert await one.end(commit=False) == 0
    row = await one.send(late)
    assert row.error_code == (ErrorCode.INVALID_TXN_STATE if version == 1 else ErrorCode.INVALID_PRODUCER_EPOCH)
    assert await stable_end(one.wire) == (2, 2)


@pytest.mark.proves("late-transaction-request")
async def test_late_produce_of_a_transaction_arriving_in_the_next_one_is_refused(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    late = one.produce_request("out", b"late", partition=1, sequence=0)
    if version == 1:
        assert await one.add("out", 1) == 0
    assert (await one.produce("out", b"a")).error_code == 0
    assert await one.end(commit=False) == 0
    assert (await one.produce("out", b"b")).error_code == 0  # the next transaction, without partition 1
    row = await one.send(late)
    assert row.error_code == (ErrorCode.INVALID_TXN_STATE if version == 1 else ErrorCode.INVALID_PRODUCER_EPOCH)
    assert await one.end() == 0
    assert await stable_end(one.wire, 1) == ((1, 1) if version == 1 else (0, 0))  # the marker, where it was added


@pytest.mark.proves("late-transaction-request")
async def test_late_produce_into_a_partition_of_the_next_transaction_is_refused_by_its_epoch(modern: Harness) -> None:
    """Transaction version 2: version 1 cannot detect this request as late."""
    one = await producer(modern)
    late = one.produce_request("out", b"late", sequence=0)
    assert (await one.produce("out", b"a", partition=1)).error_code == 0
    assert await one.end(commit=False) == 0
    assert (await one.produce("out", b"b")).error_code == 0
    assert (await one.send(late)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await one.end() == 0
    assert await committed_values(one.wire) == [b"b"]


async def test_retry_of_a_batch_is_answered_with_its_offset_until_the_marker(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    if version == 1:
        assert await one.add("out", 0) == 0
    request = one.produce_request("out", b"a", b"b")
    first, again = await one.send(request), await one.send(request)
    assert (first.error_code, first.base_offset) == (again.error_code, again.base_offset) == (0, 0)
    assert await one.end() == 0
    after = await one.send(request)  # the end follows all batches, so this is not a retry
    assert after.error_code == (ErrorCode.UNKNOWN_PRODUCER_ID if version == 1 else ErrorCode.INVALID_PRODUCER_EPOCH)
    assert await committed_values(one.wire) == [b"a", b"b"]


async def test_fenced_producer_writes_nothing(broker: Harness, version: int) -> None:
    old = await producer(broker, version)
    assert (await old.produce("out", b"a")).error_code == 0
    new = await producer(broker, version)
    for partition in (0, 1):  # one partition has the marker of the new instance, the other not
        row = await old.send(old.produce_request("out", b"zombie", partition=partition))
        assert row.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await new.produce("out", b"b")).error_code == 0
    assert (await old.send(old.produce_request("out", b"zombie"))).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await new.end() == 0
    assert await stable_end(new.wire, 1) == (0, 0)


async def test_the_fencing_producer_is_named_if_the_version_has_a_message(modern: Harness) -> None:
    old = await producer(modern)
    await producer(modern)
    row = await old.send(old.produce_request("out", b"zombie"))
    assert "epoch 0 gave way to epoch 1" in (row.error_message or "")


async def test_batch_with_another_producer_id_is_refused(broker: Harness, version: int) -> None:
    one, other = await producer(broker, version), await producer(broker, version, "other")
    request = one.produce_request("out", b"a", producer_id=other.producer_id)
    assert (await one.send(request)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    request.transactional_id = "nobody"
    assert (await one.send(request)).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


async def test_plain_batch_amid_the_producers_transaction_is_refused(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    assert (await one.produce("out", b"a")).error_code == 0
    plain = produce_request("out", batch(b"x", producer_id=one.producer_id, producer_epoch=0, base_sequence=1))
    response = await one.wire.call(plain, 7)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    plain.transactional_id = one.name
    response = await one.wire.call(plain, 7)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE


async def test_refused_batch_with_acks_0_closes_the_connection(modern: Harness) -> None:
    one = await producer(modern)
    await producer(modern)
    for api_version in (7, 12):
        wire = await modern.wire()
        request = one.produce_request("out", b"zombie", sequence=0)
        request.acks = 0
        wire.send(request, api_version)
        assert await wire.closed_by_peer()


async def test_acks_0_joins_and_is_not_answered(modern: Harness) -> None:
    one = await producer(modern)
    request = one.produce_request("out", b"a")
    request.acks = 0
    one.wire.forget(one.wire.send(request, 12))
    assert (await one.produce("out", b"b")).base_offset == 1


# --- joining by itself (KIP-890 part 2) ---


async def test_produce_v12_joins_all_partitions_of_a_request(modern: Harness) -> None:
    one = await producer(modern)
    request = one.produce_request("out", b"a")
    for partition in (1, 2):
        request.topic_data[0].partition_data += (
            one.produce_request("out", b"a", partition=partition).topic_data[0].partition_data
        )
    request.topic_data[0].partition_data.append(ProduceRequestPartition(index=99, records=batch(b"x")))
    response = await one.wire.call(request, 12)
    codes = [row.error_code for row in response.responses[0].partition_responses]
    assert codes == [0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await one.end() == 0
    assert [await stable_end(one.wire, partition) for partition in range(3)] == [(2, 2)] * 3


async def test_pipelined_batches_keep_their_order_while_the_first_one_joins(modern: Harness) -> None:
    one = await producer(modern)
    for _ in range(5):
        for value in range(10):
            one.wire.send(one.produce_request("out", b"%d" % value), 12)
        for _ in range(10):
            response = await one.wire.receive()
            assert response.responses[0].partition_responses[0].error_code == 0
        assert await one.end() == 0
    assert await committed_values(one.wire) == [b"%d" % value for value in range(10)] * 5


async def test_later_requests_wait_for_a_joining_batch(modern: Harness) -> None:
    """Any later request waits: a fetch gets the batch that was sent before it."""
    one = await producer(modern)
    for partition in range(3):
        one.wire.send(one.produce_request("out", b"x", partition=partition), 12)
        one.wire.send(fetch_request("out", 0, partition=partition, max_wait_ms=0))
        produced, fetched = await one.wire.receive(), await one.wire.receive()
        assert produced.responses[0].partition_responses[0].error_code == 0
        assert [record.value for record in records_of(fetched.responses[0].partitions[0].records)] == [b"x"]


async def test_joining_is_durable_before_the_batch_is_there(modern: Harness) -> None:
    """Otherwise a crash could leave a batch whose transaction no coordinator knows."""
    one = await producer(modern)
    node = modern.node
    assert node is not None
    happened: list[str] = []
    partition = node.broker.topics.partition("out", 0)
    shard = await node.broker.transactions.shards.ready(one.name)
    add_partitions, append = shard.add_partitions, partition.append

    async def noting_add(*args: Any, **kwargs: Any) -> None:
        await add_partitions(*args, **kwargs)
        happened.append("joined")

    def noting_append(*args: Any, **kwargs: Any) -> Any:
        happened.append("appended")
        return append(*args, **kwargs)

    shard.add_partitions = noting_add  # type: ignore[method-assign]
    partition.append = noting_append  # type: ignore[method-assign]
    assert (await one.produce("out", b"a")).error_code == 0
    assert (await one.produce("out", b"b")).error_code == 0
    assert happened == ["joined", "appended", "appended"]


async def test_a_transaction_continues_after_a_restart(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    assert (await one.produce("out", b"a")).error_code == 0
    await broker.restart()
    one.wire = await broker.wire()
    assert (await one.produce("out", b"b")).error_code == 0
    assert (await one.produce("out", b"c", partition=1)).error_code == 0
    assert await stable_end(one.wire) == (0, 2)
    assert await one.end() == 0
    assert await committed_values(one.wire) == [b"a", b"b"]


async def test_produce_waits_for_a_coordinator_that_is_still_loading(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    assert (await one.produce("out", b"a")).error_code == 0
    if version == 1:
        assert await one.add("out", 1) == 0
    node = broker.node
    assert node is not None
    transactions = node.broker.transactions
    (shard,) = [each for each in transactions.shards.here() if len(each.slots)]
    gate = asyncio.Event()

    async def load() -> None:
        await gate.wait()
        shard.stage = Stage.READY

    shard.stage, shard._loading = Stage.LOADING, asyncio.get_running_loop().create_task(load())
    one.wire.send(one.produce_request("out", b"b", partition=1), {1: 7, 2: 12}[version])
    reader = await broker.wire()
    assert await stable_end(reader, 1) == (0, 0)
    gate.set()
    response = await one.wire.receive()
    assert response.responses[0].partition_responses[0].error_code == 0
    assert await one.end() == 0


async def test_producer_that_a_partition_does_not_know_begins_at_0_in_version_2(modern: Harness) -> None:
    one = await producer(modern)
    row = await one.send(one.produce_request("out", b"second", sequence=1))
    assert row.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await one.send(one.produce_request("out", b"first", sequence=0))).error_code == 0


# --- versions 8 to 12 ---


@pytest.mark.parametrize("api_version", range(8, 13))
async def test_error_message_and_records_at_fault_are_returned(modern: Harness, api_version: int) -> None:
    wire = await modern.wire()
    await wire.create_topic("compacted", cleanup_policy="compact")
    records = [Record(i, 1, key, b"v") for i, key in enumerate((b"k", None, b"k", None))]
    rows = [
        ProduceRequestPartition(index=0, records=build_batch(records)),
        ProduceRequestPartition(index=9, records=build_batch(records)),
    ]
    topics = [ProduceRequestTopic(name="compacted", partition_data=rows)]
    response = await wire.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), api_version)
    keyless, missing = response.responses[0].partition_responses
    assert (keyless.error_code, missing.error_code) == (
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert [error.batch_index for error in keyless.record_errors] == [1, 3]
    assert "key" in keyless.record_errors[0].batch_index_error_message
    assert "no partition 9" in missing.error_message
    assert (keyless.current_leader.leader_id, response.node_endpoints) == (-1, [])


@pytest.mark.parametrize("api_version", range(3, 13))
async def test_every_version_appends_a_plain_batch(modern: Harness, api_version: int) -> None:
    wire = await modern.wire()
    row = await wire.produce("out", batch(b"x"), version=api_version)
    assert (row.error_code, row.base_offset, row.error_message, row.record_errors) == (0, 0, None, [])
    if api_version >= 5:
        assert row.log_start_offset == 0


async def test_log_start_offset_is_right_after_deletion(modern: Harness) -> None:
    wire = await modern.wire()
    await wire.produce("out", batch(b"a", b"b"))
    rows = [DeleteRecordsRequestPartition(partition_index=0, offset=1)]
    topics = [DeleteRecordsRequestTopic(name="out", partitions=rows)]
    await wire.call(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    assert (await wire.produce("out", batch(b"c"), version=12)).log_start_offset == 1


@pytest.mark.parametrize(("version", "outcome"), [("1", ErrorCode.PRODUCER_FENCED), ("2", ErrorCode.NONE)])
async def test_a_timed_out_producer_may_initialise_itself_again(
    start_broker: StartBroker, version: str, outcome: ErrorCode
) -> None:
    """As Kafka 4.3 with `transaction.version` 1 and 2 (KIP-360)."""
    sweep = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "10"}
    broker = await start_broker(durability="os", transaction_version=version, **sweep)
    wire = await broker.wire()
    await wire.create_topic("out", 1)
    late = await TransactionalProducer(wire, 1).init(timeout_ms=300)
    assert (await late.produce("out", b"late")).error_code == ErrorCode.NONE
    while (await stable_end(wire, 0))[0] == 0:  # until the marker of the timeout is written
        await asyncio.sleep(0.01)
    again = InitProducerIdRequest(
        transactional_id="tx", transaction_timeout_ms=60_000, producer_id=late.producer_id, producer_epoch=late.epoch
    )
    for _ in range(2):  # the second is the retry of a lost answer
        answer = await wire.call(again, 4)
        assert answer.error_code == outcome
        if outcome is ErrorCode.NONE:
            assert (answer.producer_id, answer.producer_epoch) == (late.producer_id, late.epoch + 1)


async def test_a_timed_out_producer_is_refused_until_it_aborts(start_broker: StartBroker) -> None:
    """As Kafka 4.1.1, and as its Java client expects; with version 1 a timeout is fatal."""
    settings = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "10"}
    broker = await start_broker(durability="os", **settings)
    wire = await broker.wire()
    await wire.create_topic("out", 3)
    for version, outcome in ((1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.NONE)):
        late = await TransactionalProducer(wire, version, f"tx-{version}").init(timeout_ms=300)
        epoch = late.epoch
        assert (await late.produce("out", b"late", partition=version)).error_code == ErrorCode.NONE
        while (await stable_end(wire, version))[0] == 0:  # until the marker of the timeout is written
            await asyncio.sleep(0.01)
        refused = await late.send(late.produce_request("out", b"later", partition=version))
        assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await late.end(commit=True) in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
        assert await late.end(commit=False) == outcome
        assert late.epoch == (epoch + 1 if version == 2 else epoch)
    await late.produce("out", b"in time", partition=2)
    assert await late.end() == ErrorCode.NONE, late.epoch
    row = await wire.fetch("out", 0, partition=2, isolation_level=1, max_wait_ms=0)
    assert [each.first_offset for each in row.aborted_transactions or ()] == [0]
    late_one, _abort, in_time, _commit = records_of(row.records)
    assert (late_one.value, in_time.value) == (b"late", b"in time")
