"""Decisions about one transaction group: the allowed begins, joins and commits, and the errors of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from msgspec.structs import replace
from semel_broker.coordination.producer_ids import NeedsProducerIdError
from semel_broker.txn.model import group_state, state
from semel_broker.txn.model.group_metadata import (
    ABORTED,
    COMMITTED,
    DEAD,
    NEXT,
    OPEN,
    TransactionGroup,
    TransactionGroupState,
    check_step,
    check_successor,
)
from semel_broker.txn.model.group_records import group_key_of, group_of_row, group_row
from semel_broker.txn.model.group_state import NO_FRESH_IDS, Begin, Decide, TransactionGroupDecision
from semel_broker.txn.model.identity import EPOCH_LAST, ClientName, ProducerIdentity
from semel_broker.txn.model.ledger import FenceReason
from semel_broker.txn.model.metadata import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionMetadata,
    TransactionState,
)
from semel_broker.txn.model.records import key_of, metadata_of, row_of
from semel_broker.txn.model.requests import End, Init
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import coordinator_partition, group_of, transaction_partition

NOW = 1_700_000_000_000
TIMEOUT_MS = 60_000
A = ("a", 0)
DRIVER = ClientName("driver-2", "10.0.0.9")
BROKER = ClientName(host="broker 0")
FENCED, STATE, INVALID = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_REQUEST


def group(in_state: TransactionGroupState = OPEN, epoch: int = 3, **fields: object) -> TransactionGroup:
    base = TransactionGroup(
        name="g",
        epoch=epoch,
        state=in_state,
        owner="query 7",
        client=ClientName("driver-1", "10.0.0.8"),
        timeout_ms=TIMEOUT_MS,
        begin_ms=NOW - 5_000,
        last_update_ms=NOW - 1_000,
        decided_token="q:6" if in_state is not COMMITTED else "q:7",
        decided_epoch=epoch if in_state is COMMITTED else epoch - 1,
    )
    return replace(base, **fields)


def member(
    name: str, in_state: TransactionState = ONGOING, *, epoch: int = 4, group_epoch: int = 3, **fields: object
) -> TransactionMetadata:
    base = TransactionMetadata(
        transactional_id=f"g/{name}",
        producer_id=sum(name.encode()),
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        state=in_state,
        partitions={A: None} if in_state in (ONGOING, PREPARE_ABORT, PREPARE_COMMIT) else {},
        last_update_ms=NOW - 1_000,
        start_ms=NOW - 1_000,
        group_epoch=group_epoch,
    )
    return replace(base, **fields)


def members(*each: TransactionMetadata) -> dict[str, TransactionMetadata]:
    return {txn.transactional_id: txn for txn in each}


def listed(*each: TransactionMetadata) -> list[tuple[str, ProducerIdentity]]:
    return [(txn.transactional_id, txn.identity) for txn in each]


def begin(before: TransactionGroup | None, *each: TransactionMetadata) -> TransactionGroupDecision:
    ask = Begin(group="g", owner="query 8", client=DRIVER, timeout_ms=TIMEOUT_MS)
    return group_state.begin(before, members(*each), ask, NOW)


def commit(
    before: TransactionGroup | None,
    *each: TransactionMetadata,
    epoch: int = 3,
    token: str = "q:7",
    transactions: list[tuple[str, ProducerIdentity]] | None = None,
    fresh_ids: Mapping[str, int] = NO_FRESH_IDS,
) -> TransactionGroupDecision:
    listing = listed(*each) if transactions is None else transactions
    ask = Decide(group="g", epoch=epoch, token=token, commit=True, transactions=listing, client=DRIVER)
    return group_state.decide(before, members(*each), ask, NOW, fresh_ids)


def abort(before: TransactionGroup | None, *each: TransactionMetadata, epoch: int = 3) -> TransactionGroupDecision:
    return group_state.decide(before, members(*each), Decide(group="g", epoch=epoch, commit=False, client=DRIVER), NOW)


def refusal(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value


def states(decision: TransactionGroupDecision) -> dict[str, TransactionState]:
    return {txn.transactional_id: txn.state for txn in decision.members}


# --- the table ---


@pytest.mark.parametrize("before", list(TransactionGroupState))
@pytest.mark.parametrize("after", list(TransactionGroupState))
def test_only_the_transitions_of_the_table_are_made(
    before: TransactionGroupState, after: TransactionGroupState
) -> None:
    then = group(after, epoch=3 + (after is OPEN), decided_epoch=3)
    if after in NEXT[before]:
        check_successor(group(before), then)
    else:
        with pytest.raises(AssertionError):
            check_successor(group(before), then)


def test_a_group_comes_to_be_by_being_begun() -> None:
    check_successor(None, group(OPEN))
    with pytest.raises(AssertionError):
        check_successor(None, group(COMMITTED))


@pytest.mark.parametrize(
    "then",
    [
        group(COMMITTED, epoch=4),
        group(OPEN, epoch=3),
        group(OPEN, epoch=5),
        group(COMMITTED, name="other"),
        group(ABORTED, decided_epoch=1),
    ],
)
def test_a_group_that_cannot_follow_is_a_bug(then: TransactionGroup) -> None:
    with pytest.raises(AssertionError):
        check_successor(group(OPEN), then)


# --- begin ---


def test_the_first_step_is_the_first() -> None:
    then = begin(None).then
    assert then is not None
    assert (then.epoch, then.state, then.decided_token, then.decided_epoch) == (1, OPEN, None, -1)
    assert (then.owner, then.client, then.begin_ms) == ("query 8", DRIVER, NOW)


@pytest.mark.parametrize("in_state", [OPEN, COMMITTED, ABORTED])
def test_a_step_can_always_be_begun_and_returns_the_last_committed_token(in_state: TransactionGroupState) -> None:
    before = group(in_state, note="something")
    then = begin(before).then
    assert then is not None
    assert (then.epoch, then.state, then.note) == (4, OPEN, "")
    assert (then.decided_token, then.decided_epoch) == (before.decided_token, before.decided_epoch)


def test_a_begin_fences_and_aborts_open_transactions_only() -> None:
    quiet = [member(s.label, s) for s in (EMPTY, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)]
    decision = begin(group(), member("open"), *quiet)
    assert states(decision) == {"g/open": PREPARE_ABORT}
    (aborted,) = decision.members
    assert aborted.identity.epoch == 5
    error = refusal(lambda: state.add_partitions(aborted, member("open").identity, [A], NOW))
    assert error.code is FENCED
    assert aborted.fences[-1].reason is FenceReason.GROUP_BEGUN
    for words in ("a new step", "step 4 of 'g'", "query 8", "driver-2", "2023-11-14"):
        assert words in error.message, (words, error.message)


# --- decide ---


def test_a_commit_commits_the_listed_and_aborts_the_others_at_once() -> None:
    mine = [member("a"), member("b", epoch=EPOCH_LAST - 1)]
    others = [member("late"), member("idle", EMPTY), member("ended", COMPLETE_ABORT)]
    decision = commit(group(), *mine, *others, transactions=listed(*mine))
    assert states(decision) == {"g/a": PREPARE_COMMIT, "g/b": PREPARE_COMMIT, "g/late": PREPARE_ABORT}
    then = decision.then
    assert then is not None
    assert (then.state, then.epoch, then.decided_token, then.decided_epoch) == (COMMITTED, 3, "q:7", 3)
    late = decision.members[-1]
    error = refusal(lambda: state.add_partitions(late, member("late").identity, [A], NOW))
    assert error.code is FENCED
    assert "step 3 was committed as 'q:7'" in error.message


def test_every_commit_bumps_the_epoch_so_that_nothing_late_gets_in() -> None:
    before = member("a")
    (then,) = commit(group(), before).members
    assert then.identity == before.identity.successor
    assert then.last_identity == before.identity
    assert refusal(lambda: state.add_partitions(then, before.identity, [A], NOW)).code is FENCED


def test_an_empty_batch_moves_the_token() -> None:
    decision = commit(group(), token="q:empty")
    assert decision.then is not None
    assert (decision.then.state, decision.then.decided_token, decision.members) == (COMMITTED, "q:empty", ())


@pytest.mark.parametrize("in_state", [OPEN, COMMITTED, ABORTED])
@pytest.mark.parametrize("epoch", [1, 3, 9])
def test_a_committed_token_is_recognised_in_any_step(in_state: TransactionGroupState, epoch: int) -> None:
    before = group(in_state)
    assert before.decided_token is not None
    decision = commit(before, member("a"), epoch=epoch, token=before.decided_token)
    assert (decision.already, decision.then, decision.members) == (True, None, ())
    assert decision.group is before


def test_epochs_that_are_used_up_take_a_fresh_producer_id_each() -> None:
    worn = [member("a", epoch=EPOCH_LAST), member("b", epoch=EPOCH_LAST), member("c")]
    a, b = (txn.transactional_id for txn in worn[:2])
    for fresh_ids, needs in (({}, a), ({a: 900}, b), ({b: 901}, a)):
        with pytest.raises(NeedsProducerIdError) as need:
            commit(group(), *worn, fresh_ids=fresh_ids)
        assert need.value.transactional_id == needs
    decision = commit(group(), *worn, fresh_ids={b: 901, a: 900})
    assert [txn.identity.producer_id for txn in decision.members] == [900, 901, worn[2].producer_id]
    assert [txn.producer_id for txn in decision.members] == [txn.producer_id for txn in worn], "markers: the old one"


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda: commit(None), ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "no transaction group 'g'"),
        (lambda: abort(None), ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "no transaction group 'g'"),
        (lambda: commit(group(), token=""), INVALID, "token"),
        (lambda: commit(group(), epoch=2), FENCED, "query 7, client 'driver-1' at 10.0.0.8"),
        (lambda: commit(group(), epoch=2), FENCED, "step 3 was begun at 2023-11-14"),
        (lambda: abort(group(), epoch=2), FENCED, "step 2 of transaction group 'g' is over"),
        (lambda: commit(group(), epoch=4), FENCED, "its last one is step 3"),
        (lambda: commit(group(COMMITTED), token="q:8"), STATE, "was committed as 'q:7'"),
        (lambda: commit(group(ABORTED, note="open for 9 ms")), STATE, "aborted at 2023-11-14 22:13:19 UTC: open for 9"),
        (lambda: abort(group(COMMITTED)), STATE, "was committed as 'q:7'"),
        (lambda: commit(group(), transactions=[("h/a", ProducerIdentity(1, 1))]), INVALID, "h/a is no member"),
        (lambda: commit(group(), transactions=[("g/a/b", ProducerIdentity(1, 1))]), INVALID, "g/a/b is no member"),
        (lambda: commit(group(), member("a"), transactions=listed(member("a")) * 2), INVALID, "twice"),
    ],
)
def test_a_refused_decision_says_why(call: Callable[[], TransactionGroupDecision], code: ErrorCode, words: str) -> None:
    error = refusal(call)
    assert error.code is code
    assert words in error.message


@pytest.mark.parametrize(
    ("there", "producer", "code"),
    [
        (None, member("a").identity, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (member("a"), ProducerIdentity(1, 4), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (member("a"), ProducerIdentity(member("a").producer_id, 3), FENCED),
        (member("a", EMPTY), member("a").identity, STATE),
        (member("a", PREPARE_ABORT), member("a").identity, STATE),
        (member("a", COMPLETE_ABORT), member("a").identity, STATE),
        (member("a", COMPLETE_COMMIT), member("a").identity, STATE),
        (member("a", group_epoch=2), member("a").identity, STATE),
        (member("a", group_epoch=-1), member("a").identity, STATE),
    ],
)
def test_one_transaction_that_differs_from_the_drivers_list_refuses_the_commit(
    there: TransactionMetadata | None, producer: ProducerIdentity, code: ErrorCode
) -> None:
    good = member("good")
    known = (good,) if there is None else (good, there)
    error = refusal(lambda: commit(group(), *known, transactions=[*listed(good), ("g/a", producer)]))
    assert error.code is code
    assert "g/a" in error.message


def test_an_abort_aborts_everything_and_may_be_repeated() -> None:
    decision = abort(group(), member("a"), member("b"), member("idle", EMPTY))
    assert states(decision) == {"g/a": PREPARE_ABORT, "g/b": PREPARE_ABORT}
    assert decision.then is not None
    assert (decision.then.state, decision.then.decided_token) == (ABORTED, "q:6")
    again = abort(decision.then)
    assert (again.then, again.members, again.already) == (None, (), False)


# --- forget ---


@pytest.mark.parametrize("in_state", [COMMITTED, ABORTED])
def test_a_decided_group_is_forgotten_with_its_members(in_state: TransactionGroupState) -> None:
    known = [member("a", COMPLETE_COMMIT), member("b", COMPLETE_ABORT), member("idle", EMPTY, group_epoch=2)]
    decision = group_state.forget(group(in_state), members(*known), "g", 3)
    assert decision.then is not None
    assert group_row(decision.then)[1] is None
    assert [row_of(txn)[1] for txn in decision.members] == [None] * 3


def test_forgetting_an_unknown_group_changes_nothing() -> None:
    assert group_state.forget(None, {}, "g", 3) == TransactionGroupDecision()


@pytest.mark.parametrize(
    ("before", "epoch", "known", "code"),
    [
        (group(), 3, (), STATE),
        (group(COMMITTED), 2, (), FENCED),
        (group(COMMITTED), 3, (member("a", PREPARE_COMMIT),), ErrorCode.CONCURRENT_TRANSACTIONS),
        (group(ABORTED), 3, (member("a", PREPARE_ABORT),), ErrorCode.CONCURRENT_TRANSACTIONS),
        (group(ABORTED), 3, (member("a"),), ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
def test_a_group_that_is_in_use_is_not_forgotten(
    before: TransactionGroup, epoch: int, known: tuple[TransactionMetadata, ...], code: ErrorCode
) -> None:
    error = refusal(lambda: group_state.forget(before, members(*known), "g", epoch))
    assert error.code is code
    assert "'g'" in error.message


# --- members ---


@pytest.mark.parametrize(
    ("name", "group_name"), [("g/a", "g"), ("a/b/c", "a/b"), ("g/", "g"), ("plain", ""), ("/a", ""), ("", "")]
)
def test_the_last_slash_parts_group_and_member(name: str, group_name: str) -> None:
    assert group_of(name) == group_name
    assert transaction_partition(name, 50) == coordinator_partition(group_name or name, 50)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (None, "the group is not known"),
        (group(epoch=4), "step 4 was begun at 2023-11-14"),
        (group(epoch=2), "its last one is step 2"),
        (group(COMMITTED), "step 3 was committed as 'q:7'"),
        (group(ABORTED, note="open for 9 ms"), "open for 9 ms"),
    ],
)
def test_a_member_opens_nothing_unless_its_step_is_open(known: TransactionGroup | None, words: str) -> None:
    mine = member("a", EMPTY)
    calls = (
        lambda: check_step("g/a", 3, known),
        lambda: state.add_partitions(mine, mine.identity, [A], NOW, group=known),
        lambda: state.add_partitions(member("a"), mine.identity, [("b", 1)], NOW, group=known),
        lambda: state.verify(member("a"), mine.identity, A, known),
    )
    for call in calls:
        error = refusal(call)
        assert error.code is FENCED
        assert "g/a: step 3 of transaction group 'g' is not open" in error.message
        assert words in error.message


def test_a_member_of_an_open_step_works_like_an_ordinary_producer() -> None:
    mine = member("a", EMPTY)
    then = state.add_partitions(mine, mine.identity, [A], NOW, group=group()).then
    assert then is not None
    assert (then.state, then.group_epoch) == (ONGOING, 3)
    state.verify(then, mine.identity, A, group())


def test_an_id_with_a_slash_that_joined_nothing_is_an_ordinary_one() -> None:
    mine = member("a", EMPTY, group_epoch=-1)
    for known in (None, group(COMMITTED), group(epoch=9)):
        then = state.add_partitions(mine, mine.identity, [A], NOW, group=known).then
        assert then is not None
        assert state.end(then, End(producer=mine.identity, commit=True), NOW).awaits_markers
        assert state.is_timed_out(then, NOW + TIMEOUT_MS + 1, known)


@pytest.mark.parametrize("in_state", list(TransactionState)[:6])
@pytest.mark.parametrize("version", [0, 2])
def test_a_member_never_commits_by_itself(in_state: TransactionState, version: int) -> None:
    mine = member("a", in_state)
    error = refusal(lambda: state.end(mine, End(producer=mine.identity, commit=True, version=version), NOW))
    assert error.code is STATE
    assert "DecideTransactionGroup commits it" in error.message


@pytest.mark.parametrize("version", [0, 2])
def test_a_member_may_abort_by_itself(version: int) -> None:
    mine = member("a")
    then = state.end(mine, End(producer=mine.identity, commit=False, version=version), NOW).then
    assert then is not None
    assert (then.state, then.group_epoch) == (PREPARE_ABORT, 3)


def test_a_prepared_member_is_nobodys_to_keep() -> None:
    ask = Init(transactional_id="g/a", timeout_ms=1, keep_prepared=True)
    assert refusal(lambda: state.init(member("a"), ask, NOW)).code is STATE


def test_an_operators_init_makes_a_member_an_ordinary_id() -> None:
    ask = Init(transactional_id="g/a", timeout_ms=1, note="stuck")
    fencing = state.init(member("a"), ask, NOW).then
    assert fencing is not None
    taken = state.init(state.complete(fencing, NOW), ask, NOW)
    assert taken.then is not None
    assert taken.then.group_epoch == -1


def test_a_member_of_a_committed_step_joins_the_next_with_its_identity() -> None:
    before = member("a")
    (decided,) = commit(group(), before).members
    ask = Init(transactional_id="g/a", timeout_ms=5, expected=before.identity, group_epoch=4)
    joined = state.init(state.complete(decided, NOW), ask, NOW)
    assert joined.then is not None
    assert (joined.answer, joined.then.group_epoch, joined.then.state) == (before.identity.successor, 4, EMPTY)


def test_a_member_that_joins_while_the_last_step_is_being_ended_waits() -> None:
    (decided,) = commit(group(), member("a")).members
    ask = Init(transactional_id="g/a", timeout_ms=5, group_epoch=4)
    assert refusal(lambda: state.init(decided, ask, NOW)).code is ErrorCode.CONCURRENT_TRANSACTIONS


# --- time ---


def test_a_step_is_timed_out_as_a_whole_from_the_begin_of_its_first_transaction() -> None:
    each = [member("a", start_ms=NOW), member("b", start_ms=NOW - 7_000), member("idle", EMPTY, start_ms=1)]
    last = NOW - 7_000 + TIMEOUT_MS
    assert group_state.time_out(group(), members(*each), last, BROKER) == TransactionGroupDecision()
    for txn in each:
        assert not state.is_timed_out(txn, last * 2, group()), "a member never is, by itself"
    decision = group_state.time_out(group(), members(*each), last + 1, BROKER)
    assert states(decision) == {"g/a": PREPARE_ABORT, "g/b": PREPARE_ABORT}
    assert decision.then is not None
    assert decision.then.state is ABORTED
    assert decision.then.note == "open for 60001 ms, allowed were 60000 ms"
    error = refusal(lambda: state.add_partitions(decision.members[0], each[0].identity, [A], NOW))
    assert "open for longer than its transaction.timeout.ms" in error.message
    assert "step 3 of 'g': open for 60001 ms" in error.message


@pytest.mark.parametrize("known", [group(COMMITTED), group(ABORTED), None])
def test_a_decided_or_unknown_group_does_not_time_out(known: TransactionGroup | None) -> None:
    assert group_state.time_out(known, members(member("a")), NOW * 2, BROKER) == TransactionGroupDecision()


@pytest.mark.parametrize("known", [None, group(epoch=4), group(COMMITTED)])
def test_a_member_of_an_unknown_step_times_out(known: TransactionGroup | None) -> None:
    orphan = member("a")
    assert not state.is_timed_out(orphan, orphan.start_ms + TIMEOUT_MS, known)
    assert state.is_timed_out(orphan, orphan.start_ms + TIMEOUT_MS + 1, known)


@pytest.mark.parametrize("in_state", [COMMITTED, ABORTED])
def test_an_unused_group_without_members_is_forgotten(in_state: TransactionGroupState) -> None:
    before = group(in_state)
    due = before.last_update_ms + 100
    assert group_state.expire(before, {}, due - 1, 100) == TransactionGroupDecision()
    assert group_state.expire(before, members(member("a", EMPTY)), due, 100) == TransactionGroupDecision()
    then = group_state.expire(before, {}, due, 100).then
    assert then is not None
    assert then.state is DEAD
    assert group_row(then)[1] is None


def test_an_abandoned_step_is_aborted_before_its_group_is_forgotten() -> None:
    before = group(OPEN)
    due = before.last_update_ms + 100
    assert group_state.expire(before, members(member("a")), due, 100) == TransactionGroupDecision(), (
        "it is the timeout's"
    )
    then = group_state.expire(before, members(member("a", EMPTY)), due, 100).then
    assert then is not None
    assert (then.state, then.last_update_ms) == (ABORTED, due)
    assert "nothing is open" in then.ended


# --- records ---


@pytest.mark.parametrize("each", [group(), group(COMMITTED), group(ABORTED, note="why", decided_token=None)])
def test_a_group_is_read_as_it_was_written(each: TransactionGroup) -> None:
    key, value = group_row(each)
    assert value is not None
    assert group_key_of(key) == "g"
    assert group_of_row("g", value) == each
    assert key_of(key) is None, "no transactional id"


@pytest.mark.parametrize("in_state", [EMPTY, ONGOING, COMPLETE_COMMIT])
def test_a_member_is_read_as_it_was_written(in_state: TransactionState) -> None:
    mine = member("a", in_state)
    key, value = row_of(mine)
    assert value is not None
    assert group_key_of(key) is None
    assert metadata_of("g/a", value) == mine
