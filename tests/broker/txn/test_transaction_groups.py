"""Transaction groups over a disk in memory: many producers, one driver; restarts in every state, power loss, time."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from broker.txn.transaction_broker import TIMEOUT_MS, TransactionBroker
from broker.wire import headers_of
from msgspec.structs import replace
from semel_broker.coordination.journal import READ_BYTES, Journal, JournalAppend
from semel_broker.partitions.partition import Partition
from semel_broker.txn.model.group_metadata import TransactionGroup
from semel_broker.txn.model.group_records import group_key_of
from semel_broker.txn.model.group_state import Begin, Decide, TransactionGroupDecision
from semel_broker.txn.model.identity import EPOCH_LAST, ClientName, ProducerIdentity
from semel_broker.txn.model.metadata import ONGOING
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition
from semel_storage.internal_topics import TRANSACTION_STATE, Row

DRIVER = ClientName("driver", "10.0.0.9")
Prepared = tuple[str, ProducerIdentity]


async def quick_broker(
    brokers: list[TransactionBroker], hold_ms_max: int = 20_000, **settings: str
) -> TransactionBroker:
    sweeps = {
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": "10",
        "transaction_remove_expired_transaction_cleanup_interval_ms": "10",
    }
    brokers.append(await TransactionBroker(hold_ms_max=hold_ms_max, **{**sweeps, **settings}).open())
    return brokers[-1]


async def begin(one: TransactionBroker, owner: str = "query 7", timeout_ms: int = TIMEOUT_MS) -> TransactionGroup:
    return await one.transactions.groups.begin(Begin(group="g", owner=owner, client=DRIVER, timeout_ms=timeout_ms))


async def join(one: TransactionBroker, name: str, epoch: int) -> ProducerIdentity:
    return await one.init(f"g/{name}", group_epoch=epoch)


async def work(one: TransactionBroker, name: str, epoch: int) -> Prepared:
    """A member that has written to both partitions of `out`."""
    mine = await join(one, name, epoch)
    await one.begin(mine, f"g/{name}", version=2)
    return f"g/{name}", mine


async def decide(
    one: TransactionBroker, epoch: int, token: str, *transactions: Prepared, commit: bool = True
) -> TransactionGroupDecision:
    return await one.transactions.groups.decide(
        Decide(group="g", epoch=epoch, token=token, commit=commit, transactions=transactions, client=DRIVER)
    )


async def group_of(one: TransactionBroker) -> TransactionGroup:
    (listing,) = await one.transactions.groups.listing(["g"])
    return listing.group


async def refused(work: object, code: ErrorCode, words: str = "") -> None:
    with pytest.raises(KafkaError) as error:
        await work  # type: ignore[misc]
    assert error.value.code is code, error.value
    assert words in error.value.message, error.value


async def is_held(task: asyncio.Task[object]) -> bool:
    await asyncio.sleep(0.03)
    return not task.done()


def kinds(one: TransactionBroker, index: int = 0) -> list[str]:
    return [kind for _, kind in one.markers(index)]


def journal_of(one: TransactionBroker) -> Partition:
    return one.topics.partition(TRANSACTION_STATE, coordinator_partition("g", 50))


# --- the course of a step ---


async def test_everything_has_its_marker_when_the_decision_is_answered(one: TransactionBroker) -> None:
    step = await begin(one)
    a, b, _ = [await work(one, name, step.epoch) for name in ("a", "b", "loser")]
    done = await decide(one, step.epoch, "q:0", a, b)
    assert not done.already
    for index in (0, 1):
        assert sorted(kinds(one, index)) == ["ABORT", "COMMIT", "COMMIT"]
        assert not one.is_open(index)
    assert [await one.state(f"g/{name}") for name in ("a", "b", "loser")] == [
        "CompleteCommit", "CompleteCommit", "CompleteAbort"
    ]  # fmt: skip
    again = await decide(one, step.epoch, "q:0", a, b)
    assert again.already
    assert len(kinds(one)) == 3


async def test_the_whole_group_lies_in_one_partition_and_a_decision_is_one_batch(one: TransactionBroker) -> None:
    step = await begin(one)
    prepared = [await work(one, f"m{n}", step.epoch) for n in range(20)]
    before = journal_of(one).end_offset
    await decide(one, step.epoch, "q:0", *prepared[:15])
    await begin(one)
    batches = [header.record_count for header in headers_of(journal_of(one).read(before, bytes_max=1 << 20))]
    assert batches == [21, *[1] * 20, 1], "the group and its members; then each is complete; the next step"


async def test_a_begin_aborts_the_last_drivers_transactions_and_fences_its_workers(one: TransactionBroker) -> None:
    step = await begin(one)
    name, mine = await work(one, "a", step.epoch)
    following = await begin(one, owner="query 7, attempt 2")
    assert following.epoch == step.epoch + 1
    assert kinds(one) == ["ABORT"]
    assert not one.is_open()
    words = "step 2 of 'g' was begun by query 7, attempt 2"
    await refused(one.begin(mine, name, version=2), ErrorCode.PRODUCER_FENCED, words)
    await refused(decide(one, 1, "q:0", (name, mine)), ErrorCode.PRODUCER_FENCED, "query 7, attempt 2")
    await refused(join(one, "b", 1), ErrorCode.PRODUCER_FENCED, "step 2 was begun at")
    (line,) = one.log.of("producer_fenced")
    assert (line["reason"], line["transactional_id"], line["by"]) == ("group_begun", "g/a", str(DRIVER))


async def test_a_worker_of_an_earlier_step_opens_nothing(one: TransactionBroker) -> None:
    step = await begin(one)
    mine = await join(one, "a", step.epoch)
    await begin(one)
    await refused(one.begin(mine, "g/a", version=2), ErrorCode.PRODUCER_FENCED, "step 1 of transaction group 'g'")
    assert not one.is_open()


async def test_after_the_decision_no_member_adds_to_the_step(one: TransactionBroker) -> None:
    step = await begin(one)
    a = await work(one, "a", step.epoch)
    idle = await join(one, "idle", step.epoch)
    await decide(one, step.epoch, "q:0", a)
    await refused(one.begin(idle, "g/idle", version=2), ErrorCode.PRODUCER_FENCED, "was committed as 'q:0'")
    await refused(join(one, "late", step.epoch), ErrorCode.PRODUCER_FENCED, "was committed as 'q:0'")
    await refused(one.begin(a[1], "g/a", version=2), ErrorCode.PRODUCER_FENCED)


async def test_a_member_that_differs_from_the_list_changes_no_transaction(one: TransactionBroker) -> None:
    step = await begin(one)
    a, b = await work(one, "a", step.epoch), await work(one, "b", step.epoch)
    stale = (b[0], ProducerIdentity(b[1].producer_id, b[1].epoch + 1))
    before = journal_of(one).end_offset
    await refused(decide(one, step.epoch, "q:0", a, stale), ErrorCode.PRODUCER_FENCED, "g/b")
    assert journal_of(one).end_offset == before
    assert await one.state("g/a") == "Ongoing"
    await decide(one, step.epoch, "q:0", a, b)
    assert kinds(one) == ["COMMIT", "COMMIT"]


async def test_an_abort_of_the_step_and_then_the_next(one: TransactionBroker) -> None:
    step = await begin(one)
    await work(one, "a", step.epoch)
    await decide(one, step.epoch, "", commit=False)
    await decide(one, step.epoch, "", commit=False)
    assert kinds(one) == ["ABORT"]
    following = await begin(one)
    again = await work(one, "a", following.epoch)
    await decide(one, following.epoch, "q:0", again)
    assert kinds(one) == ["ABORT", "COMMIT"]


async def test_a_member_that_aborts_by_itself_may_begin_again_in_the_same_step(one: TransactionBroker) -> None:
    step = await begin(one)
    name, mine = await work(one, "a", step.epoch)
    mine = await one.end(mine, False, name, version=2)
    await refused(decide(one, step.epoch, "q:0", (name, mine)), ErrorCode.INVALID_TXN_STATE, "CompleteAbort")
    await one.begin(mine, name, version=2)
    await decide(one, step.epoch, "q:0", (name, mine))
    assert kinds(one) == ["ABORT", "COMMIT"]


async def test_a_new_instance_of_a_member_in_the_same_step_fences_the_old_one(one: TransactionBroker) -> None:
    step = await begin(one)
    first = await work(one, "a", step.epoch)
    second = await work(one, "a", step.epoch)
    await refused(decide(one, step.epoch, "q:0", first), ErrorCode.PRODUCER_FENCED, "was initialised")
    await decide(one, step.epoch, "q:0", second)
    assert kinds(one) == ["ABORT", "COMMIT"]


async def test_ordinary_ids_with_a_slash_are_left_alone(one: TransactionBroker) -> None:
    mine = await one.init("g/ordinary")
    await one.begin(mine, "g/ordinary", version=2)
    step = await begin(one)
    await decide(one, step.epoch, "q:0")
    listing = decide(one, (await begin(one)).epoch, "q:1", ("g/ordinary", mine))
    await refused(listing, ErrorCode.INVALID_PRODUCER_ID_MAPPING, "not known as a member")
    assert await one.state("g/ordinary") == "Ongoing"
    await one.end(mine, True, "g/ordinary", version=2)
    assert kinds(one) == ["COMMIT"]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [("plain", {}, "<group>/<member>"), ("g/a", {"keep_prepared": True}, "with its group"), ("/a", {}, "<group>/")],
)
async def test_an_id_that_cannot_be_a_member_is_refused(
    one: TransactionBroker, name: str, options: dict[str, object], words: str
) -> None:
    await begin(one)
    await refused(one.init(name, group_epoch=1, **options), ErrorCode.INVALID_REQUEST, words)


async def test_the_timeout_of_a_member_is_its_steps(one: TransactionBroker) -> None:
    step = await begin(one, timeout_ms=1_234)
    await join(one, "a", step.epoch)
    assert (await one.describe("g/a")).timeout_ms == 1_234
    await refused(begin(one, timeout_ms=0), ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    await refused(begin(one, timeout_ms=900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT)


async def test_a_step_has_no_more_members_than_one_append_can_hold(one: TransactionBroker) -> None:
    limits = replace(one.config.limits, transaction_group_members_max=2)
    one.config.limits = limits
    step = await begin(one)
    for name in ("a", "b", "a"):
        await join(one, name, step.epoch)
    await refused(join(one, "c", step.epoch), ErrorCode.INVALID_REQUEST, "has 2 members, the most")
    following = await begin(one)
    await join(one, "c", following.epoch)


async def test_members_without_epochs_continue_with_fresh_producer_ids(one: TransactionBroker) -> None:
    step = await begin(one)
    names = ("a", "b", "c")
    for name in names:
        mine = await join(one, name, step.epoch)
        shard = one.transactions.shards.of("g/")
        assert shard is not None
        slot = shard.slots.get(f"g/{name}")
        assert slot.metadata is not None
        slot.metadata = replace(slot.metadata, producer_epoch=EPOCH_LAST)
        await one.begin(ProducerIdentity(mine.producer_id, EPOCH_LAST), f"g/{name}", version=2)
    worn = [(f"g/{name}", (await one.describe(f"g/{name}")).identity) for name in names]
    await decide(one, step.epoch, "q:0", *worn)
    after = [(await one.describe(f"g/{name}")).identity for name in names]
    assert [each.epoch for each in after] == [0, 0, 0]
    assert len({each.producer_id for each in after} | {each.producer_id for _, each in worn}) == 6
    assert kinds(one) == ["COMMIT"] * 3


@pytest.mark.parametrize("how", ["begin", "abort", "time out"])
async def test_a_step_too_large_for_a_segment_is_not_committed_and_can_be_got_rid_of(
    brokers: list[TransactionBroker], how: str
) -> None:
    one = await quick_broker(brokers, transaction_state_log_segment_bytes="1024")
    step = await begin(one)
    each = [await work(one, f"m{n}", step.epoch) for n in range(12)]
    await refused(decide(one, step.epoch, "q:0", *each), ErrorCode.RECORD_LIST_TOO_LARGE, "1024")
    assert {await one.state(name) for name, _ in each} == {"Ongoing"}
    if how == "begin":
        await begin(one)
    elif how == "abort":
        await decide(one, step.epoch, "", commit=False)
    else:
        one.wall_ms += TIMEOUT_MS + 1
    for name, _ in each:
        await one.until_state("CompleteAbort", name)
    assert kinds(one) == ["ABORT"] * 12
    await one.restart()
    assert {await one.state(name) for name, _ in each} == {"CompleteAbort"}


async def test_a_group_whose_tombstones_do_not_fit_is_not_forgotten(brokers: list[TransactionBroker]) -> None:
    """Members that outlive their group could join the first step of a new group of that name."""
    one = await quick_broker(brokers, transaction_state_log_segment_bytes="1024")
    step = await begin(one)
    for number in range(10):
        await join(one, str(number) * 100, step.epoch)
    await decide(one, step.epoch, "q:0")
    await refused(one.transactions.groups.forget("g", step.epoch), ErrorCode.RECORD_LIST_TOO_LARGE, "1024")
    (listing,) = await one.transactions.groups.listing(["g"])
    assert len(listing.members) == 10


# --- forgetting ---


async def test_a_forgotten_group_is_gone_after_a_restart_and_begins_anew(one: TransactionBroker) -> None:
    step = await begin(one)
    mine = await work(one, "a", step.epoch)
    await decide(one, step.epoch, "q:0", mine)
    await one.transactions.groups.forget("g", step.epoch)
    await one.restart()
    assert await one.transactions.groups.listing(["g"]) == []
    assert (await begin(one)).epoch == 1
    (listing,) = await one.transactions.groups.listing(["g"])
    assert listing.members == []
    await refused(one.begin(mine[1], mine[0], version=2), ErrorCode.INVALID_PRODUCER_ID_MAPPING)


async def test_a_group_whose_markers_are_missing_is_not_forgotten(brokers: list[TransactionBroker]) -> None:
    brokers.append(one := await TransactionBroker(hold_ms_max=50).open())
    step = await begin(one)
    mine = await work(one, "a", step.epoch)
    one.hold_markers()
    await decide(one, step.epoch, "q:0", mine)
    assert await one.state("g/a") == "PrepareCommit"
    await refused(one.transactions.groups.forget("g", step.epoch), ErrorCode.CONCURRENT_TRANSACTIONS, "g/a")
    one.release_markers()
    await one.until_state("CompleteCommit", "g/a")
    await one.transactions.groups.forget("g", step.epoch)
    assert await one.transactions.groups.listing(["g"]) == []
    assert kinds(one) == ["COMMIT"]


# --- races ---


async def test_a_member_that_joins_while_its_group_is_forgotten_is_refused(one: TransactionBroker) -> None:
    step = await begin(one)
    await join(one, "a", step.epoch)
    await decide(one, step.epoch, "q:0")
    forgetting = asyncio.create_task(one.transactions.groups.forget("g", step.epoch))
    await asyncio.sleep(0)
    await refused(join(one, "a", step.epoch), ErrorCode.PRODUCER_FENCED)
    await forgetting
    assert await one.transactions.groups.listing(["g"]) == []
    assert one.transactions.shards.here()[0].known() == []


async def test_a_member_that_is_opening_its_transaction_is_waited_for(one: TransactionBroker) -> None:
    step = await begin(one)
    mine = await join(one, "a", step.epoch)
    adding = asyncio.create_task(one.add(mine, "g/a", version=2))
    await asyncio.sleep(0)
    following = asyncio.create_task(begin(one))
    await adding
    await following
    assert await one.state("g/a") == "CompleteAbort", "what was being opened did not slip through"


async def test_a_member_that_comes_while_the_group_waits_for_locks_is_included(one: TransactionBroker) -> None:
    step = await begin(one)
    await join(one, "a", step.epoch)
    shard = one.transactions.shards.of("g/")
    assert shard is not None
    busy = await shard.slots.enter("g/a")
    following = asyncio.create_task(begin(one))
    await asyncio.sleep(0)
    late = await work(one, "late", step.epoch)
    shard.slots.leave(busy)
    await following
    assert await one.state(late[0]) == "CompleteAbort"
    assert not one.is_open()


class GatedDisk:
    """A disk that delays appends for a group: they are durable once `gate` is open, or they fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = asyncio.Event()
        self.appended = asyncio.Event()
        self.error: KafkaError | None = None
        append = Journal.append

        def slow(journal: Journal, rows: Sequence[Row], **more: Any) -> Any:
            stored = append(journal, rows, **more)
            if group_key_of(rows[0][0]) is None:
                return stored
            self.appended.set()
            return SlowlyStored(stored, self)

        monkeypatch.setattr(Journal, "append", slow)


