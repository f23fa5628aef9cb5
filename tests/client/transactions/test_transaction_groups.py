"""Transaction groups against a scripted coordinator, in both versions of the protocol: driver, members, and faults."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator
from typing import Any

import pytest
from client.fake_broker import ANSWER_LOST, LOST, QUICK, SILENT
from client.fake_coordinator import ABORTED, END, INIT, ONGOING, DoneBut
from client.fake_groups import BEGIN, DECIDE, FORGET, FakeGroups
from semel import Admin, GroupStep, PreparedTransaction, Producer, TransactionGroup
from semel.errors import (
    IllegalOperation,
    IllegalStateError,
    InvalidTxnState,
    KafkaConfigurationError,
    KafkaTimeoutError,
    NotSemelBrokerError,
    ProducerFenced,
    TransactionAborted,
    TransactionalIdNotFound,
    TransactionHasFailed,
    TransactionWasCommitted,
)
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k20001_begin_transaction_group import BeginTransactionGroupRequest
from semel_protocol.messages.k20002_decide_transaction_group import DecideTransactionGroupRequest


@pytest.fixture(params=[1, 2], ids=["version1", "version2"])
async def broker(request: pytest.FixtureRequest) -> AsyncIterator[FakeGroups]:
    async with FakeGroups(request.param) as made:
        yield made


@pytest.fixture
async def group(broker: FakeGroups) -> AsyncIterator[TransactionGroup]:
    async with driver(broker) as made:
        yield made


def driver(broker: FakeGroups, **settings: Any) -> TransactionGroup:
    return TransactionGroup("g", bootstrap_servers=broker.address, **{"owner": "tests", **QUICK, **settings})


def member(broker: FakeGroups, step: GroupStep, name: str = "a", **settings: Any) -> Producer:
    return Producer(
        bootstrap_servers=broker.address,
        **{"transactional_id": f"g/{name}", "transaction_group_step": step, **QUICK, **settings},
    )


async def written(producer: Producer, *values: bytes) -> PreparedTransaction:
    await producer.begin_transaction()
    for value in values:
        await producer.send("t", value)
    prepared = await producer.prepare_transaction()
    assert prepared is not None
    return prepared


# The way it goes


async def test_transactions_of_many_members_are_committed_as_one(broker: FakeGroups, group: TransactionGroup) -> None:
    step = await group.begin()
    assert step == GroupStep("g", 1, None, -1)
    async with member(broker, step, "a") as a, member(broker, step, "b") as b:
        prepared = [await written(a, b"1", b"2"), await written(b, b"3")]
        assert broker.committed() == []
        assert await group.commit(step, "batch 0", prepared)
        assert broker.committed() == [b"1", b"2", b"3"]
    assert await group.begin() == GroupStep("g", 2, "batch 0", 1)
    assert broker.seen(END) == [], "stopping leaves what is prepared to the group"


async def test_a_transaction_that_the_driver_does_not_list_is_aborted(
    broker: FakeGroups, group: TransactionGroup
) -> None:
    step = await group.begin()
    async with member(broker, step, "a") as a, member(broker, step, "late") as late:
        kept = await written(a, b"kept")
        await written(late, b"dropped")
        await group.commit(step, "batch 0", [kept])
    assert broker.committed() == [b"kept"]
    assert broker.values(ABORTED) == [b"dropped"]


async def test_members_join_step_after_step_with_their_connections(broker: FakeGroups, group: TransactionGroup) -> None:
    step = await group.begin()
    async with member(broker, step) as a:
        for number in range(5):
            if number:
                step = await group.begin()
                await a.join(step)
            await group.commit(step, f"batch {number}", [await written(a, b"%d" % number)])
            if not number:
                connections, listeners = len(broker.connections), len(a._cluster._listeners)
        assert len(broker.connections) == connections
        assert len(a._cluster._listeners) == listeners, "nothing is left of the steps before"
    assert broker.committed() == [b"%d" % number for number in range(5)]


async def test_steps_and_prepared_transactions_travel_between_processes(
    broker: FakeGroups, group: TransactionGroup
) -> None:
    step = pickle.loads(pickle.dumps(await group.begin()))
    async with member(broker, step) as a:
        prepared = pickle.loads(pickle.dumps(await written(a, b"1")))
        assert prepared == PreparedTransaction("g/a", *broker_identity(broker, "g/a"), 1)
        assert await group.commit(step, "0", [prepared])


def broker_identity(broker: FakeGroups, name: str) -> tuple[int, int]:
    txn = broker.ids[name]
    return txn.producer_id, txn.epoch


async def test_prepare_without_records_returns_none_and_an_empty_step_commits_its_token(
    broker: FakeGroups, group: TransactionGroup
) -> None:
    step = await group.begin()
    async with member(broker, step) as a:
        await a.begin_transaction()
        assert await a.prepare_transaction() is None
        with pytest.raises(IllegalStateError):
            await a.begin_transaction()
    assert await group.commit(step, "nothing", [])
    assert (await group.begin()).decided_token == "nothing"


# Members


async def test_only_the_driver_commits_and_only_members_of_a_group_prepare(
    broker: FakeGroups, group: TransactionGroup
) -> None:
    step = await group.begin()
    async with member(broker, step) as a, Producer(bootstrap_servers=broker.address, transactional_id="x") as plain:
        with pytest.raises(IllegalOperation, match="prepare_transaction"):
            async with a.transaction():
                raise AssertionError("not begun")
        await a.begin_transaction()
        await a.send("t", b"1")
        with pytest.raises(IllegalOperation, match=r"TransactionGroup\.commit"):
            await a.commit_transaction()
        assert await a.prepare_transaction() is not None, "the refusal has changed nothing"
        await plain.begin_transaction()
        with pytest.raises(IllegalOperation, match="join"):
            await plain.prepare_transaction()


@pytest.mark.parametrize("name", [None, "a", "h/a", "g/", "g/a/b"])
async def test_a_member_must_be_named_after_its_group(broker: FakeGroups, name: str | None) -> None:
    with pytest.raises(KafkaConfigurationError, match="'g/<member>'"):
        Producer(transactional_id=name, transaction_group_step=GroupStep("g", 1))


async def test_a_member_cannot_join_a_step_of_another_group(broker: FakeGroups, group: TransactionGroup) -> None:
    async with member(broker, await group.begin()) as a:
        with pytest.raises(KafkaConfigurationError, match="'h'"):
            await a.join(GroupStep("h", 1))
        await written(a, b"1")


async def test_a_member_aborts_its_transaction_and_writes_again_in_the_same_step(
    broker: FakeGroups, group: TransactionGroup
) -> None:
    step = await group.begin()
    async with member(broker, step) as a:
        stale = await written(a, b"wrong")
        await a.abort_transaction()
        await group.commit(step, "0", [await written(a, b"right")])
    assert broker.committed() == [b"right"]
    step = await group.begin()
    with pytest.raises(ProducerFenced, match="g/a"):
        await group.commit(step, "1", [stale])


async def test_prepare_raises_the_error_of_a_record_that_was_not_stored(
    broker: FakeGroups, group: TransactionGroup
) -> None:
    step = await group.begin()
    async with member(broker, step) as a:
        broker.faults.append(int(ErrorCode.INVALID_RECORD))
        await a.begin_transaction()
        await a.send("t", b"bad")
        with pytest.raises(TransactionHasFailed, match="INVALID_RECORD"):
            await a.prepare_transaction()
        await a.abort_transaction()
        await written(a, b"good")


async def test_prepare_that_was_cancelled_may_be_called_again(broker: FakeGroups, group: TransactionGroup) -> None:
    step = await group.begin()
    async with member(broker, step, request_timeout_ms=200) as a:
        broker.faults.append(SILENT)
        await a.begin_transaction()
        await a.send("t", b"1")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await a.prepare_transaction()
        prepared = await a.prepare_transaction()
        assert prepared == await a.prepare_transaction()
        assert prepared is not None
        await group.commit(step, "0", [prepared])
    assert broker.committed() == [b"1"]


async def test_an_abort_ends_a_prepare_that_waits(broker: FakeGroups, group: TransactionGroup) -> None:
    step = await group.begin()
    async with member(broker, step, linger_ms=0, request_timeout_ms=100) as a:
        broker.faults.append(SILENT)
        await a.begin_transaction()
        await a.send("t", b"1")
        preparing = asyncio.create_task(a.prepare_transaction())
        await asyncio.sleep(0.01)
        await a.abort_transaction()
        with pytest.raises((TransactionAborted, TransactionHasFailed)):
            await preparing


async def test_stop_aborts_what_is_open_and_leaves_what_is_prepared(
    broker: FakeGroups, group: TransactionGroup
) -> None:
    step = await group.begin()
    async with member(broker, step, "prepared") as made:
        prepared = await written(made, b"1")
    async with member(broker, step, "open") as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"2")
    assert broker.values(ABORTED) == [b"2"]
    assert broker.values(ONGOING) == [b"1"]
    assert await group.commit(step, "0", [prepared])


async def test_an_abort_that_comes_after_the_groups_commit_says_so(broker: FakeGroups, group: TransactionGroup) -> None:
    step = await group.begin()
    async with member(broker, step) as a:
        prepared = await written(a, b"1")
        broker.groups["g"].state = "Open"
        await group.commit(step, "0", [prepared])
        with pytest.raises(TransactionWasCommitted, match="its group has committed it"):
            await a.abort_transaction()
        await a.join(await group.begin())
        await written(a, b"2")
    assert broker.committed() == [b"1"]


# A step that is over


async def test_a_step_that_is_over_refuses_members_with_the_reason(broker: FakeGroups, group: TransactionGroup) -> None:
    step = await group.begin()
    await group.begin()
    with pytest.raises(ProducerFenced, match="step 2 was begun by tests") as caught:
        await member(broker, step).start()
    assert "step 1 of its transaction group" in str(caught.value)
    assert "does not say by whom" not in str(caught.value)


async def test_a_producer_of_an_older_step_gets_the_driver_of_the_newer_one(
    broker: FakeGroups, group: TransactionGroup
) -> None:
    step = await group.begin()
    async with member(broker, step, "busy") as busy, member(broker, step, "idle") as idle:
        await busy.begin_transaction()
        await busy.send_and_wait("t", b"1")
        await idle.begin_transaction()
        newer = await group.begin()
        for zombie in (busy, idle):
            await zombie.send("t", b"2")
            with pytest.raises(ProducerFenced, match=r"step 2 .*was begun .*by tests"):
                await zombie.prepare_transaction()
            await zombie.join(newer)
            await written(zombie, b"3")
    assert broker.committed() == []
    assert broker.values(ONGOING) == [b"3", b"3"]


async def test_joining_a_step_gives_up_the_open_transaction(broker: FakeGroups, group: TransactionGroup) -> None:
    step = await group.begin()
    async with member(broker, step, linger_ms=10_000) as a:
        await a.begin_transaction()
        never = await a.send("t", b"never")
        await a.join(await group.begin())
        with pytest.raises(TransactionAborted, match="joined step 2"):
            await never
        await a.begin_transaction()
        await a.send("t", b"2")
        assert await a.prepare_transaction() is not None
    assert broker.values(ONGOING) == [b"2"]


async def test_a_send_that_waited_while_the_producer_joined_is_refused(
    broker: FakeGroups, group: TransactionGroup
) -> None:
    step = await group.begin()
    async with member(broker, step, max_batch_size=10, buffer_memory=200, max_request_size=200) as a:
        broker.faults.append(SILENT)
        await a.begin_transaction()
        await a.send("t", b"x" * 60)
        waiting = asyncio.create_task(a.send("t", b"y" * 60))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await a.join(await group.begin())
        await a.begin_transaction()
        with pytest.raises(TransactionAborted):
            await waiting


async def test_joining_may_be_tried_again(broker: FakeGroups, group: TransactionGroup) -> None:
    async with member(broker, await group.begin(), max_block_ms=50) as a:
        step = await group.begin()
        broker.trouble[INIT].extend([ErrorCode.CONCURRENT_TRANSACTIONS] * 100)
        with pytest.raises(KafkaTimeoutError, match=r"join\(\) the step again"):
            await a.join(step)
        with pytest.raises(IllegalStateError, match="not initialized"):
            await a.begin_transaction()
        broker.trouble[INIT].clear()
        await a.join(step)
        await written(a, b"1")


# The driver


@pytest.mark.parametrize("fault", [LOST, ANSWER_LOST, ErrorCode.NOT_COORDINATOR, ErrorCode.CONCURRENT_TRANSACTIONS])
@pytest.mark.parametrize("request_key", [BEGIN, DECIDE])
async def test_a_driver_retries_until_it_is_answered(
    broker: FakeGroups, group: TransactionGroup, fault: Any, request_key: int
) -> None:
    if request_key == BEGIN:
        broker.trouble[BEGIN].append(fault)
    step = await group.begin()
    assert step.epoch == (2 if (request_key, fault) == (BEGIN, ANSWER_LOST) else 1)
    async with member(broker, step) as a:
        prepared = await written(a, b"1")
        if request_key == DECIDE:
            broker.trouble[DECIDE].append(fault)
        assert await group.commit(step, "0", [prepared]), "also when the first answer was lost"
    assert broker.committed() == [b"1"]


async def test_a_token_is_committed_once(broker: FakeGroups, group: TransactionGroup) -> None:
    step = await group.begin()
    async with member(broker, step) as a:
        prepared = await written(a, b"1")
        assert await group.commit(step, "0", [prepared])
        assert await group.commit(step, "0", [prepared]), "the same step: it is committed"
        step = await group.begin()
        await a.join(step)
        prepared = await written(a, b"again")
        assert not await group.commit(step, "0", [prepared]), "another step: nothing of it is"
        assert broker.committed() == [b"1"]
        await group.abort(step)
    assert broker.values(ABORTED) == [b"again"]


async def test_a_second_call_returns_the_outcome_of_a_commit_without_an_answer(broker: FakeGroups) -> None:
    async with driver(broker, max_block_ms=50) as group:
        step = await group.begin()
        broker.trouble[DECIDE].extend([ANSWER_LOST, *[LOST] * 50])
        with pytest.raises(KafkaTimeoutError, match="with the same token"):
            await group.commit(step, "0", [])
        broker.trouble[DECIDE].clear()
        assert await group.commit(step, "0", [])


@pytest.mark.parametrize(
    "trouble", [LOST, DoneBut(ErrorCode.NOT_COORDINATOR), DoneBut(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
)
async def test_an_unknown_outcome_is_reported_as_unknown(
    broker: FakeGroups, group: TransactionGroup, trouble: Any
) -> None:
    step = await group.begin()
    broker.trouble[DECIDE].append(trouble)
    committing = asyncio.create_task(group.commit(step, "0", []))
    while broker.trouble[DECIDE]:
        await asyncio.sleep(0)
    # at once, before it can ask again
    newer = broker.begin(BeginTransactionGroupRequest(group=group.name, owner="another", timeout_ms=1_000)).group_epoch
    broker.decide(DecideTransactionGroupRequest(group=group.name, group_epoch=newer, token="1", committed=True))
    with pytest.raises(ProducerFenced, match="begun by another") as caught:
        await committing
    assert "may have committed it: look for its records" in str(caught.value)


async def test_a_driver_whose_step_is_over_gets_the_driver_of_the_newer_step(
    broker: FakeGroups, group: TransactionGroup
) -> None:
    step = await group.begin()
    async with driver(broker, owner="another") as other:
        await other.begin()
    with pytest.raises(ProducerFenced, match="step 2 was begun by another") as caught:
        await group.commit(step, "0", [])
    assert "not known" not in str(caught.value)
    await group.abort(step)


async def test_abort_is_harmless_until_the_step_is_committed(broker: FakeGroups, group: TransactionGroup) -> None:
    step = await group.begin()
    async with member(broker, step) as a:
        prepared = await written(a, b"1")
        await group.abort(step)
        await group.abort(step)
        assert broker.values(ABORTED) == [b"1"]
        with pytest.raises(InvalidTxnState, match="Aborted"):
            await group.commit(step, "0", [prepared])
        with pytest.raises(ProducerFenced):
            await a.abort_transaction()
    step = await group.begin()
    await group.commit(step, "0", [])
    with pytest.raises(TransactionWasCommitted):
        await group.abort(step)
    broker.groups.clear()
    await group.abort(step)


@pytest.mark.parametrize("trouble", [LOST, ANSWER_LOST, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR])
async def test_a_decided_group_is_forgotten_although_the_first_answer_is_missing(
    broker: FakeGroups, group: TransactionGroup, trouble: Any
) -> None:
    step = await group.begin()
    await group.commit(step, "0", [])
    broker.trouble[FORGET].append(trouble)
    await group.forget(step)
    assert broker.groups == {}


async def test_an_open_step_is_not_forgotten(broker: FakeGroups, group: TransactionGroup) -> None:
    step = await group.begin()
    with pytest.raises(InvalidTxnState, match="the step is open"):
        await group.forget(step)
    assert list(broker.groups) == ["g"]


async def test_a_group_takes_only_its_own_steps_and_names_for_what_is_committed(group: TransactionGroup) -> None:
    with pytest.raises(ValueError, match="'h'"):
        await group.commit(GroupStep("h", 1), "0", [])
    with pytest.raises(ValueError, match="'h'"):
        await group.abort(GroupStep("h", 1))
    with pytest.raises(ValueError, match="token"):
        await group.commit(await group.begin(), "", [])
    with pytest.raises(KafkaConfigurationError, match="name"):
        TransactionGroup("")
    await group.stop()
    await group.stop()
    with pytest.raises(IllegalStateError):
        await group.begin()
    with pytest.raises(IllegalStateError):
        await group.start()


async def test_brokers_without_transaction_groups_are_handled() -> None:
    async with FakeGroups(knows_groups=False) as broker, driver(broker) as group:
        with pytest.raises(NotSemelBrokerError, match="it is Apache Kafka or another Kafka"):
            await group.begin()
        with pytest.raises(NotSemelBrokerError, match="transaction groups need semel's own API"):
            await member(broker, GroupStep("g", 1)).start()
        assert broker.ids == {}, "no ordinary transactional id in its place"


# Operators


async def test_groups_are_described_and_aborted_by_name(broker: FakeGroups, group: TransactionGroup) -> None:
    step = await group.begin()
    async with Admin(bootstrap_servers=broker.address, **QUICK) as admin, member(broker, step) as a:
        prepared = await written(a, b"1")
        (found,) = await admin.describe_transaction_groups()
        assert (found.name, found.epoch, found.state, found.owner, found.is_open) == ("g", 1, "Open", "tests", True)
        assert [(each.transactional_id, each.is_open) for each in found.members] == [("g/a", True)]
        assert await admin.describe_transaction_groups(["g"]) == [found]
        with pytest.raises(TransactionalIdNotFound):
            await admin.describe_transaction_groups(["g", "nosuch"])
        with pytest.raises(TransactionalIdNotFound):
            await admin.abort_transaction_group("nosuch", "why not")
        assert "nosuch" not in broker.groups
        assert (await admin.abort_transaction_group("g", "the till is closed")).epoch == 1
        (after,) = await admin.describe_transaction_groups(["g"])
        assert (after.epoch, after.state) == (2, "Aborted")
        with pytest.raises(ProducerFenced, match="the till is closed"):
            await group.commit(step, "0", [prepared])
    assert broker.values(ABORTED) == [b"1"]
