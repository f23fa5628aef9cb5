"""The coordinator over a disk in memory: held requests, restarts in every state, power loss, time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from broker.txn.office import TIMEOUT_MS, Office
from semel_broker.cluster.topic_plan import NewTopic
from semel_broker.txn.model.identity import ClientName, ProducerIdentity
from semel_protocol.batch import read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition
from semel_protocol.records import Record, build_batch
from semel_storage.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE

OpenOffice = Callable[..., "asyncio.Future[Office]"]


async def quick_office(offices: list[Office], **settings: str) -> Office:
    sweep = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "10"}
    offices.append(await Office(**{**sweep, **settings}).open())
    return offices[-1]


async def is_held(task: asyncio.Task[object]) -> bool:
    await asyncio.sleep(0.03)
    return not task.done()


# --- the course of a transaction ---


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
async def test_every_partition_has_its_marker_when_the_end_is_answered(
    office: Office, commit: bool, version: int
) -> None:
    mine = await office.init()
    await office.begin(mine, version=version)
    assert office.is_open(0)
    after = await office.end(mine, commit, version=version)
    assert after == ProducerIdentity(mine.producer_id, 1 if version else 0)
    for index in (0, 1):
        assert office.markers(index) == [(after.epoch, "COMMIT" if commit else "ABORT")]
        assert not office.is_open(index)
    assert await office.state() == ("CompleteCommit" if commit else "CompleteAbort")


async def test_groups_are_told_how_the_transaction_of_their_offsets_ended(office: Office) -> None:
    mine = await office.init()
    await office.add(mine, partitions=[await office.transactions.partition_of_group("g")])
    await office.end(mine, False)
    topic = office.topics.get(CONSUMER_OFFSETS)
    assert topic is not None
    index = coordinator_partition("g", topic.partition_count)
    assert office.ended == [(index, mine.producer_id, mine.epoch, False)]


async def test_two_instances_at_once_get_two_epochs(office: Office) -> None:
    first = await office.init()
    got = await asyncio.gather(*(office.init() for _ in range(3)))
    assert [each.epoch for each in got] == [1, 2, 3]
    assert {each.producer_id for each in got} == {first.producer_id}


async def test_marker_retried_after_its_reply_was_lost(office: Office) -> None:
    mine = await office.init()
    await office.begin(mine)
    await office.end(mine)
    assert await office.end(mine) == mine
    assert office.markers() == [(0, "COMMIT")]


async def test_a_deleted_topic_does_not_hold_the_end_up(office: Office) -> None:
    mine = await office.init()
    await office.topics.create(NewTopic(name="gone", partitions=1))
    await office.add(mine, partitions=[("gone", 0), ("out", 0)])
    await office.topics.delete("gone")
    async with asyncio.timeout(5):
        await office.end(mine)
    assert await office.state() == "CompleteCommit"


# --- held, not refused ---


async def test_what_meets_a_transaction_being_ended_is_held_not_refused(office: Office) -> None:
    mine = await office.init()
    await office.begin(mine)
    office.hold_markers()
    ending = asyncio.create_task(office.end(mine))
    assert await is_held(ending)
    assert await office.state() == "PrepareCommit"
    retry = asyncio.create_task(office.end(mine))
    adding = asyncio.create_task(office.add(mine))
    taking = asyncio.create_task(office.init())
    assert await is_held(taking)
    assert not retry.done()
    assert not adding.done()
    office.release_markers()
    assert await ending == await retry == mine
    await adding
    assert (await taking).epoch == 2, "the transaction that was begun meanwhile is fenced and aborted"
    assert office.markers() == [(0, "COMMIT"), (1, "ABORT")]


async def test_nobody_is_held_for_ever(offices: list[Office]) -> None:
    offices.append(office := await Office(hold_ms_max=20).open())
    mine = await office.init()
    await office.begin(mine)
    office.hold_markers()
    assert await office.end(mine) == mine, "the decision stands"
    with pytest.raises(KafkaError) as refused:
        await office.init()
    assert refused.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
    office.release_markers()
    await office.until_state("CompleteCommit")
    assert (await office.init()).epoch == 1


async def test_a_new_instance_waits_for_the_abort_of_what_the_old_one_left(office: Office) -> None:
    old = await office.init()
    await office.begin(old)
    office.hold_markers()
    taking = asyncio.create_task(office.init())
    assert await is_held(taking)
    office.release_markers()
    new = await taking
    assert new.epoch == 2
    assert office.markers() == [(1, "ABORT")]
    with pytest.raises(KafkaError, match=r"client 'worker' at 10\.0\.0\.1") as fenced:
        await office.end(old)
    assert fenced.value.code is ErrorCode.PRODUCER_FENCED
    (line,) = [line for line in office.log.of("producer_fenced") if line["old_epoch"] == 0]
    assert (line["reason"], line["new_epoch"], line["transactional_id"]) == ("new_instance", 1, "t")


async def test_closing_lets_go_of_whoever_is_held(office: Office) -> None:
    mine = await office.init()
    await office.begin(mine)
    office.hold_markers()
    ending = asyncio.create_task(office.end(mine))
    taking = asyncio.create_task(office.init())
    assert await is_held(taking)
    await office.transactions.close()
    assert await ending == mine, "it is decided"
    with pytest.raises(KafkaError) as refused:
        await taking
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("closes", [False, True])
async def test_who_takes_over_is_refused_when_the_abort_takes_too_long(offices: list[Office], closes: bool) -> None:
    offices.append(office := await Office(hold_ms_max=20_000 if closes else 20).open())
    await office.begin(await office.init())
    office.hold_markers()
    taking = asyncio.create_task(office.init())
    if closes:
        assert await is_held(taking)
        await office.transactions.close()
    with pytest.raises(KafkaError) as refused:
        await taking
    wanted = ErrorCode.COORDINATOR_NOT_AVAILABLE if closes else ErrorCode.CONCURRENT_TRANSACTIONS
    assert refused.value.code is wanted


async def test_requests_wait_until_the_stored_transactions_are_read(office: Office) -> None:
    mine = await office.init()
    await office.close()
    await office.open(wait=False)
    with pytest.raises(KafkaError) as refused:
        office.transactions.verify("t", mine.producer_id, 0, "out", 0)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await office.init()).epoch == 1


# --- restarts ---


@pytest.mark.parametrize("how", ["restart", "lose_power"])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_decision_outlives_the_broker_that_made_it(office: Office, how: str, commit: bool) -> None:
    mine = await office.init()
    await office.begin(mine)
    office.hold_markers()
    ending = asyncio.create_task(office.end(mine, commit))
    await office.until_state("PrepareCommit" if commit else "PrepareAbort")
    await getattr(office, how)()
    ending.cancel()
    await office.until_state("CompleteCommit" if commit else "CompleteAbort")
    for index in (0, 1):
        assert office.markers(index) == [(0, "COMMIT" if commit else "ABORT")]
        assert not office.is_open(index)
    assert await office.end(mine, commit) == mine


@pytest.mark.parametrize("how", ["restart", "lose_power"])
async def test_restart_in_the_states_that_wait_for_the_producer(office: Office, how: str) -> None:
    empty, ongoing, committed, aborted = [await office.init(name) for name in ("empty", "ongoing", "commit", "abort")]
    await office.begin(ongoing, "ongoing")
    for mine, name in ((committed, "commit"), (aborted, "abort")):
        await office.begin(mine, name)
        await office.end(mine, name == "commit", name)
    await getattr(office, how)()
    states = {txn.transactional_id: txn.state.label for txn in await office.transactions.listing()}
    last = {"commit": "CompleteCommit", "abort": "CompleteAbort"}
    assert states == {"empty": "Empty", "ongoing": "Ongoing"} | last
    await office.end(ongoing, True, "ongoing")
    assert (await office.init("empty")).epoch == empty.epoch + 1
    assert await office.end(committed, True, "commit") == committed


async def test_an_answer_lost_with_the_broker_is_found_again(office: Office) -> None:
    mine = await office.init()
    await office.begin(mine, version=2)
    bumped = await office.end(mine, version=2)
    await office.restart()
    assert await office.end(mine, version=2) == bumped
    assert await office.init(have=mine) == bumped, "KIP-360: it may also ask for its epoch"


@pytest.mark.parametrize("seed", range(12))
async def test_power_loss_at_any_moment_tears_no_transaction(offices: list[Office], seed: int) -> None:
    rng = Random(seed)
    offices.append(office := await Office().open())
    mine = await office.init()
    await office.begin(mine)
    ending = asyncio.create_task(office.end(mine, True))
    for _ in range(rng.randrange(12)):
        await asyncio.sleep(0)
    answered = ending.done()
    await office.lose_power(rng)
    ending.cancel()
    state = await office.state()
    if state == "Ongoing":
        assert not answered
        await office.end(mine, False)
        assert (office.markers(0), office.markers(1)) == ([(0, "ABORT")],) * 2
    else:
        await office.until_state("CompleteCommit")
        assert {kind for index in (0, 1) for _, kind in office.markers(index)} == {"COMMIT"}
    assert not office.is_open(0)
    assert not office.is_open(1)


async def test_the_ledger_outlives_a_restart(office: Office) -> None:
    await office.init()
    await office.init()
    before = office.transactions.fences("t")
    await office.restart()
    assert office.transactions.fences("t") == before
    assert [fence.by.client_id for fence in before] == ["worker"]


async def test_a_failed_append_leaves_no_trace(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = await office.init()
    await office.begin(mine)
    partition = office.topics.partition(TRANSACTION_STATE, coordinator_partition("t", 50))

    def refuse(*_: object, **__: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")

    with monkeypatch.context() as patch:
        patch.setattr(partition, "append", refuse)
        for _ in range(3):
            with pytest.raises(KafkaError, match="could not store") as failed:
                await office.init()
            assert failed.value.code is ErrorCode.NOT_COORDINATOR
    assert await office.state() == "Ongoing"
    assert (await office.init()).epoch == 2


# --- time ---


@pytest.mark.parametrize("version", [0, 2])
async def test_a_transaction_open_for_too_long_is_aborted_and_its_producer_told_why(
    offices: list[Office], version: int
) -> None:
    office = await quick_office(offices)
    mine = await office.init()
    await office.begin(mine, version=version)
    office.wall_ms += TIMEOUT_MS
    await asyncio.sleep(0.05)
    assert await office.state() == "Ongoing"
    office.wall_ms += 1
    await office.until_state("CompleteAbort")
    assert office.markers() == [(1, "ABORT")]
    with pytest.raises(KafkaError, match=r"open for 60001 ms, allowed were 60000 ms") as fenced:
        await office.end(mine, version=version)
    assert fenced.value.code is ErrorCode.PRODUCER_FENCED
    assert office.log.of("producer_fenced")[-1]["by"] == "broker 0"


async def test_a_commit_that_came_first_beats_the_sweep(offices: list[Office]) -> None:
    office = await quick_office(offices)
    mine = await office.init()
    await office.begin(mine)
    office.hold_markers()
    ending = asyncio.create_task(office.end(mine))
    await office.until_state("PrepareCommit")
    office.wall_ms += 10 * TIMEOUT_MS
    assert await is_held(ending)
    office.release_markers()
    assert await ending == mine
    assert office.markers() == [(0, "COMMIT")]


async def test_kip939_a_prepared_transaction_outlives_timeouts_and_restarts(offices: list[Office]) -> None:
    office = await quick_office(offices, transaction_two_phase_commit_enable="true")
    mine = await office.init(enable_2pc=True)
    await office.begin(mine)
    office.wall_ms += 10**9
    await asyncio.sleep(0.05)
    await office.restart()
    step = await office.transactions.init_producer_id("t", 1, enable_2pc=True, keep_prepared=True)
    assert step.kept == mine
    assert step.answer is not None
    await office.end(step.answer, True)
    assert office.markers() == [(1, "COMMIT")]
    assert not office.is_open(0)


async def test_an_unused_id_expires_for_good_and_its_producer_is_told(offices: list[Office]) -> None:
    office = await quick_office(
        offices,
        transactional_id_expiration_ms="1000",
        transaction_remove_expired_transaction_cleanup_interval_ms="10",
    )
    mine = await office.init()
    ongoing = await office.init("busy")
    await office.begin(ongoing, "busy")
    office.wall_ms += 1_000
    async with asyncio.timeout(5):
        while office.transactions.fences("t")[-1:] == ():
            await asyncio.sleep(0.005)
    with pytest.raises(KafkaError, match=r"transactional\.id\.expiration\.ms") as refused:
        await office.add(mine)
    assert refused.value.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    with pytest.raises(KafkaError, match=r"no transactional\.id"):
        await office.state()
    assert office.log.of("producer_fenced")[-1]["reason"] == "expired"
    await office.restart()
    assert [txn.transactional_id for txn in await office.transactions.listing()] == ["busy"]
    assert (await office.init()).epoch == 0


# --- hanging transactions ---


async def test_only_what_nobody_coordinates_is_ended_by_an_operator(office: Office) -> None:
    operator = ClientName("admin", "h")
    mine = await office.init()
    await office.begin(mine)
    with pytest.raises(KafkaError, match="not hanging: t is in Ongoing"):
        await office.transactions.abort_hanging(mine, ("out", 0), 0, operator)
    await office.end(mine)
    with pytest.raises(KafkaError, match="has none open here"):
        await office.transactions.abort_hanging(mine, ("out", 0), 0, operator)
    stray = bytearray(build_batch([Record(0, 1, None, b"x")], producer_id=77, producer_epoch=1, base_sequence=0,
                                  is_transactional=True))  # fmt: skip
    office.topics.partition("out", 0).append(stray, header=read_header(stray))
    assert office.is_open(0)
    await office.transactions.abort_hanging(ProducerIdentity(77, 1), ("out", 0), -1, operator)
    assert not office.is_open(0)
    assert office.log.of("hanging_transaction_aborted")[0]["by"] == str(operator)
