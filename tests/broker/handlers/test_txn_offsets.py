"""TxnOffsetCommit and the offsets that OffsetFetch then returns, in both transaction versions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.handlers.test_groups import NOW, context, enter_two, member
from broker.harness import Harness
from broker.members import WireMember, committed
from broker.transactional import TransactionalProducer, stable_offsets
from broker.wire import Wire
from semel_broker.handlers import k09_offset_fetch
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from semel_protocol.messages.k15_describe_groups import DescribeGroupsRequest
from semel_protocol.messages.k16_list_groups import ListGroupsRequest
from semel_protocol.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
from semel_protocol.messages.k42_delete_groups import DeleteGroupsRequest
from semel_protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from support.processes import BrokerProcess

UNSTABLE = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest) -> int:
    """The transaction version that the producer speaks."""
    return int(request.param)


@pytest.fixture
async def broker(start_broker: StartBroker, version: int) -> Harness:
    """A broker that serves transaction version 2, or only 1."""
    broker = await start_broker(durability="fsync", transaction_version=str(version), **NOW)
    wire = await broker.wire()
    await wire.create_topic("t", 4)
    await wire.create_topic("out", 2)
    return broker


async def producer(broker: Harness, version: int, name: str = "tx") -> TransactionalProducer:
    return await TransactionalProducer(await broker.wire(), version, name).init()


# --- the transaction ---


async def test_offsets_and_records_of_a_transaction_appear_together(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    reader = await broker.wire()
    assert (await one.produce("out", b"a")).error_code == 0
    assert await one.commit_offsets({0: 5, 1: 6}) == [0, 0]
    assert await committed(reader, "g", 0, 1) == [-1, -1]
    assert await stable_offsets(reader, 0, 1, 2) == [UNSTABLE, UNSTABLE, (0, -1)]
    assert (await reader.fetch("out", 0, isolation_level=1, max_wait_ms=0)).records == b""
    assert await one.end() == 0
    assert await stable_offsets(reader, 0, 1, 2) == [(0, 5), (0, 6), (0, -1)]
    assert (await reader.fetch("out", 0, isolation_level=1)).records


async def test_offsets_of_an_aborted_transaction_are_dropped(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    assert await (await member(broker)).commit({0: 1}) == [0]
    assert await one.commit_offsets({0: 5}) == [0]
    assert await one.end(commit=False) == 0
    assert await stable_offsets(one.wire, 0) == [(0, 1)]


async def test_transaction_after_transaction(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    for turn in range(1, 8):
        assert (await one.produce("out", b"%d" % turn)).error_code == 0
        assert await one.commit_offsets({0: turn}) == [0]
        assert await one.end(commit=turn % 3 != 0) == 0
        assert await stable_offsets(one.wire, 0) == [(0, turn if turn % 3 else turn - 1)]


async def test_groups_share_a_transaction(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    for group in ("a", "b", "c"):
        assert await one.commit_offsets({0: 5}, group_id=group) == [0]
    assert await one.end() == 0
    assert [await committed(one.wire, group, 0) for group in ("a", "b", "c")] == [[5], [5], [5]]


async def test_partition_that_cannot_be_committed_fails_alone(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    assert await one.commit_offsets({0: 5, 99: 1}) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await one.commit_offsets({0: 5, 1: -3}) == [0, ErrorCode.OFFSET_OUT_OF_RANGE]
    request = one.commit_request({1: 6})
    request.topics[0].partitions[0].committed_metadata = "x" * 4097
    response = await one.wire.call(request, 3)
    assert response.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert await one.end() == 0
    assert await committed(one.wire, "g", 0, 1) == [5, -1]


# --- permission ---


async def refused(one: TransactionalProducer, api_version: int, **fields: Any) -> int:
    (code,) = await one.commit_offsets({0: 5}, version=api_version, **fields)
    return code


async def test_group_that_was_not_added_is_refused(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    assert await one.add("out", 0) == 0
    for api_version in (0, 3):
        assert await refused(one, api_version) == ErrorCode.INVALID_TXN_STATE
    if version == 2:
        assert await refused(one, 4) == ErrorCode.TRANSACTION_ABORTABLE
        assert await refused(one, 5) == 0  # version 2 adds the group by itself
    else:
        assert await one.add_group() == 0
        assert await refused(one, 3) == 0


async def test_fenced_and_unknown_producers_are_refused(broker: Harness, version: int) -> None:
    old = await producer(broker, version)
    assert await old.commit_offsets({0: 1}) == [0]
    new = await producer(broker, version)  # aborts the transaction of the old instance
    api_version = 3 if version == 1 else 5
    assert await refused(old, api_version) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await refused(old, api_version, transactional_id="nobody") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await refused(old, api_version, producer_id=4711) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await refused(old, api_version, group_id="") == ErrorCode.INVALID_GROUP_ID
    assert await stable_offsets(old.wire, 0) == [(0, -1)]
    assert await new.commit_offsets({0: 2}) == [0]
    assert await new.end() == 0
    assert await stable_offsets(old.wire, 0) == [(0, 2)]


async def test_late_offset_commit_of_an_ended_transaction_is_refused(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    assert await one.commit_offsets({0: 5}) == [0]
    late = one.commit_request({0: 4})
    assert await one.end() == 0
    response = await one.wire.call(late, 3 if version == 1 else 5)
    expected = ErrorCode.INVALID_TXN_STATE if version == 1 else ErrorCode.INVALID_PRODUCER_EPOCH
    assert response.topics[0].partitions[0].error_code == expected
    assert await stable_offsets(one.wire, 0) == [(0, 5)]


@pytest.mark.proves("late-transaction-request")
async def test_late_offset_commit_arriving_in_the_next_transaction_is_refused_by_its_epoch(
    start_broker: StartBroker,
) -> None:
    """Transaction version 2: version 1 cannot detect this request as late."""
    broker = await start_broker(durability="os", **NOW)
    await (await broker.wire()).create_topic("t", 4)
    one = await producer(broker, 2)
    assert await one.commit_offsets({0: 5}) == [0]
    late = one.commit_request({0: 4})
    assert await one.end() == 0
    assert await one.commit_offsets({0: 9}) == [0]
    response = await one.wire.call(late, 5)
    assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await one.end() == 0
    assert await stable_offsets(one.wire, 0) == [(0, 9)]


@pytest.mark.proves("offsets-of-an-old-generation")
async def test_an_old_generations_txn_offset_commit_is_refused_kip447(broker: Harness, version: int) -> None:
    first, second = await enter_two(broker)
    one = await producer(broker, version)
    assert await one.commit_offsets({0: 5}, member=first) == [0]
    first.generation -= 1
    assert await one.commit_offsets({0: 4}, member=first) == [ErrorCode.ILLEGAL_GENERATION]
    stranger = WireMember(first.wire)
    stranger.member_id, stranger.generation = "stranger", second.generation
    assert await one.commit_offsets({0: 4}, member=stranger) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await one.end() == 0
    assert await stable_offsets(one.wire, 0) == [(0, 5)]


async def test_fenced_static_member_cannot_commit(broker: Harness, version: int) -> None:
    old = await member(broker, instance="i")
    await old.enter()
    new = await member(broker, instance="i")
    await new.join()
    one = await producer(broker, version)
    assert await one.commit_offsets({0: 5}, member=old) == [ErrorCode.FENCED_INSTANCE_ID]


# --- rebalances and failovers with offsets pending ---


@pytest.mark.proves("pending-offsets-at-a-rebalance")
async def test_rebalance_with_offsets_pending_keeps_the_new_owner_waiting_until_they_are_decided(
    broker: Harness, version: int
) -> None:
    old = await member(broker)
    await old.enter()
    one = await producer(broker, version)
    assert await one.commit_offsets({0: 5}, member=old) == [0]
    new = await member(broker)
    joining = asyncio.create_task(new.join())
    while await old.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
        await asyncio.sleep(0.005)
    assert await one.commit_offsets({1: 7}, member=old) == [0]  # its last commit before the rebalance
    generation = old.generation
    await old.join()
    await joining
    assert await stable_offsets(new.wire, 0, 1) == [UNSTABLE, UNSTABLE]
    assert await committed(new.wire, "g", 0, 1) == [-1, -1]
    old.generation = generation
    assert await one.commit_offsets({0: 6}, member=old) == [ErrorCode.ILLEGAL_GENERATION]
    assert await one.end() == 0  # its timely commit is kept
    assert await stable_offsets(new.wire, 0, 1) == [(0, 5), (0, 7)]


@pytest.mark.proves("pending-offsets-at-a-rebalance")
async def test_failover_with_offsets_pending_ends_them_with_the_old_instance(broker: Harness, version: int) -> None:
    old = await producer(broker, version)
    assert await old.commit_offsets({0: 5}) == [0]
    assert await stable_offsets(old.wire, 0) == [UNSTABLE]
    await producer(broker, version)
    assert await stable_offsets(old.wire, 0) == [(0, -1)]


@pytest.mark.parametrize("commit", [True, False])
async def test_restart_with_offsets_pending_leaves_the_decision_to_the_producer(
    broker: Harness, version: int, commit: bool
) -> None:
    one = await producer(broker, version)
    assert await (await member(broker)).commit({0: 1}) == [0]
    assert await one.commit_offsets({0: 5}) == [0]
    await broker.restart()
    one.wire = await broker.wire()
    assert await stable_offsets(one.wire, 0) == [UNSTABLE]
    assert await one.commit_offsets({1: 6}) == [0]
    assert await one.end(commit=commit) == 0
    assert await stable_offsets(one.wire, 0, 1) == ([(0, 5), (0, 6)] if commit else [(0, 1), (0, -1)])
    await broker.restart()
    assert await stable_offsets(await broker.wire(), 0, 1) == ([(0, 5), (0, 6)] if commit else [(0, 1), (0, -1)])


async def test_transaction_that_times_out_gives_its_offsets_up(start_broker: StartBroker, version: int) -> None:
    sweep = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "20"}
    broker = await start_broker(durability="os", transaction_version=str(version), **sweep, **NOW)
    wire = await broker.wire()
    await wire.create_topic("t", 4)
    one = await TransactionalProducer(await broker.wire(), version).init(timeout_ms=50)
    assert await one.commit_offsets({0: 5}) == [0]
    async with asyncio.timeout(10):
        while await stable_offsets(wire, 0) == [UNSTABLE]:
            await asyncio.sleep(0.01)
    assert await stable_offsets(wire, 0) == [(0, -1)]
    assert await one.end() in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)


@pytest.mark.proves("pending-offsets-at-a-rebalance")
@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_sigkill_between_the_offsets_and_their_decision(tmp_path: Path, version: int, durability: str) -> None:
    process = BrokerProcess(tmp_path / "data", **{"durability": durability, "transaction.version": str(version)})
    process.start()
    try:
        asyncio.run(sigkill(process, version))
    finally:
        process.stop()


async def sigkill(process: BrokerProcess, version: int) -> None:
    wire = await Wire.connect(process.port)
    await wire.create_topic("t", 4)
    one = await TransactionalProducer(wire, version).init()
    for turn in range(1, 5):
        assert await one.commit_offsets({0: turn}) == [0]
        assert await one.end(commit=turn < 3) == 0
    assert await one.commit_offsets({1: 7}) == [0]
    await wire.close()
    process.kill()
    process.start()
    one.wire = await Wire.connect(process.port)
    assert await stable_offsets(one.wire, 0, 1) == [(0, 2), UNSTABLE]
    assert await one.end() == 0
    assert await stable_offsets(one.wire, 0, 1) == [(0, 2), (0, 7)]
    await one.wire.close()


# --- deleting ---


async def test_group_of_pending_offsets_is_listed_and_deleted_for_good(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    assert await one.commit_offsets({0: 5}) == [0]
    assert [row.group_id for row in (await one.wire.call(ListGroupsRequest())).groups] == ["g"]
    described = await one.wire.call(DescribeGroupsRequest(groups=["g"]))
    assert [(row.error_code, row.group_state) for row in described.groups] == [(0, "Empty")]
    deleted = await one.wire.call(DeleteGroupsRequest(groups_names=["g"]))
    assert deleted.results[0].error_code == 0
    assert (await one.wire.call(ListGroupsRequest())).groups == []
    assert await one.end() == 0
    assert await stable_offsets(one.wire, 0) == [(0, -1)]


async def test_deleted_offsets_do_not_come_back_when_the_transaction_commits(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    assert await (await member(broker)).commit({0: 1, 1: 1}) == [0, 0]
    assert await one.commit_offsets({0: 5, 1: 5, 2: 5}) == [0, 0, 0]
    rows = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 2)]
    topics = [OffsetDeleteRequestTopic(name="t", partitions=rows)]
    deleted = await one.wire.call(OffsetDeleteRequest(group_id="g", topics=topics))
    assert [row.error_code for row in deleted.topics[0].partitions] == [0, 0]
    assert await stable_offsets(one.wire, 0, 1, 2) == [(0, -1), UNSTABLE, (0, -1)]
    assert await one.end() == 0
    assert await stable_offsets(one.wire, 0, 1, 2) == [(0, -1), (0, 5), (0, -1)]


# --- reading ---


@pytest.mark.proves("stable-offsets")
async def test_unstable_offset_commit_only_with_require_stable(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    assert await (await member(broker)).commit({0: 1, 1: 2}) == [0, 0]
    assert await one.commit_offsets({0: 5, 3: 5}) == [0, 0]
    assert await stable_offsets(one.wire, 0, 1, require_stable=False) == [(0, 1), (0, 2)]
    assert await stable_offsets(one.wire, 0, 1, 3) == [UNSTABLE, (0, 2), UNSTABLE]
    everything = OffsetFetchRequest(group_id="g", topics=None, require_stable=True)
    (topic,) = (await one.wire.call(everything, 7)).topics
    assert {row.partition_index: (row.error_code, row.committed_offset) for row in topic.partitions} == {
        0: UNSTABLE,
        1: (0, 2),
        3: UNSTABLE,
    }
    (topic,) = (await one.wire.call(OffsetFetchRequest(group_id="g", topics=None), 7)).topics
    assert [(row.partition_index, row.committed_offset) for row in topic.partitions] == [(0, 1), (1, 2)]


async def test_unstable_offset_in_one_of_several_groups(broker: Harness, version: int) -> None:
    """OffsetFetch v8 is not offered; the test calls the handler."""
    one = await producer(broker, version)
    assert await one.commit_offsets({0: 5}, group_id="a") == [0]
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=group, topics=topics) for group in ("a", "b")]
    request = OffsetFetchRequest(groups=groups, require_stable=True)
    response = await k09_offset_fetch.handle(request, context(broker, 8))
    codes = [group.topics[0].partitions[0].error_code for group in response.groups]
    assert codes == [ErrorCode.UNSTABLE_OFFSET_COMMIT, 0]


# --- finding the coordinator ---


async def test_coordinator_of_transactions_is_found(broker: Harness, version: int) -> None:
    wire = await broker.wire()
    found = await wire.call(FindCoordinatorRequest(key="tx", key_type=1))
    assert (found.error_code, found.node_id, found.port) == (0, 0, broker.port)


async def test_oldest_version_of_the_request_is_served(broker: Harness, version: int) -> None:
    one = await producer(broker, version)
    assert await one.add_group() == 0
    request: TxnOffsetCommitRequest = one.commit_request({0: 5})
    response = await one.wire.call(request, 0)
    assert response.topics[0].partitions[0].error_code == 0
    assert await one.end() == 0
    assert await committed(one.wire, "g", 0) == [5]


@pytest.mark.proves("late-transaction-request")
async def test_late_offset_commit_over_a_replaced_connection_closes_it(
    start_broker: StartBroker,
) -> None:
    """Transaction version 1, with one epoch for all transactions: the newest connection wins."""
    broker = await start_broker(durability="os", transaction_version="1", **NOW)
    await (await broker.wire()).create_topic("t", 4)
    one = await producer(broker, 1)
    assert await one.commit_offsets({0: 5}) == [0]
    replaced, late = one.wire, one.commit_request({0: 5})
    one.wire = await broker.wire()
    assert await one.end(commit=False) == 0
    assert await one.commit_offsets({0: 2}) == [0]
    replaced.send(late, 3)
    assert await replaced.closed_by_peer()
    assert await one.end() == 0
    assert await stable_offsets(one.wire, 0) == [(0, 2)]
