"""Transactions of the Producer against a scripted coordinator, in both versions of the protocol."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from client.fake_broker import ANSWER_LOST, LOST, QUICK, SILENT
from client.fake_coordinator import (
    ABORTED,
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END,
    INIT,
    ONGOING,
    PRODUCE,
    TXN_OFFSETS,
    DoneBut,
    FakeCoordinator,
)
from semel import ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from semel.errors import (
    CommitFailedError,
    IllegalOperation,
    IllegalStateError,
    InvalidRecordError,
    InvalidTransactionTimeout,
    KafkaConfigurationError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerClosed,
    ProducerFenced,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
    TransactionHasFailed,
    TransactionWasCommitted,
    UnsupportedVersionError,
)
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnResponse
from semel_protocol.messages.k28_txn_offset_commit import TxnOffsetCommitResponse

T0 = TopicPartition("t", 0)


@pytest.fixture(params=[1, 2], ids=["version1", "version2"])
async def coordinator(request: pytest.FixtureRequest) -> AsyncIterator[FakeCoordinator]:
    async with FakeCoordinator(request.param, {"t": 1, "u": 3}) as broker:
        yield broker


def producer(broker: FakeCoordinator, **settings: Any) -> Producer:
    return Producer(bootstrap_servers=broker.address, **{"transactional_id": "x", **QUICK, **settings})


# The way it goes


async def test_committed_records_and_offsets_become_visible_together(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator) as made:
        for number in range(3):
            async with made.transaction():
                await made.send("t", b"%d" % number)
                await made.send_offsets_to_transaction({TopicPartition("in", 0): number + 1}, "g")
                assert coordinator.committed() == [b"%d" % n for n in range(number)]
            assert coordinator.committed() == [b"%d" % n for n in range(number + 1)]
            assert coordinator.committed_offsets == {("g", "in", 0): number + 1}


async def test_an_exception_aborts(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator) as made:

        async def work() -> None:
            async with made.transaction():
                await made.send_and_wait("t", b"gone")
                await made.send_offsets_to_transaction({T0: 1}, "g")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await work()
        async with made.transaction():
            await made.send("t", b"kept")
    assert coordinator.committed() == [b"kept"]
    assert coordinator.values(ABORTED) == [b"gone"]
    assert coordinator.committed_offsets == {}


async def test_buffered_records_of_an_aborted_transaction_are_not_sent(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator, linger_ms=10_000) as made:
        await made.begin_transaction()
        future = await made.send("t", b"never")
        await made.abort_transaction()
        with pytest.raises(TransactionAborted):
            await future
    assert coordinator.seen(PRODUCE) == coordinator.seen(END) == []


@pytest.mark.proves("empty-commit")
@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
async def test_an_empty_transaction_asks_for_nothing(coordinator: FakeCoordinator, end: str) -> None:
    async with producer(coordinator) as made:
        before = len(coordinator.requests)
        await made.begin_transaction()
        await getattr(made, end)()
        assert len(coordinator.requests) == before


async def test_version_1_enrols_each_partition_and_group_once(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator) as made, made.transaction():
        for number in range(6):
            await made.send_and_wait("u", b"%d" % number, partition=number % 3)
            await made.send_offsets_to_transaction({T0: number}, "g")
    added = [
        (topic.name, index)
        for request in coordinator.seen(ADD_PARTITIONS)
        for topic in request.v3_and_below_topics
        for index in topic.partitions
    ]
    expected = [("u", 0), ("u", 1), ("u", 2)] if coordinator.version == 1 else []
    assert added == expected
    assert len(coordinator.seen(ADD_OFFSETS)) == (1 if coordinator.version == 1 else 0)
    sent = {key: version for key, version, _ in coordinator.requests}
    newest = {1: (11, 4, 4), 2: (12, 5, 5)}[coordinator.version]
    assert (sent[PRODUCE], sent[END], sent[TXN_OFFSETS]) == newest


async def test_version_2_changes_the_epoch_with_every_transaction_version_1_never(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator) as made:
        for number in range(4):
            async with made.transaction():
                await made.send("t", b"%d" % number)
    epochs = [request.producer_epoch for request in coordinator.seen(END)]
    assert epochs == ([0, 0, 0, 0] if coordinator.version == 1 else [0, 1, 2, 3])


async def test_arguments_that_are_refused_leave_the_transaction_open(coordinator: FakeCoordinator) -> None:
    wrong_offsets: list[Any] = [
        {T0: "5"},
        {T0: 1 << 70},
        {T0: (5, "\ud800")},
        {T0: OffsetAndMetadata(5, b"m")},  # type: ignore[arg-type]
        {"t": 5},
        {("t", "0"): 5},
        [T0],
    ]
    async with producer(coordinator) as made:
        async with made.transaction():
            await made.send("t", b"before", headers=zip("a", (b"1",), strict=True))
            for arguments in ({"headers": 5}, {"headers": ["ab"]}, {"partition": "0"}, {"topic": b"t"}, {"key": 5}):
                with pytest.raises(TypeError):
                    await made.send(**{"topic": "t", "value": b"wrong", **arguments})
            for offsets in wrong_offsets:
                with pytest.raises((TypeError, ValueError), match="offsets"):
                    await made.send_offsets_to_transaction(offsets, "g")
            await made.send_offsets_to_transaction({T0: 5}, "g")
        assert coordinator.committed() == [b"before"]
    assert coordinator.committed_offsets == {("g", "t", 0): 5}


async def test_the_metadata_of_a_group_member_travels_along(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator) as made, made.transaction():
        await made.send_offsets_to_transaction({T0: (5, "note")}, ConsumerGroupMetadata("g", 7, "m", "i"))
    request = coordinator.seen(TXN_OFFSETS)[0]
    assert (request.generation_id, request.member_id, request.group_instance_id) == (7, "m", "i")
    assert request.topics[0].partitions[0].committed_metadata == "note"


# Calls that are refused


async def test_calls_out_of_order_are_refused_and_change_nothing(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator) as made:
        await made.init_transactions()
        for call in (made.commit_transaction, made.abort_transaction):
            with pytest.raises(IllegalStateError, match="between transactions"):
                await call()
        with pytest.raises(IllegalOperation, match="begin_transaction"):
            await made.send("t", b"v")
        with pytest.raises(IllegalOperation, match="begin_transaction"):
            await made.send_offsets_to_transaction({T0: 1}, "g")
        await made.begin_transaction()
        with pytest.raises(IllegalStateError, match="in a transaction"):
            await made.begin_transaction()
        for group in ("", ConsumerGroupMetadata(""), None, 5, ConsumerGroupMetadata("g", "1")):  # type: ignore[arg-type]
            with pytest.raises((TypeError, ValueError), match="group_id"):
                await made.send_offsets_to_transaction({T0: 1}, group)  # type: ignore[arg-type]
        await made.send("t", b"v")
        await made.commit_transaction()
    assert coordinator.committed() == [b"v"]


async def test_without_a_transactional_id_there_are_no_transactions(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator, transactional_id=None) as made:
        with pytest.raises(IllegalOperation, match="transactional_id"):
            await made.begin_transaction()
    for settings in ({"transactional_id": ""}, {"enable_idempotence": False}, {"acks": 1}):
        with pytest.raises(KafkaConfigurationError):
            producer(coordinator, **settings)


async def test_start_raises_a_final_error_of_the_coordinator(coordinator: FakeCoordinator) -> None:
    coordinator.trouble[INIT].append(int(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
    with pytest.raises(InvalidTransactionTimeout, match=r"transaction\.max\.timeout\.ms"):
        await producer(coordinator).start()


# Trouble on the way

FAULTS = [LOST, ANSWER_LOST, int(ErrorCode.NOT_COORDINATOR), int(ErrorCode.CONCURRENT_TRANSACTIONS)]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("api", [INIT, ADD_PARTITIONS, ADD_OFFSETS, TXN_OFFSETS, END])
async def test_each_request_is_retried_until_it_is_answered(coordinator: FakeCoordinator, api: int, fault: Any) -> None:
    coordinator.trouble[api] += [fault, fault]
    async with producer(coordinator) as made:
        for number in range(3):
            async with made.transaction():
                await made.send("t", b"%d" % number)
                await made.send_offsets_to_transaction({T0: number + 1}, "g")
    assert coordinator.committed() == [b"0", b"1", b"2"]
    assert coordinator.committed_offsets == {("g", "t", 0): 3}


@pytest.mark.parametrize("api", [ADD_PARTITIONS, TXN_OFFSETS])
async def test_partitions_left_out_of_an_answer_are_asked_for_again(coordinator: FakeCoordinator, api: int) -> None:
    if api == ADD_PARTITIONS and coordinator.version == 2:
        pytest.skip("version 2 has no use for it")
    answer, said = coordinator.answers[api], 0

    async def mute(request: Any) -> Any:
        nonlocal said
        said += 1
        if said > 2:
            return await answer(request)
        return AddPartitionsToTxnResponse() if api == ADD_PARTITIONS else TxnOffsetCommitResponse()

    coordinator.answers[api] = mute
    async with producer(coordinator) as made:
        async with made.transaction():
            await made.send("t", b"0")
            await made.send_offsets_to_transaction({T0: 1}, "g")
        assert said == 3
        assert coordinator.committed() == [b"0"]
        assert coordinator.committed_offsets == {("g", "t", 0): 1}


async def test_after_an_unanswered_request_version_1_takes_a_new_epoch(coordinator: FakeCoordinator) -> None:
    coordinator.trouble[END].append(ANSWER_LOST)
    async with producer(coordinator) as made:
        for number in range(2):
            async with made.transaction():
                await made.send("t", b"%d" % number)
    # Otherwise the first EndTxn, were it only late, could end the second transaction.
    assert [request.producer_epoch for request in coordinator.seen(END)] == [0, 0, 1]
    assert coordinator.committed() == [b"0", b"1"]


@pytest.mark.parametrize("fault", [LOST, ANSWER_LOST])
async def test_a_second_call_returns_the_outcome_of_a_commit_that_timed_out(
    coordinator: FakeCoordinator, fault: str
) -> None:
    coordinator.trouble[END] += [fault] * 3
    async with producer(coordinator, max_block_ms=100, retry_backoff_ms=100, retry_backoff_max_ms=100) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"v")
        with pytest.raises(KafkaTimeoutError, match="call commit_transaction"):
            await made.commit_transaction()
        with pytest.raises(IllegalStateError, match="outcome of the last commit is not known"):
            await made.begin_transaction()
        for _ in range(100):
            try:
                await made.commit_transaction()
                break
            except KafkaTimeoutError:
                pass
        assert coordinator.committed() == [b"v"]
        async with made.transaction():
            await made.send("t", b"w")
    assert coordinator.committed() == [b"v", b"w"]


async def test_abort_after_a_commit_that_never_arrived_aborts(coordinator: FakeCoordinator) -> None:
    coordinator.trouble[END] += [LOST] * 2
    async with producer(coordinator, max_block_ms=150, retry_backoff_ms=2000, retry_backoff_max_ms=2000) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"gone")
        with pytest.raises(KafkaTimeoutError):
            await made.commit_transaction()
        coordinator.trouble[END].clear()
        await made.abort_transaction()
        assert coordinator.values(ABORTED) == [b"gone"]
        async with made.transaction():
            await made.send("t", b"kept")
    assert coordinator.committed() == [b"kept"]


async def test_abort_after_a_commit_that_did_arrive_says_so(coordinator: FakeCoordinator) -> None:
    coordinator.trouble[END] += [ANSWER_LOST] * 1 + [LOST]
    async with producer(coordinator, max_block_ms=150, retry_backoff_ms=2000, retry_backoff_max_ms=2000) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"v")
        with pytest.raises(KafkaTimeoutError):
            await made.commit_transaction()
        coordinator.trouble[END].clear()
        with pytest.raises(TransactionWasCommitted, match="Do not repeat this transaction"):
            await made.abort_transaction()
        async with made.transaction():
            await made.send("t", b"w")
    assert coordinator.committed() == [b"v", b"w"]


async def test_a_cancelled_commit_continues_and_its_outcome_is_returned_later(coordinator: FakeCoordinator) -> None:
    coordinator.trouble[END] += [LOST]
    async with producer(coordinator) as made:
        await made.begin_transaction()
        await made.send("t", b"v")
        task = asyncio.create_task(made.commit_transaction())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await made.commit_transaction()
    assert coordinator.committed() == [b"v"]


async def test_all_callers_of_a_commit_get_the_same_outcome(coordinator: FakeCoordinator) -> None:
    coordinator.trouble[END] += [ANSWER_LOST]
    async with producer(coordinator) as made:
        await made.begin_transaction()
        await made.send("t", b"v")
        await asyncio.gather(*[made.commit_transaction() for _ in range(3)])
    assert coordinator.committed() == [b"v"]


async def test_an_abort_by_another_task_fails_the_commit_that_waits(coordinator: FakeCoordinator) -> None:
    coordinator.trouble[END] += [LOST]
    async with producer(coordinator, retry_backoff_ms=2000, retry_backoff_max_ms=2000) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"v")
        committing = asyncio.create_task(made.commit_transaction())
        while not coordinator.seen(END):
            await asyncio.sleep(0.001)
        await asyncio.gather(made.abort_transaction(), made.abort_transaction())
        with pytest.raises(TransactionAborted, match=r"abort_transaction\(\)"):
            await committing
    assert coordinator.values(ABORTED) == [b"v"]


async def test_a_commit_whose_outcome_is_unknown_at_the_stop_says_so(coordinator: FakeCoordinator) -> None:
    coordinator.trouble[END] += [LOST] * 1000
    made = producer(coordinator, request_timeout_ms=100)
    await made.start()
    await made.begin_transaction()
    await made.send_and_wait("t", b"v")
    committing = asyncio.create_task(made.commit_transaction())
    await asyncio.sleep(0)
    await made.stop()
    with pytest.raises(ProducerClosed, match="before the outcome"):
        await committing


# A part fails


async def test_a_refused_record_makes_the_commit_fail_and_the_next_transaction_works(
    coordinator: FakeCoordinator,
) -> None:
    async with producer(coordinator) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"first")
        coordinator.faults.append(int(ErrorCode.INVALID_RECORD))
        future = await made.send("t", b"bad")
        with pytest.raises(TransactionHasFailed, match=r"INVALID_RECORD.*abort_transaction\(\)") as caught:
            await made.commit_transaction()
        assert isinstance(caught.value.__cause__, InvalidRecordError)
        with pytest.raises(InvalidRecordError):
            await future
        for call in (made.send("t", b"v"), made.commit_transaction(), made.begin_transaction()):
            with pytest.raises(TransactionHasFailed):
                await call
        await made.abort_transaction()
        async with made.transaction():
            await made.send("t", b"kept")
    assert coordinator.committed() == [b"kept"]


async def test_the_context_manager_aborts_a_failed_transaction_and_raises_the_reason(
    coordinator: FakeCoordinator,
) -> None:
    async with producer(coordinator) as made:
        coordinator.max_batch_bytes = 200
        with pytest.raises(TransactionHasFailed, match="MESSAGE_TOO_LARGE"):
            async with made.transaction():
                await made.send("t", bytes(1000))
        async with made.transaction():
            await made.send("t", b"kept")
        with pytest.raises(MessageSizeTooLargeError):
            async with made.transaction():
                await made.send_and_wait("t", bytes(1000))
    assert coordinator.committed() == [b"kept"]


async def test_a_failed_record_whose_future_is_ignored_fails_the_commit(
    coordinator: FakeCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    async with producer(coordinator) as made:
        coordinator.faults.append(int(ErrorCode.INVALID_RECORD))
        with pytest.raises(TransactionHasFailed):
            async with made.transaction():
                await made.send("t", b"bad")
    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize(
    "code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH]
)
async def test_broken_sequences_end_with_the_transaction(coordinator: FakeCoordinator, code: ErrorCode) -> None:
    async with producer(coordinator) as made:
        async with made.transaction():
            await made.send("t", b"0")
        coordinator.faults.append(int(code))
        with pytest.raises(TransactionHasFailed, match=code.name):
            async with made.transaction():
                await made.send("t", b"lost")
        async with made.transaction():
            await made.send("t", b"1")
    assert coordinator.committed() == [b"0", b"1"]


async def test_a_record_that_cannot_be_stored_in_time_fails_the_transaction(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator, request_timeout_ms=100, delivery_timeout_ms=100) as made:
        coordinator.faults.append(SILENT)
        with pytest.raises(TransactionHasFailed, match="delivery_timeout_ms"):
            async with made.transaction():
                await made.send("t", b"late")
        async with made.transaction():
            await made.send("t", b"kept")
    assert coordinator.committed() == [b"kept"]


async def test_an_abort_waits_for_requests_in_flight(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator, request_timeout_ms=100) as made:
        await made.begin_transaction()
        coordinator.faults.append(SILENT)
        await made.send("t", b"gone")
        while not coordinator.seen(PRODUCE):
            await asyncio.sleep(0.001)
        await made.abort_transaction()
        async with made.transaction():
            await made.send("t", b"kept")
    assert coordinator.values(ABORTED) == [b"gone"]
    assert coordinator.committed() == [b"kept"]


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
)
async def test_a_rebalanced_group_fails_the_transaction_not_the_producer(
    coordinator: FakeCoordinator, code: ErrorCode
) -> None:
    async with producer(coordinator) as made:
        coordinator.trouble[TXN_OFFSETS].append(int(code))
        with pytest.raises(CommitFailedError):
            async with made.transaction():
                await made.send_offsets_to_transaction({T0: 1}, "g")
        async with made.transaction():
            await made.send("t", b"kept")
    assert coordinator.committed() == [b"kept"]
    assert coordinator.committed_offsets == {}


async def test_a_commit_waits_for_offsets_whose_caller_was_cancelled(coordinator: FakeCoordinator) -> None:
    coordinator.trouble[TXN_OFFSETS] += [LOST] * 3
    async with producer(coordinator) as made:
        await made.begin_transaction()
        task = asyncio.create_task(made.send_offsets_to_transaction({T0: 9}, "g"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await made.commit_transaction()
    assert coordinator.committed_offsets == {("g", "t", 0): 9}


async def test_a_topic_that_may_not_be_written_fails_the_transaction_at_once() -> None:
    async with FakeCoordinator(1) as coordinator, producer(coordinator) as made:
        coordinator.trouble[ADD_PARTITIONS].append(int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        with pytest.raises(TransactionHasFailed, match="TOPIC_AUTHORIZATION_FAILED"):
            async with made.transaction():
                await made.send_and_wait("t", b"v")
        async with made.transaction():
            await made.send("t", b"kept")
        assert coordinator.committed() == [b"kept"]


async def test_an_expired_transactional_id_fails_the_transaction_and_is_renewed(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator) as made:
        async with made.transaction():
            await made.send("t", b"0")
        del coordinator.ids["x"]
        with pytest.raises((TransactionHasFailed, CommitFailedError)):
            async with made.transaction():
                await made.send("t", b"gone")
        async with made.transaction():
            await made.send("t", b"1")
    assert coordinator.committed() == [b"0", b"1"]


async def test_a_broker_too_old_for_the_cluster_fails_the_transaction() -> None:
    async with FakeCoordinator(2) as coordinator:
        coordinator.versions[PRODUCE] = (0, 11)
        async with producer(coordinator) as made:
            with pytest.raises(TransactionHasFailed, match=r"transaction\.version=2 but does not serve Produce"):
                async with made.transaction():
                    await made.send("t", b"v")
            with pytest.raises(TransactionHasFailed):
                async with made.transaction():
                    await made.send("t", b"v")


async def test_a_broker_too_old_for_group_metadata_says_what_to_do_instead() -> None:
    async with FakeCoordinator(1) as coordinator:
        coordinator.versions[TXN_OFFSETS] = (0, 2)
        async with producer(coordinator) as made:
            with pytest.raises(UnsupportedVersionError, match="pass the group_id alone"):
                async with made.transaction():
                    await made.send_offsets_to_transaction({T0: 1}, ConsumerGroupMetadata("g", 1, "m"))
            async with made.transaction():
                await made.send_offsets_to_transaction({T0: 2}, "g")
        assert coordinator.committed_offsets == {("g", "t", 0): 2}


async def test_an_abort_that_is_refused_for_good_ends_the_producer(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"v")
        coordinator.trouble[END].append(int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        for _ in range(2):
            with pytest.raises(TransactionalIdAuthorizationFailed, match=r"semel acl add .* --transactional-id x"):
                await made.abort_transaction()


# Fencing

STORY = "epoch 0 gave way to epoch 1 because a new producer with this transactional.id was initialised"


@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
async def test_a_fenced_producer_names_the_other_client_and_stays_fenced(
    coordinator: FakeCoordinator, end: str
) -> None:
    async with producer(coordinator) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"zombie")
        coordinator.fence("x", STORY)
        with pytest.raises(ProducerFenced, match=STORY):
            await getattr(made, end)()
        for _ in range(2):
            for call in (
                made.send("t", b"v"),
                made.begin_transaction(),
                made.commit_transaction(),
                made.abort_transaction(),
                made.send_offsets_to_transaction({T0: 1}, "g"),
            ):
                with pytest.raises(ProducerFenced, match=STORY):
                    await call
    assert coordinator.values(ABORTED) == [b"zombie"]
    assert coordinator.values(ONGOING) == []


async def test_a_fenced_producer_that_still_sends_gets_the_reason_on_commit(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"zombie")
        coordinator.fence("x", STORY)
        await made.send("t", b"zombie too")
        with pytest.raises(ProducerFenced, match=STORY):
            await made.commit_transaction()
    assert coordinator.values(ABORTED) == [b"zombie"]


@pytest.mark.proves("commit-with-an-unknown-outcome")
@pytest.mark.parametrize(
    "trouble",
    [
        ANSWER_LOST,
        DoneBut(ErrorCode.NOT_COORDINATOR),
        DoneBut(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        DoneBut(ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_a_producer_fenced_during_its_commit_says_that_the_outcome_is_unknown(
    coordinator: FakeCoordinator, trouble: Any
) -> None:
    coordinator.trouble[END].append(trouble)
    async with producer(coordinator, retry_backoff_ms=100, retry_backoff_max_ms=100) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"v")
        committing = asyncio.create_task(made.commit_transaction())
        while not coordinator.committed():
            await asyncio.sleep(0.001)
        coordinator.fence("x", STORY)
        for call in (committing, made.begin_transaction()):
            with pytest.raises(ProducerFenced, match=f"{STORY}.*may be committed: look for"):
                await call


async def test_a_producer_fenced_before_its_commit_was_sent_does_not_say_unknown(
    coordinator: FakeCoordinator,
) -> None:
    coordinator.trouble[END].append(int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    async with producer(coordinator, retry_backoff_ms=100, retry_backoff_max_ms=100) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"v")
        committing = asyncio.create_task(made.commit_transaction())
        while coordinator.trouble[END]:
            await asyncio.sleep(0.001)
        coordinator.fence("x", STORY)
        with pytest.raises(ProducerFenced, match=STORY) as caught:
            await committing
    assert "not known" not in str(caught.value)


async def test_an_abort_after_a_commit_of_unknown_outcome_reports_that_commit(
    coordinator: FakeCoordinator,
) -> None:
    coordinator.trouble[END].append(ANSWER_LOST)
    async with producer(coordinator, retry_backoff_ms=2000, retry_backoff_max_ms=2000) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"v")
        committing = asyncio.create_task(made.commit_transaction())
        while not coordinator.committed():
            await asyncio.sleep(0.001)
        coordinator.fence("x", STORY)
        with pytest.raises(ProducerFenced, match=f"{STORY}.*may be committed: look for"):
            await made.abort_transaction()
        with pytest.raises(TransactionAborted):
            await committing


async def test_a_second_producer_fences_the_first(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator) as old, producer(coordinator) as new:
        with pytest.raises(ProducerFenced, match=r"epoch 1 has it now.*was started.*no fence ledger"):
            async with old.transaction():
                await old.send("t", b"old")
        async with new.transaction():
            await new.send("t", b"new")
    assert coordinator.committed() == [b"new"]


async def test_a_transaction_that_the_coordinator_has_aborted_says_so_and_the_producer_continues(
    coordinator: FakeCoordinator,
) -> None:
    async with producer(coordinator) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"late")
        coordinator.time_out("x")
        reason = r"INVALID_TXN_STATE.*no such transaction open.*transaction_timeout_ms=60000\. Call abort_transaction"
        with pytest.raises(TransactionHasFailed, match=reason):
            await made.commit_transaction()
        await made.abort_transaction()
        async with made.transaction():
            await made.send("t", b"next")
    assert coordinator.committed() == [b"next"]


# The end


async def test_stop_aborts_what_is_open(coordinator: FakeCoordinator) -> None:
    async with producer(coordinator) as made:
        await made.begin_transaction()
        await made.send_and_wait("t", b"open")
    assert coordinator.values(ABORTED) == [b"open"]


async def test_stop_waits_for_a_commit_in_progress(coordinator: FakeCoordinator) -> None:
    coordinator.trouble[END] += [LOST] * 3
    async with producer(coordinator) as made:
        await made.begin_transaction()
        await made.send("t", b"v")
        task = asyncio.create_task(made.commit_transaction())
        await asyncio.sleep(0)
        task.cancel()
    assert coordinator.committed() == [b"v"]
