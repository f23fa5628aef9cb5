"""The coordinator over a disk in memory: held requests, restarts in every state, power loss, time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from broker.txn.transaction_broker import TIMEOUT_MS, TransactionBroker
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.txn.model.identity import ClientName, ProducerIdentity
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition
from semel_protocol.records import Record, build_batch
from semel_storage.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE

OpenOffice = Callable[..., "asyncio.Future[TransactionBroker]"]


async def quick_broker(brokers: list[TransactionBroker], **settings: str) -> TransactionBroker:
    sweep = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "10"}
    brokers.append(await TransactionBroker(**{**sweep, **settings}).open())
    return brokers[-1]


async def is_held(task: asyncio.Task[object]) -> bool:
    await asyncio.sleep(0.03)
    return not task.done()


# --- the course of a transaction ---


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
async def test_every_partition_has_its_marker_when_the_end_is_answered(
    one: TransactionBroker, commit: bool, version: int
) -> None:
    mine = await one.init()
    await one.begin(mine, version=version)
    assert one.is_open(0)
    after = await one.end(mine, commit, version=version)
    assert after == ProducerIdentity(mine.producer_id, 1 if version else 0)
    for index in (0, 1):
        assert one.markers(index) == [(after.epoch, "COMMIT" if commit else "ABORT")]
        assert not one.is_open(index)
    assert await one.state() == ("CompleteCommit" if commit else "CompleteAbort")


async def test_the_group_coordinator_gets_the_outcome_of_transactional_offsets(one: TransactionBroker) -> None:
    mine = await one.init()
    await one.add(mine, partitions=[await one.transactions.partition_of_group("g")])
    await one.end(mine, False)
    topic = one.topics.get(CONSUMER_OFFSETS)
    assert topic is not None
    index = coordinator_partition("g", topic.partition_count)
    assert one.ended == [(index, mine.producer_id, mine.epoch, False)]


async def test_two_instances_at_once_get_two_epochs(one: TransactionBroker) -> None:
    first = await one.init()
    got = await asyncio.gather(*(one.init() for _ in range(3)))
    assert [each.epoch for each in got] == [1, 2, 3]
    assert {each.producer_id for each in got} == {first.producer_id}


@pytest.mark.proves("marker-written-twice")
async def test_marker_retried_after_its_reply_was_lost(one: TransactionBroker) -> None:
    mine = await one.init()
    await one.begin(mine)
    await one.end(mine)
    assert await one.end(mine) == mine
    assert one.markers() == [(0, "COMMIT")]


async def test_a_deleted_topic_does_not_hold_the_end_up(one: TransactionBroker) -> None:
    mine = await one.init()
    await one.topics.create(NewTopic(name="gone", partitions=1))
    await one.add(mine, partitions=[("gone", 0), ("out", 0)])
    await one.topics.delete("gone")
    async with asyncio.timeout(5):
        await one.end(mine)
    assert await one.state() == "CompleteCommit"


# --- held, not refused ---


@pytest.mark.proves("init-producer-id")
async def test_a_request_that_meets_a_transaction_being_ended_waits(one: TransactionBroker) -> None:
    mine = await one.init()
    await one.begin(mine)
    one.hold_markers()
    ending = asyncio.create_task(one.end(mine))
    assert await is_held(ending)
    assert await one.state() == "PrepareCommit"
    retry = asyncio.create_task(one.end(mine))
    adding = asyncio.create_task(one.add(mine))
    taking = asyncio.create_task(one.init())
    assert await is_held(taking)
    assert not retry.done()
    assert not adding.done()
    one.release_markers()
    assert await ending == await retry == mine
    await adding
    assert (await taking).epoch == 2, "the transaction that was begun meanwhile is fenced and aborted"
    assert one.markers() == [(0, "COMMIT"), (1, "ABORT")]


async def test_no_request_waits_without_limit(brokers: list[TransactionBroker]) -> None:
    brokers.append(one := await TransactionBroker(hold_ms_max=20).open())
    mine = await one.init()
    await one.begin(mine)
    one.hold_markers()
    assert await one.end(mine) == mine, "the decision stands"
    with pytest.raises(KafkaError) as refused:
        await one.init()
    assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    one.release_markers()
    await one.until_state("CompleteCommit")
    assert (await one.init()).epoch == 1


async def test_a_new_instance_waits_for_the_abort_of_the_old_ones_transaction(one: TransactionBroker) -> None:
    old = await one.init()
    await one.begin(old)
    one.hold_markers()
    taking = asyncio.create_task(one.init())
    assert await is_held(taking)
    one.release_markers()
    new = await taking
    assert new.epoch == 2
    assert one.markers() == [(1, "ABORT")]
    with pytest.raises(KafkaError, match=r"client 'worker' at 10\.0\.0\.1") as fenced:
        await one.end(old)
    assert fenced.value.code is ErrorCode.PRODUCER_FENCED
    (line,) = [line for line in one.log.of("producer_fenced") if line["old_epoch"] == 0]
    assert (line["reason"], line["new_epoch"], line["transactional_id"]) == ("new_instance", 1, "t")


async def test_closing_answers_requests_that_wait(one: TransactionBroker) -> None:
    mine = await one.init()
    await one.begin(mine)
    one.hold_markers()
    ending = asyncio.create_task(one.end(mine))
    taking = asyncio.create_task(one.init())
    assert await is_held(taking)
    await one.transactions.close()
    assert await ending == mine, "it is decided"
    with pytest.raises(KafkaError) as refused:
        await taking
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.proves("init-producer-id-amid-a-stop")
@pytest.mark.parametrize("closes", [False, True])
async def test_a_new_instance_is_refused_when_the_abort_takes_too_long(
    brokers: list[TransactionBroker], closes: bool
) -> None:
    brokers.append(one := await TransactionBroker(hold_ms_max=20_000 if closes else 20).open())
    await one.begin(await one.init())
    one.hold_markers()
    taking = asyncio.create_task(one.init())
    if closes:
        assert await is_held(taking)
        await one.transactions.close()
    with pytest.raises(KafkaError) as refused:
        await taking
    wanted = ErrorCode.COORDINATOR_NOT_AVAILABLE if closes else ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused.value.code is wanted


async def test_requests_wait_until_the_stored_transactions_are_read(one: TransactionBroker) -> None:
    mine = await one.init()
    await one.close()
    await one.open(wait=False)
    with pytest.raises(KafkaError) as refused:
        one.transactions.verify("t", mine.producer_id, 0, "out", 0)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await one.init()).epoch == 1


# --- restarts ---


@pytest.mark.parametrize("how", ["restart", "lose_power"])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_decision_outlives_the_broker_that_made_it(one: TransactionBroker, how: str, commit: bool) -> None:
    mine = await one.init()
    await one.begin(mine)
    one.hold_markers()
    ending = asyncio.create_task(one.end(mine, commit))
    await one.until_state("PrepareCommit" if commit else "PrepareAbort")
    await getattr(one, how)()
    ending.cancel()
    await one.until_state("CompleteCommit" if commit else "CompleteAbort")
    for index in (0, 1):
        assert one.markers(index) == [(0, "COMMIT" if commit else "ABORT")]
        assert not one.is_open(index)
    assert await one.end(mine, commit) == mine


@pytest.mark.proves("init-producer-id")
@pytest.mark.parametrize("how", ["restart", "lose_power"])
async def test_restart_in_the_states_that_wait_for_the_producer(one: TransactionBroker, how: str) -> None:
    empty, ongoing, committed, aborted = [await one.init(name) for name in ("empty", "ongoing", "commit", "abort")]
    await one.begin(ongoing, "ongoing")
    for mine, name in ((committed, "commit"), (aborted, "abort")):
        await one.begin(mine, name)
        await one.end(mine, name == "commit", name)
    await getattr(one, how)()
    states = {txn.transactional_id: txn.state.label for txn in await one.listing()}
    last = {"commit": "CompleteCommit", "abort": "CompleteAbort"}
    assert states == {"empty": "Empty", "ongoing": "Ongoing"} | last
    await one.end(ongoing, True, "ongoing")
    assert (await one.init("empty")).epoch == empty.epoch + 1
    assert await one.end(committed, True, "commit") == committed


async def test_an_answer_lost_with_the_broker_is_found_again(one: TransactionBroker) -> None:
    mine = await one.init()
    await one.begin(mine, version=2)
    bumped = await one.end(mine, version=2)
    await one.restart()
    assert await one.end(mine, version=2) == bumped
    assert await one.init(have=mine) == bumped, "KIP-360: it may also ask for its epoch"


@pytest.mark.parametrize("seed", range(12))
async def test_power_loss_at_any_moment_tears_no_transaction(brokers: list[TransactionBroker], seed: int) -> None:
    rng = Random(seed)
    brokers.append(one := await TransactionBroker().open())
    mine = await one.init()
    await one.begin(mine)
    ending = asyncio.create_task(one.end(mine, True))
    for _ in range(rng.randrange(12)):
        await asyncio.sleep(0)
    answered = ending.done()
    await one.lose_power(rng)
    ending.cancel()
    state = await one.state()
    if state == "Ongoing":
        assert not answered
        await one.end(mine, False)
        assert (one.markers(0), one.markers(1)) == ([(0, "ABORT")],) * 2
    else:
        await one.until_state("CompleteCommit")
        assert {kind for index in (0, 1) for _, kind in one.markers(index)} == {"COMMIT"}
    assert not one.is_open(0)
    assert not one.is_open(1)


async def test_the_ledger_outlives_a_restart(one: TransactionBroker) -> None:
    await one.init()
    await one.init()
    before = one.transactions.fences("t")
    await one.restart()
    assert one.transactions.fences("t") == before
    assert [fence.by.client_id for fence in before] == ["worker"]


@pytest.mark.proves("failed-fence")
async def test_a_failed_append_leaves_no_trace(one: TransactionBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = await one.init()
    await one.begin(mine)
    partition = one.topics.partition(TRANSACTION_STATE, coordinator_partition("t", 50))

    def refuse(*_: object, **__: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")

    with monkeypatch.context() as patch:
        patch.setattr(partition, "append", refuse)
        for _ in range(3):
            with pytest.raises(KafkaError, match="could not store") as failed:
                await one.init()
            assert failed.value.code is ErrorCode.NOT_COORDINATOR
    assert await one.state() == "Ongoing"
    assert (await one.init()).epoch == 2


# --- time ---


@pytest.mark.parametrize("version", [0, 2])
async def test_a_transaction_open_for_too_long_is_aborted_and_its_producers_error_says_why(
    brokers: list[TransactionBroker], version: int
) -> None:
    one = await quick_broker(brokers)
    mine = await one.init()
    await one.begin(mine, version=version)
    one.wall_ms += TIMEOUT_MS
    await asyncio.sleep(0.05)
    assert await one.state() == "Ongoing"
    one.wall_ms += 1
    await one.until_state("CompleteAbort")
    assert one.markers() == [(1, "ABORT")]
    with pytest.raises(KafkaError, match=r"open for 60001 ms, allowed were 60000 ms") as fenced:
        await one.end(mine, version=version)
    assert fenced.value.code is ErrorCode.PRODUCER_FENCED
    assert one.log.of("producer_fenced")[-1]["by"] == "broker 0"


async def test_a_commit_that_came_first_beats_the_sweep(brokers: list[TransactionBroker]) -> None:
    one = await quick_broker(brokers)
    mine = await one.init()
    await one.begin(mine)
    one.hold_markers()
    ending = asyncio.create_task(one.end(mine))
    await one.until_state("PrepareCommit")
    one.wall_ms += 10 * TIMEOUT_MS
    assert await is_held(ending)
    one.release_markers()
    assert await ending == mine
    assert one.markers() == [(0, "COMMIT")]


async def test_kip939_a_prepared_transaction_outlives_timeouts_and_restarts(brokers: list[TransactionBroker]) -> None:
    one = await quick_broker(brokers, transaction_two_phase_commit_enable="true")
    mine = await one.init(enable_2pc=True)
    await one.begin(mine)
    one.wall_ms += 10**9
    await asyncio.sleep(0.05)
    await one.restart()
    step = await one.transactions.init_producer_id("t", 1, enable_2pc=True, keep_prepared=True)
    assert step.kept == mine
    assert step.answer is not None
    await one.end(step.answer, True)
    assert one.markers() == [(1, "COMMIT")]
    assert not one.is_open(0)


@pytest.mark.proves("expired-transactional-id")
async def test_an_unused_id_expires_for_good_and_its_producers_error_says_so(brokers: list[TransactionBroker]) -> None:
    one = await quick_broker(
        brokers,
        transactional_id_expiration_ms="1000",
        transaction_remove_expired_transaction_cleanup_interval_ms="10",
    )
    mine = await one.init()
    ongoing = await one.init("busy")
    await one.begin(ongoing, "busy")
    one.wall_ms += 1_000
    async with asyncio.timeout(5):
        while one.transactions.fences("t")[-1:] == ():
            await asyncio.sleep(0.005)
    with pytest.raises(KafkaError, match=r"transactional\.id\.expiration\.ms") as refused:
        await one.add(mine)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    with pytest.raises(KafkaError, match=r"no transactional\.id"):
        await one.state()
    assert one.log.of("producer_fenced")[-1]["reason"] == "expired"
    await one.restart()
    assert [txn.transactional_id for txn in await one.listing()] == ["busy"]
    assert (await one.init()).epoch == 0


# --- hanging transactions ---


async def test_an_operator_aborts_only_transactions_without_a_coordinator(one: TransactionBroker) -> None:
    operator = ClientName("admin", "h")
    mine = await one.init()
    await one.begin(mine)
    with pytest.raises(KafkaError, match="not hanging: t is in Ongoing"):
        await one.transactions.abort_hanging(mine, ("out", 0), 0, operator)
    await one.end(mine)
    with pytest.raises(KafkaError, match="has none open here"):
        await one.transactions.abort_hanging(mine, ("out", 0), 0, operator)
    stray = bytearray(build_batch([Record(0, 1, None, b"x")], producer_id=77, producer_epoch=1, base_sequence=0,
                                  is_transactional=True))  # fmt: skip
    one.topics.partition("out", 0).append(stray, header=read_header(stray))
    assert one.is_open(0)
    await one.transactions.abort_hanging(ProducerIdentity(77, 1), ("out", 0), -1, operator)
    assert not one.is_open(0)
    assert one.log.of("hanging_transaction_aborted")[0]["by"] == str(operator)