class SlowlyStored:
    is_durable = False

    def __init__(self, stored: JournalAppend, disk: GatedDisk) -> None:
        self._stored, self._disk = stored, disk

    async def durable(self) -> None:
        await self._disk.gate.wait()
        if self._disk.error is not None:
            raise self._disk.error
        await self._stored.durable()


async def test_a_begin_counts_against_members_as_soon_as_it_is_appended(
    one: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = await begin(one)
    _, mine = await work(one, "a", step.epoch)
    slow = GatedDisk(monkeypatch)
    following = asyncio.create_task(begin(one))
    await slow.appended.wait()
    assert (await group_of(one)).epoch == step.epoch, "it has not taken effect"
    await refused(join(one, "late", step.epoch), ErrorCode.PRODUCER_FENCED, "step 2 was begun at")
    with pytest.raises(KafkaError, match="step 2 was begun at"):
        one.transactions.verify("g/a", mine.producer_id, mine.epoch, "out", 0)
    slow.gate.set()
    assert (await following).epoch == 2
    assert kinds(one) == ["ABORT"]


async def test_a_caller_cancelled_while_the_decision_is_being_stored_has_decided(
    one: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = await begin(one)
    a = await work(one, "a", step.epoch)
    slow = GatedDisk(monkeypatch)
    deciding = asyncio.create_task(decide(one, step.epoch, "q:0", a))
    await slow.appended.wait()
    deciding.cancel()
    again = asyncio.create_task(decide(one, step.epoch, "q:0", a))
    other = asyncio.create_task(decide(one, step.epoch, "q:1"))
    assert await is_held(again)
    slow.gate.set()
    assert (await again).already
    await refused(other, ErrorCode.INVALID_TXN_STATE, "was committed as 'q:0'")
    assert kinds(one) == ["COMMIT"]


@pytest.mark.proves("error-of-a-stopped-coordinator")
async def test_a_caller_cancelled_while_the_decision_cannot_be_stored_leaves_no_error_behind(
    one: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = await begin(one)
    slow = GatedDisk(monkeypatch)
    unhandled: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    deciding = asyncio.create_task(decide(one, step.epoch, "q:0"))
    await slow.appended.wait()
    deciding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deciding
    slow.error = KafkaError(ErrorCode.NOT_COORDINATOR, "another broker leads the partition")
    slow.gate.set()
    await refused(decide(one, step.epoch, "q:1"), ErrorCode.NOT_COORDINATOR, "")
    gc.collect()
    assert unhandled == []


async def test_two_drivers_at_once_get_two_steps_and_only_the_last_decides(one: TransactionBroker) -> None:
    steps = await asyncio.gather(*(begin(one, owner=f"driver {n}") for n in range(3)))
    assert [step.epoch for step in steps] == [1, 2, 3]
    outcomes = await asyncio.gather(
        *(decide(one, step.epoch, f"t{step.epoch}") for step in steps), return_exceptions=True
    )
    assert [isinstance(each, TransactionGroupDecision) for each in outcomes] == [False, False, True]


async def test_two_decisions_at_once_are_one(one: TransactionBroker) -> None:
    step = await begin(one)
    a = await work(one, "a", step.epoch)
    outcomes = await asyncio.gather(
        decide(one, step.epoch, "q:0", a),
        decide(one, step.epoch, "q:0", a),
        decide(one, step.epoch, "q:1", a),
        decide(one, step.epoch, "", commit=False),
        return_exceptions=True,
    )
    assert [each.already for each in outcomes if isinstance(each, TransactionGroupDecision)] == [False, True]
    assert [each.code for each in outcomes if isinstance(each, KafkaError)] == [ErrorCode.INVALID_TXN_STATE] * 2
    assert kinds(one) == ["COMMIT"]


async def test_a_cancelled_caller_blocks_no_other_and_changes_nothing(one: TransactionBroker) -> None:
    step = await begin(one)
    a, b = await work(one, "a", step.epoch), await work(one, "b", step.epoch)
    shard = one.transactions.shards.of("g/")
    assert shard is not None
    busy = await shard.slots.enter("g/b")
    deciding = asyncio.create_task(decide(one, step.epoch, "q:0", a, b))
    assert await is_held(deciding)
    deciding.cancel()
    shard.slots.leave(busy)
    async with asyncio.timeout(5):
        while not (await decide(one, step.epoch, "q:0", a, b)).already:
            await asyncio.sleep(0.005)
    assert kinds(one) == ["COMMIT", "COMMIT"]
    await begin(one)
    assert not any(slot.lock.is_taken for slot in shard.slots)


@pytest.mark.parametrize("after_turns", range(0, 40, 3))
async def test_a_decision_that_is_given_up_at_any_moment_is_whole(one: TransactionBroker, after_turns: int) -> None:
    step = await begin(one)
    each = [await work(one, f"m{n}", step.epoch) for n in range(3)]
    deciding = asyncio.create_task(decide(one, step.epoch, "q:0", *each))
    for _ in range(after_turns):
        await asyncio.sleep(0)
    deciding.cancel()
    await decide(one, step.epoch, "q:0", *each)
    assert kinds(one) == ["COMMIT"] * 3
    assert (await group_of(one)).decided_token == "q:0"


async def test_a_failed_append_leaves_no_trace(one: TransactionBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    step = await begin(one)
    a = await work(one, "a", step.epoch)

    def refuse(*_: object, **__: object) -> None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, "could not store: full")

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "append", refuse)
        await refused(decide(one, step.epoch, "q:0", a), ErrorCode.NOT_COORDINATOR)
        await refused(begin(one), ErrorCode.NOT_COORDINATOR)
    assert (await group_of(one)) == step
    assert (await one.describe("g/a")).state is ONGOING
    b = await work(one, "b", step.epoch)
    await decide(one, step.epoch, "q:0", a, b)
    assert kinds(one) == ["COMMIT", "COMMIT"]


# --- held, not refused ---


async def test_a_decision_stands_when_markers_take_too_long_and_a_new_step_waits_for_them(
    brokers: list[TransactionBroker],
) -> None:
    brokers.append(one := await TransactionBroker(hold_ms_max=50).open())
    step = await begin(one)
    a = await work(one, "a", step.epoch)
    one.hold_markers()
    assert not (await decide(one, step.epoch, "q:0", a)).already
    assert await one.state("g/a") == "PrepareCommit"
    following = await begin(one)
    assert (following.epoch, following.decided_token) == (2, "q:0")
    await refused(join(one, "a", following.epoch), ErrorCode.CONCURRENT_TRANSACTIONS)
    one.release_markers()
    await one.until_state("CompleteCommit", "g/a")
    await join(one, "a", following.epoch)
    assert kinds(one) == ["COMMIT"]


async def test_a_begin_is_answered_when_aborted_transactions_have_their_markers(one: TransactionBroker) -> None:
    step = await begin(one)
    await work(one, "a", step.epoch)
    one.hold_markers()
    following = asyncio.create_task(begin(one))
    joining = asyncio.create_task(join(one, "b", step.epoch + 1))
    assert await is_held(following)
    assert joining.done(), "a member of the new step does not wait for the old step"
    one.release_markers()
    assert (await following).epoch == 2
    assert isinstance(joining.exception(), KafkaError), "the step that it came to is over"


async def test_closing_answers_requests_that_wait(one: TransactionBroker) -> None:
    step = await begin(one)
    a = await work(one, "a", step.epoch)
    shard = one.transactions.shards.of("g/")
    assert shard is not None
    one.hold_markers()
    deciding = asyncio.create_task(decide(one, step.epoch, "q:0", a))
    assert await is_held(deciding)
    busy = await shard.groups.slots.enter("g")
    beginning = asyncio.create_task(begin(one))
    assert await is_held(beginning)
    await one.transactions.close()
    shard.groups.slots.leave(busy)
    assert not (await deciding).already, "it is decided"
    await refused(beginning, ErrorCode.COORDINATOR_NOT_AVAILABLE)


# --- restarts ---


@pytest.mark.parametrize("how", ["restart", "lose_power"])
async def test_restart_after_a_begin(one: TransactionBroker, how: str) -> None:
    step = await begin(one)
    a = await work(one, "a", step.epoch)
    await getattr(one, how)()
    assert await group_of(one) == step
    b = await work(one, "b", step.epoch)
    await decide(one, step.epoch, "q:0", a, b)
    assert sorted(kinds(one)) == ["COMMIT", "COMMIT"]


@pytest.mark.parametrize("how", ["restart", "lose_power"])
@pytest.mark.parametrize("commit", [True, False])
async def test_a_decision_outlives_the_coordinator_that_made_it(one: TransactionBroker, how: str, commit: bool) -> None:
    step = await begin(one)
    each = [await work(one, f"m{n}", step.epoch) for n in range(3)]
    one.hold_markers()
    deciding = asyncio.create_task(decide(one, step.epoch, "q:0" if commit else "", *each, commit=commit))
    await one.until_state("PrepareCommit" if commit else "PrepareAbort", "g/m0")
    await getattr(one, how)()
    deciding.cancel()
    for name, _ in each:
        await one.until_state("CompleteCommit" if commit else "CompleteAbort", name)
    for index in (0, 1):
        assert kinds(one, index) == ["COMMIT" if commit else "ABORT"] * 3
    again = await decide(one, step.epoch, "q:0" if commit else "", *each, commit=commit)
    assert again.already is commit
    assert (await begin(one)).decided_token == ("q:0" if commit else None)


async def test_restart_when_some_have_their_markers_and_some_have_not(one: TransactionBroker) -> None:
    step = await begin(one)
    each = [await work(one, f"m{n}", step.epoch) for n in range(4)]
    shard = one.transactions.shards.of("g/")
    assert shard is not None
    write = shard.write_markers
    shard.write_markers = (  # type: ignore[method-assign]
        lambda slot, txn: write(slot, txn) if slot.key in ("g/m0", "g/m2") else None
    )
    deciding = asyncio.create_task(decide(one, step.epoch, "q:0", *each))
    await one.until_state("CompleteCommit", "g/m0")
    assert await one.state("g/m1") == "PrepareCommit"
    await one.lose_power()
    deciding.cancel()
    for name, _ in each:
        await one.until_state("CompleteCommit", name)
    for index in (0, 1):
        assert set(kinds(one, index)) == {"COMMIT"}
        assert not one.is_open(index)


@pytest.mark.parametrize("seed", range(16))
async def test_power_loss_at_any_moment_tears_no_step(brokers: list[TransactionBroker], seed: int) -> None:
    rng = Random(seed)
    brokers.append(one := await TransactionBroker().open())
    step = await begin(one)
    each = [await work(one, f"m{n}", step.epoch) for n in range(3)]
    deciding = asyncio.create_task(decide(one, step.epoch, "q:0", *each[:2]))
    for _ in range(rng.randrange(20)):
        await asyncio.sleep(0)
    answered = deciding.done()
    await one.lose_power(rng)
    deciding.cancel()
    following = await begin(one)
    assert following.epoch == 2
    for name, _ in each:
        async with asyncio.timeout(5):
            while not (await one.state(name)).startswith("Complete"):
                await asyncio.sleep(0.002)
    outcomes = [await one.state(name) for name, _ in each]
    if following.decided_token == "q:0":
        assert outcomes == ["CompleteCommit", "CompleteCommit", "CompleteAbort"]
    else:
        assert not answered
        assert outcomes == ["CompleteAbort"] * 3
    for index in (0, 1):
        assert not one.is_open(index)


async def test_a_large_step_is_read_again(one: TransactionBroker) -> None:
    step = await begin(one)
    owner = "x" * 190
    for _ in range(12):
        for n in range(60):
            await one.transactions.init_producer_id(
                f"g/m{n}", TIMEOUT_MS, client=ClientName(owner, owner), note=owner, group_epoch=step.epoch
            )
    each = [await work(one, f"m{n}", step.epoch) for n in range(60)]
    before = journal_of(one).end_offset
    one.hold_markers()
    deciding = asyncio.create_task(decide(one, step.epoch, "q:0", *each))
    await one.until_state("PrepareCommit", "g/m59")
    (header,) = headers_of(journal_of(one).read(before, bytes_max=1 << 20))
    assert header.size > READ_BYTES, "a batch that is read in one piece"
    await one.restart()
    await deciding
    for name, _ in each:
        await one.until_state("CompleteCommit", name)
    assert (await group_of(one)).decided_token == "q:0"


# --- time ---


async def test_a_step_open_for_too_long_is_aborted_as_a_whole(brokers: list[TransactionBroker]) -> None:
    one = await quick_broker(brokers)
    step = await begin(one, timeout_ms=1_000)
    a = await work(one, "a", step.epoch)
    one.wall_ms += 900
    b = await work(one, "b", step.epoch)
    one.wall_ms += 100
    await asyncio.sleep(0.05)
    assert await one.state("g/a") == "Ongoing"
    one.wall_ms += 1
    await one.until_state("CompleteAbort", "g/a")
    await one.until_state("CompleteAbort", "g/b")
    words = "open for 1001 ms, allowed were 1000 ms"
    await refused(decide(one, step.epoch, "q:0", a, b), ErrorCode.INVALID_TXN_STATE, words)
    await refused(one.begin(a[1], "g/a", version=2), ErrorCode.PRODUCER_FENCED, words)
    await refused(join(one, "c", step.epoch), ErrorCode.PRODUCER_FENCED, words)
    assert (await begin(one)).decided_token is None


async def test_a_step_with_nothing_open_has_all_the_time(brokers: list[TransactionBroker]) -> None:
    one = await quick_broker(brokers)
    step = await begin(one, timeout_ms=1_000)
    idle = await join(one, "a", step.epoch)
    one.wall_ms += 100_000
    await asyncio.sleep(0.05)
    await one.begin(idle, "g/a", version=2)
    await decide(one, step.epoch, "q:0", ("g/a", idle))
    assert kinds(one) == ["COMMIT"]


async def test_a_decision_that_came_first_beats_the_sweep(brokers: list[TransactionBroker]) -> None:
    one = await quick_broker(brokers)
    step = await begin(one, timeout_ms=1_000)
    a = await work(one, "a", step.epoch)
    one.hold_markers()
    deciding = asyncio.create_task(decide(one, step.epoch, "q:0", a))
    await one.until_state("PrepareCommit", "g/a")
    one.wall_ms += 100_000
    assert await is_held(deciding)
    one.release_markers()
    await deciding
    assert kinds(one) == ["COMMIT"]


async def test_a_member_without_its_groups_record_is_not_open_for_ever(brokers: list[TransactionBroker]) -> None:
    one = await quick_broker(brokers)
    step = await begin(one)
    await work(one, "a", step.epoch)
    shard = one.transactions.shards.of("g/")
    assert shard is not None
    slot = await shard.groups.slots.enter("g")
    slot.metadata = slot.newest = None
    shard.groups.slots.leave(slot)
    one.wall_ms += TIMEOUT_MS + 1
    await one.until_state("CompleteAbort", "g/a")


async def test_a_group_that_was_not_used_for_long_is_forgotten_after_its_members(
    brokers: list[TransactionBroker],
) -> None:
    one = await quick_broker(brokers, transaction_group_expiration_ms="5000", transactional_id_expiration_ms="10000")
    step = await begin(one)
    await decide(one, step.epoch, "q:0", await work(one, "a", step.epoch))
    one.wall_ms += 5_000
    await asyncio.sleep(0.05)
    assert (await group_of(one)).decided_token == "q:0", "a member is left"
    one.wall_ms += 5_000
    async with asyncio.timeout(5):
        while await one.transactions.groups.listing():
            await asyncio.sleep(0.005)
    await refused(decide(one, step.epoch, "q:0"), ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "or has expired")
    await one.restart()
    assert await one.transactions.groups.listing() == []
    assert (await begin(one)).epoch == 1


async def test_an_abandoned_step_expires(brokers: list[TransactionBroker]) -> None:
    one = await quick_broker(brokers, transaction_group_expiration_ms="5000")
    await begin(one)
    one.wall_ms += 5_000
    async with asyncio.timeout(5):
        while (await group_of(one)).state.label != "Aborted":
            await asyncio.sleep(0.005)
    one.wall_ms += 5_000
    async with asyncio.timeout(5):
        while await one.transactions.groups.listing():
            await asyncio.sleep(0.005)
