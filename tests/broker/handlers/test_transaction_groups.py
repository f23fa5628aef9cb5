"""Transaction groups over the wire: many producers commit together, and late requests get the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from broker.conftest import StartBroker
from broker.harness import Harness, Wire
from broker.transactional import TransactionalProducer
from semel_protocol.batch import iterate
from semel_protocol.errors import ErrorCode
from semel_protocol.hashes import coordinator_partition, transaction_partition
from semel_protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.messages.k65_describe_transactions import DescribeTransactionsRequest
from semel_protocol.messages.k66_list_transactions import ListTransactionsRequest
from semel_protocol.messages.k20001_begin_transaction_group import BeginTransactionGroupRequest
from semel_protocol.messages.k20002_decide_transaction_group import (
    DecideTransactionGroupRequest,
    DecideTransactionGroupRequestTransaction,
)
from semel_protocol.messages.k20003_describe_transaction_groups import DescribeTransactionGroupsRequest
from semel_protocol.messages.k20004_forget_transaction_group import ForgetTransactionGroupRequest
from semel_protocol.records import decode_batch

GROUP = "sink"
READ_COMMITTED = 1
UNSTABLE = -ErrorCode.UNSTABLE_OFFSET_COMMIT


async def begin(wire: Wire, group: str = GROUP, owner: str = "the driver", timeout_ms: int = 60_000) -> Any:
    return await wire.call(BeginTransactionGroupRequest(group=group, owner=owner, timeout_ms=timeout_ms))


async def decide(
    wire: Wire,
    epoch: int,
    token: str,
    members: Sequence[TransactionalProducer] = (),
    *,
    commit: bool = True,
    group: str = GROUP,
) -> Any:
    request = DecideTransactionGroupRequest(
        group=group,
        group_epoch=epoch,
        token=token,
        committed=commit,
        transactions=[
            DecideTransactionGroupRequestTransaction(
                transactional_id=member.name, producer_id=member.producer_id, producer_epoch=member.epoch
            )
            for member in members
        ],
    )
    return await wire.call(request)


async def init(wire: Wire, name: str, group_epoch: int, version: int = 5) -> Any:
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000, group_epoch=group_epoch)
    return await wire.call(request, version)


async def member(broker: Harness, name: str, group_epoch: int) -> TransactionalProducer:
    """A producer with a connection of its own that is a member of the step."""
    producer = TransactionalProducer(await broker.wire(), name=f"{GROUP}/{name}")
    answer = await init(producer.wire, producer.name, group_epoch)
    assert answer.error_code == 0, answer
    producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch
    return producer


async def rejoin(producer: TransactionalProducer, group_epoch: int) -> None:
    answer = await init(producer.wire, producer.name, group_epoch)
    assert answer.error_code == 0, answer
    producer.producer_id, producer.epoch = answer.producer_id, answer.producer_epoch


async def offset(wire: Wire) -> int:
    """The committed offset of group `g` in t-0, or the negated error code."""
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])], require_stable=True
    )
    row = (await wire.call(request, 7)).topics[0].partitions[0]
    return -row.error_code if row.error_code else row.committed_offset


async def committed(wire: Wire, partition: int = 0, topic: str = "out") -> list[bytes | None]:
    """The values that a read_committed reader gets."""
    row = await wire.fetch(topic, 0, partition=partition, isolation_level=READ_COMMITTED, max_wait_ms=0)
    begins = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ())
    aborted: list[int] = []
    values: list[bytes | None] = []
    for header, view in iterate(row.records or b""):
        while begins and begins[0][0] <= header.base_offset:
            aborted.append(begins.pop(0)[1])
        if header.is_control:
            if header.producer_id in aborted:
                aborted.remove(header.producer_id)
        elif header.producer_id not in aborted:
            values += [record.value for record in decode_batch(view, header)]
    return values


# --- the course of a step ---


async def test_listed_members_commit_together_and_others_abort(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("out", 2)
    step = await begin(wire)
    assert (step.error_code, step.group_epoch, step.decided_token, step.decided_epoch) == (0, 1, None, -1)
    a, b, loser = [await member(broker, name, step.group_epoch) for name in ("a", "b", "loser")]
    for each, value in ((a, b"a"), (b, b"b"), (loser, b"lost")):
        for partition in (0, 1):
            assert (await each.produce("out", value, partition=partition)).error_code == 0
    assert await committed(wire) == []
    done = await decide(wire, step.group_epoch, "q:0", [a, b])
    assert (done.error_code, done.already_decided, done.decided_epoch) == (0, False, 1)
    for partition in (0, 1):
        assert await committed(wire, partition) == [b"a", b"b"]
    again = await decide(wire, step.group_epoch, "q:0", [a, b])
    assert (again.error_code, again.already_decided, again.decided_epoch) == (0, True, 1)
    following = await begin(wire)
    assert (following.group_epoch, following.decided_token, following.decided_epoch) == (2, "q:0", 1)
    again = await decide(wire, 7, "q:0")
    assert (again.already_decided, again.decided_epoch) == (True, 1), "for every caller and step"


async def test_groups_offsets_are_part_of_the_step(broker: Harness) -> None:
    """Offsets and records of a step take effect together or not at all."""
    wire = await broker.wire()
    await wire.create_topic("t")
    step = await begin(wire)
    a, b = await member(broker, "a", 1), await member(broker, "b", 1)
    assert await a.commit_offsets({0: 5}) == [0]
    assert await offset(wire) == UNSTABLE
    assert (await decide(wire, step.group_epoch, "q:0", [a])).error_code == 0
    assert await offset(wire) == 5
    following = await begin(wire)
    await rejoin(b, following.group_epoch)
    assert await b.commit_offsets({0: 9}) == [0]
    assert (await decide(wire, following.group_epoch, "", commit=False)).error_code == 0
    assert await offset(wire) == 5


async def test_one_empty_commit_and_one_abort_over_the_wire(broker: Harness) -> None:
    wire = await broker.wire()
    step = await begin(wire)
    done = await decide(wire, step.group_epoch, "q:0")
    assert (done.error_code, done.already_decided, done.decided_epoch) == (0, False, 1)
    step = await begin(wire)
    done = await decide(wire, step.group_epoch, "", commit=False)
    assert (done.error_code, done.already_decided, done.decided_epoch) == (0, False, -1)


# --- refusals ---


async def test_a_zombie_driver_and_its_workers_get_the_new_owner(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("out")
    await begin(wire)
    late = await member(broker, "a", 1)
    open_one = await member(broker, "b", 1)
    assert (await open_one.produce("out", b"lost")).error_code == 0
    assert (await begin(wire, owner="attempt 2 of query 7")).group_epoch == 2
    refused = await decide(wire, 1, "q:0", [open_one])
    assert refused.error_code == ErrorCode.PRODUCER_FENCED
    assert "step 2 was begun at" in refused.error_message
    assert "attempt 2 of query 7, client 'wire' at 127.0.0.1" in refused.error_message
    row = await late.produce("out", b"late")
    assert row.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert "attempt 2 of query 7" in (row.error_message or "")
    assert (await open_one.produce("out", b"late")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    for version, code in ((5, ErrorCode.PRODUCER_FENCED), (3, ErrorCode.INVALID_PRODUCER_EPOCH)):
        answer = await init(wire, "sink/c", 1, version)
        assert answer.error_code == code
        assert "attempt 2 of query 7" in answer.error_message
    assert await committed(wire) == []


@pytest.mark.parametrize("version", [1, 2])
async def test_a_member_does_not_commit_by_itself(broker: Harness, version: int) -> None:
    wire = await broker.wire()
    await wire.create_topic("out")
    await begin(wire)
    mine = await member(broker, "a", 1)
    mine.version = version
    assert (await mine.produce("out", b"x")).error_code == 0
    assert await mine.end() == ErrorCode.INVALID_TXN_STATE
    assert (await decide(wire, 1, "q:0", [mine])).error_code == 0
    assert await committed(wire) == [b"x"]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_member_may_abort_by_itself(broker: Harness, version: int) -> None:
    wire = await broker.wire()
    await wire.create_topic("out")
    await begin(wire)
    mine = await member(broker, "a", 1)
    mine.version = version
    assert (await mine.produce("out", b"x")).error_code == 0
    assert await mine.end(commit=False) == 0
    assert await committed(wire) == []


async def test_invalid_transaction_group_requests_are_refused(broker: Harness) -> None:
    wire = await broker.wire()
    for answer in (
        await begin(wire, group=""),
        await decide(wire, 1, "q:0", group=""),
        await init(wire, "no-member", 1),
    ):
        assert answer.error_code == ErrorCode.INVALID_REQUEST, answer
        assert answer.error_message
    assert (await begin(wire, timeout_ms=900_001)).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await decide(wire, 1, "q:0")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    await begin(wire)
    assert (await decide(wire, 1, "")).error_code == ErrorCode.INVALID_REQUEST
    assert (await decide(wire, 1, "x" * 1_001)).error_code == ErrorCode.INVALID_REQUEST
    assert (await decide(wire, 1, "x" * 1_000)).error_code == 0


# --- describing ---


async def test_groups_are_described_with_their_steps_and_members(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("out")
    before = await wire.call(DescribeTransactionGroupsRequest())
    assert (before.error_code, before.groups) == (0, [])
    await begin(wire, group="a/b")
    await decide(wire, 1, "t", group="a/b")
    await begin(wire, timeout_ms=5_000)
    mine, _ = await member(broker, "a", 1), await member(broker, "idle", 1)
    await mine.produce("out", b"x")
    found = (await wire.call(DescribeTransactionGroupsRequest())).groups
    assert [(each.group, each.state, each.group_epoch) for each in found] == [
        ("a/b", "Committed", 1),
        ("sink", "Open", 1),
    ]
    assert (found[0].decided_token, found[0].decided_epoch, found[0].members) == ("t", 1, [])
    sink = found[1]
    assert (sink.owner, sink.client_id, sink.client_host, sink.timeout_ms) == ("the driver", "wire", "127.0.0.1", 5_000)
    assert (sink.decided_token, sink.decided_epoch, sink.note) == (None, -1, "")
    assert 0 < sink.begin_time_ms == sink.last_update_time_ms
    assert [(each.transactional_id, each.transaction_state, each.group_epoch) for each in sink.members] == [
        ("sink/a", "Ongoing", 1), ("sink/idle", "Empty", 1)
    ]  # fmt: skip
    assert (sink.members[0].producer_id, sink.members[0].producer_epoch) == (mine.producer_id, mine.epoch)
    assert sink.members[0].transaction_start_time_ms > 0 > sink.members[1].transaction_start_time_ms
    (only,) = (await wire.call(DescribeTransactionGroupsRequest(groups=["sink", "nobody"]))).groups
    assert only == sink
    described = await wire.call(DescribeTransactionsRequest(transactional_ids=["sink/a"]))
    assert described.transaction_states[0].group_epoch == 1


async def test_groups_are_described_again_after_a_restart(broker: Harness) -> None:
    wire = await broker.wire()
    await begin(wire)
    await decide(wire, 1, "q:0")
    await begin(wire)
    before = (await wire.call(DescribeTransactionGroupsRequest())).groups
    await broker.restart()
    wire = await broker.wire()
    assert (await wire.call(DescribeTransactionGroupsRequest())).groups == before
    assert (await decide(wire, 2, "q:0")).already_decided


async def test_a_timed_out_step_has_a_note_about_it(start_broker: StartBroker) -> None:
    broker = await start_broker(durability="os", transaction_abort_timed_out_transaction_cleanup_interval_ms="10")
    wire = await broker.wire()
    await wire.create_topic("out")
    await begin(wire, timeout_ms=1)
    mine = await member(broker, "a", 1)
    await mine.produce("out", b"x")
    async with asyncio.timeout(10):
        while (group := (await wire.call(DescribeTransactionGroupsRequest())).groups[0]).state == "Open":
            await asyncio.sleep(0.01)
    assert (group.state, group.note.partition(" ms")[2]) == ("Aborted", ", allowed were 1 ms")
    refused = await decide(wire, 1, "q:0", [mine])
    assert refused.error_code == ErrorCode.INVALID_TXN_STATE
    assert group.note in refused.error_message


# --- forgetting ---


async def forget(wire: Wire, epoch: int) -> Any:
    return await wire.call(ForgetTransactionGroupRequest(group=GROUP, group_epoch=epoch))


async def test_a_forgotten_group_is_in_no_list_and_its_records_stay(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("out")
    await begin(wire)
    mine, loser = await member(broker, "a", 1), await member(broker, "loser", 1)
    await mine.produce("out", b"kept")
    await loser.produce("out", b"lost")
    assert (await forget(wire, 1)).error_code == ErrorCode.INVALID_TXN_STATE
    await decide(wire, 1, "write", [mine])
    for _ in range(2):
        assert (await forget(wire, 1)).error_code == 0, "a repeated request succeeds"
    assert (await wire.call(DescribeTransactionGroupsRequest())).groups == []
    assert (
        await wire.call(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1)
    ).transaction_states == []
    assert await committed(wire) == [b"kept"]
    await broker.restart()
    wire = await broker.wire()
    assert (await wire.call(DescribeTransactionGroupsRequest())).groups == []
    assert (
        await wire.call(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1)
    ).transaction_states == []
    assert await committed(wire) == [b"kept"]


async def test_late_attempts_of_a_forgotten_group_write_nothing(broker: Harness) -> None:
    wire = await broker.wire()
    await wire.create_topic("out")
    await begin(wire)
    late = [await member(broker, name, 1) for name in ("idle", "open")]
    await late[1].produce("out", b"lost")
    await decide(wire, 1, "write")
    await forget(wire, 1)
    for each in late:
        assert (await each.produce("out", b"late")).error_code != 0
    assert (await init(wire, f"{GROUP}/new", 1)).error_code == ErrorCode.PRODUCER_FENCED
    assert await committed(wire) == []
    assert (
        await wire.call(ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1)
    ).transaction_states == []


async def test_a_replaced_driver_does_not_forget_the_group_of_the_newer_step(broker: Harness) -> None:
    wire = await broker.wire()
    await begin(wire)
    await decide(wire, 1, "write")
    await begin(wire)
    assert (await forget(wire, 1)).error_code == ErrorCode.PRODUCER_FENCED
    assert len((await wire.call(DescribeTransactionGroupsRequest())).groups) == 1


# --- other clients ---


async def test_own_keys_are_advertised_beside_kafkas(broker: Harness) -> None:
    wire = await broker.wire()
    answer = await wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    own = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys if row.api_key > 1_000}
    assert own == {20_001: (0, 0), 20_002: (0, 0), 20_003: (0, 0), 20_004: (0, 0)}
    assert max(row.api_key for row in answer.api_keys if row.api_key < 1_000) == 75


async def test_a_group_and_its_members_are_found_at_one_coordinator(broker: Harness) -> None:
    """By Kafka's hash over 50 partitions, `sink/a` and `sink/b` would have different coordinators."""
    assert coordinator_partition("sink/a", 50) != coordinator_partition("sink/b", 50)
    assert (
        transaction_partition("sink/a", 50) == transaction_partition("sink/b", 50) == transaction_partition("sink/", 50)
    )
    wire = await broker.wire()
    for name in ("sink/", "sink/a", "a/b/c", "plain"):
        found = await wire.call(FindCoordinatorRequest(key=name, key_type=1))
        assert (found.error_code, found.port) == (0, broker.port)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_plain_id_with_a_slash_is_not_a_group_member(broker: Harness, version: int) -> None:
    wire = await broker.wire()
    await wire.create_topic("out")
    old = await TransactionalProducer(await broker.wire(), version, "sink/old").init()
    assert (await old.produce("out", b"old")).error_code == 0
    step = await begin(wire)
    await decide(wire, step.group_epoch, "q:0")
    await begin(wire)
    assert await old.end() == 0
    assert await committed(wire) == [b"old"]
    described = await wire.call(DescribeTransactionsRequest(transactional_ids=["sink/old"]))
    assert described.transaction_states[0].group_epoch == -1
    assert (await wire.call(DescribeTransactionGroupsRequest(groups=["sink"]))).groups[0].members == []
