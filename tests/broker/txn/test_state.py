"""Decisions about one transactional id in every state, as a table, and by rows for known bugs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from semel_broker.coordination.errors import for_version
from semel_broker.coordination.producer_ids import NeedsProducerIdError
from semel_broker.txn.model import state
from semel_broker.txn.model.identity import EPOCH_LAST, EPOCH_MAX, NO_IDENTITY, ClientName, ProducerIdentity
from semel_broker.txn.model.ledger import FenceReason
from semel_broker.txn.model.metadata import (
    BETWEEN,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    NEXT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    PREPARED,
    TIMEOUT_NEVER_MS,
    TransactionMetadata,
    TransactionState,
)
from semel_broker.txn.model.requests import End, Init, TransactionRules, TransactionStep
from semel_protocol.api_key import ApiKey
from semel_protocol.errors import ErrorCode, KafkaError

NOW = 1_700_000_000_000
TIMEOUT_MS = 60_000
FRESH = 900
PID = 5
A, B = ("a", 0), ("b", 3)
NEWCOMER = ClientName("newcomer", "10.0.0.2")
BROKER = ClientName(host="broker 0")


def txn(in_state: TransactionState = EMPTY, epoch: int = 3, **fields: object) -> TransactionMetadata:
    opened = in_state in (ONGOING, *PREPARED)
    base = TransactionMetadata(
        transactional_id="t",
        producer_id=PID,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        state=in_state,
        partitions={A: None} if opened else {},
        last_update_ms=NOW - 1_000,
        start_ms=NOW - 1_000 if in_state is not EMPTY else -1,
    )
    return replace(base, **fields)


def me(epoch: int = 3, producer_id: int = PID) -> ProducerIdentity:
    return ProducerIdentity(producer_id, epoch)


def init(
    before: TransactionMetadata | None, expected: ProducerIdentity = NO_IDENTITY, **fields: object
) -> TransactionStep:
    ask = Init(transactional_id="t", timeout_ms=TIMEOUT_MS, expected=expected, client=NEWCOMER)
    return state.init(before, replace(ask, **fields), NOW, FRESH)


def end(
    before: TransactionMetadata | None, commit: bool, epoch: int = 3, version: int = 0, pid: int = PID
) -> TransactionStep:
    return state.end(before, End(producer=me(epoch, pid), commit=commit, version=version), NOW, FRESH)


def code_of(act: Callable[[], object]) -> ErrorCode:
    """The error code of the refusal, or NONE."""
    try:
        act()
    except KafkaError as error:
        return error.code if error.message else ErrorCode.UNKNOWN_SERVER_ERROR  # every refusal has words
    return ErrorCode.NONE


def completed(step: TransactionStep) -> TransactionMetadata:
    assert step.then is not None
    return state.complete(step.then, NOW + 1)


OK = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
STATE = ErrorCode.INVALID_TXN_STATE
WAIT = ErrorCode.CONCURRENT_TRANSACTIONS

# --- every request in every state ----------------------------------------------------------------------------

IN_EVERY_STATE = {
    #                 init  add   commit abort commit2 abort2 (2: transaction version 2)
    EMPTY:           (OK,   OK,   STATE, STATE, STATE, OK),
    ONGOING:         (OK,   OK,   OK,    OK,    OK,    OK),
    PREPARE_COMMIT:  (WAIT, WAIT, WAIT,  STATE, WAIT,  STATE),
    PREPARE_ABORT:   (WAIT, WAIT, STATE, WAIT,  STATE, WAIT),
    COMPLETE_COMMIT: (OK,   OK,   OK,    STATE, STATE, OK),
    COMPLETE_ABORT:  (OK,   OK,   STATE, OK,    STATE, OK),
}  # fmt: skip


@pytest.mark.proves("init-producer-id")
@pytest.mark.parametrize("in_state", IN_EVERY_STATE)
def test_each_request_in_each_state(in_state: TransactionState) -> None:
    before = txn(in_state)
    asked = (
        lambda: init(before),
        lambda: state.add_partitions(before, me(), [B], NOW),
        lambda: end(before, True),
        lambda: end(before, False),
        lambda: end(before, True, version=2),
        lambda: end(before, False, version=2),
    )
    assert tuple(map(code_of, asked)) == IN_EVERY_STATE[in_state]


@pytest.mark.proves("init-producer-id")
@pytest.mark.parametrize("in_state", IN_EVERY_STATE)
@pytest.mark.parametrize(
    ("producer", "code"), [(me(2), FENCED), (me(4), FENCED), (me(3, 77), MAPPING)], ids=["old", "future", "stranger"]
)
def test_a_producer_that_does_not_own_the_id_is_refused_in_every_state(
    in_state: TransactionState, producer: ProducerIdentity, code: ErrorCode
) -> None:
    before = txn(in_state)
    assert code_of(lambda: state.add_partitions(before, producer, [A], NOW)) is code
    assert code_of(lambda: state.verify(before, producer, A)) is code
    for commit in (True, False):
        for version in (0, 2):
            ask = End(producer=producer, commit=commit, version=version)
            assert code_of(lambda ask=ask: state.end(before, ask, NOW, FRESH)) is code  # type: ignore[misc]


def test_an_id_that_is_not_known_owns_nothing() -> None:
    assert code_of(lambda: state.add_partitions(None, me(), [A], NOW)) is MAPPING
    assert code_of(lambda: state.verify(None, me(), A)) is MAPPING
    assert code_of(lambda: end(None, True)) is MAPPING
    assert code_of(lambda: end(None, True, version=2)) is MAPPING


def test_every_step_is_in_the_table() -> None:
    taken = set()
    for in_state in IN_EVERY_STATE:
        before = txn(in_state)
        for act in (
            lambda before=before: init(before).then,
            lambda before=before: state.add_partitions(before, me(), [B], NOW).then,
            lambda before=before: end(before, True).then,
            lambda before=before: end(before, False, version=2).then,
            lambda before=before: state.time_out(before, NOW + TIMEOUT_MS, BROKER).then,
            lambda before=before: state.complete(before, NOW) if before.is_prepared else None,
            lambda before=before: state.expire(before, NOW, 1, BROKER) if before.state in BETWEEN else None,
        ):
            if code_of(act) is OK and (then := act()) is not None:  # type: ignore[no-untyped-call]
                state.check_successor(before, then)
                taken.add((in_state, then.state))
    taken.add((PREPARE_EPOCH_FENCE, state.taken_over(txn(PREPARE_EPOCH_FENCE), NOW, BROKER).state))
    table = {(before, after) for before, follows in NEXT.items() for after in follows}
    assert table - taken == {(ONGOING, PREPARE_EPOCH_FENCE)}, "another coordinator's"


@pytest.mark.parametrize(
    ("before", "then"),
    [
        (txn(DEAD), txn(EMPTY)),
        (None, txn(ONGOING)),
        (txn(ONGOING), replace(txn(ONGOING), transactional_id="other")),
        (txn(ONGOING), replace(txn(ONGOING), producer_epoch=2)),
        (txn(ONGOING), replace(txn(PREPARE_COMMIT), partitions={B: None})),
        (txn(ONGOING), replace(txn(ONGOING), partitions={})),
        (txn(ONGOING), replace(txn(ONGOING), start_ms=NOW + 1)),
        (txn(PREPARE_COMMIT), replace(txn(COMPLETE_COMMIT), partitions={A: None})),
        (txn(PREPARE_COMMIT), replace(txn(COMPLETE_COMMIT), next_producer_id=8)),
    ],
)
def test_metadata_that_cannot_follow_is_a_bug(before: TransactionMetadata | None, then: TransactionMetadata) -> None:
    with pytest.raises(AssertionError):
        state.check_successor(before, then)


# --- initialising --------------------------------------------------------------------------------------------


def test_a_new_id_gets_a_fresh_producer_id_and_epoch_0() -> None:
    step = init(None)
    assert step.answer == ProducerIdentity(FRESH, 0)
    assert step.then is not None
    assert (step.then.state, step.then.owner, step.then.fences) == (EMPTY, NEWCOMER, ())
    with pytest.raises(NeedsProducerIdError):
        state.init(None, Init(transactional_id="t", timeout_ms=1), NOW)


@pytest.mark.parametrize("in_state", BETWEEN)
def test_a_new_instance_gets_the_next_epoch_and_a_line_in_the_ledger(in_state: TransactionState) -> None:
    step = init(txn(in_state))
    assert step.answer == me(4)
    assert step.then is not None
    assert (step.then.state, step.then.last_identity) == (EMPTY, NO_IDENTITY)
    (fence,) = step.then.fences
    assert (fence.reason, fence.by, fence.old, fence.new) == (FenceReason.NEW_INSTANCE, NEWCOMER, me(3), me(4))
    with pytest.raises(KafkaError, match=r"epoch 3 gave way to epoch 4 .* client 'newcomer' at 10\.0\.0\.2"):
        end(step.then, True)


def test_a_new_instance_fences_and_aborts_an_ongoing_transaction_first() -> None:
    first = init(txn(ONGOING))
    assert first.answer is None
    assert first.then is not None
    assert (first.then.state, first.then.producer_epoch, dict(first.then.partitions)) == (PREPARE_ABORT, 4, {A: None})
    second = init(completed(first))
    assert second.answer == me(5), "no producer ever gets the epoch that fenced"


@pytest.mark.parametrize("note", ["", "stuck since Monday"], ids=["new instance", "operator"])
def test_the_abort_and_the_epoch_of_one_request_are_one_line_of_the_ledger(note: str) -> None:
    before = replace(txn(ONGOING), start_ms=NOW - 10)
    taken = init(completed(init(before, note=note)), note=note).then
    assert taken is not None
    (fence,) = taken.fences
    assert (fence.at_ms, fence.old, fence.new, fence.note) == (NOW, me(3), me(5), note)
    with pytest.raises(KafkaError, match="epoch 3 gave way to epoch 5"):
        end(taken, True)


def test_an_epoch_that_was_used_has_a_line_of_its_own_when_the_same_client_takes_it() -> None:
    taken = init(completed(init(replace(txn(ONGOING), start_ms=NOW - 10)))).then
    assert taken is not None
    begun = state.add_partitions(taken, me(5), [A], NOW).then
    aborted = completed(end(begun, False, epoch=5))
    again = init(aborted).then
    assert again is not None
    assert [(fence.old.epoch, fence.new.epoch) for fence in again.fences] == [(3, 5), (5, 6)]


@pytest.mark.proves("failed-fence")
def test_a_failed_fence_append_does_not_bump_the_epoch_again_and_again() -> None:
    before = txn(ONGOING)
    assert init(before).then == init(before).then


def test_kip360_a_producer_resumes_with_its_identity() -> None:
    step = init(txn(COMPLETE_ABORT), expected=me(3))
    assert step.answer == me(4)
    assert step.then is not None
    assert step.then.fences[-1].reason is FenceReason.RESUMED


def test_kip360_a_lost_reply_is_asked_for_again() -> None:
    step = init(txn(COMPLETE_ABORT), expected=me(3))
    again = init(step.then, expected=me(3))
    assert again.answer == step.answer
    assert again.then is not None
    assert len(again.then.fences) == 1


def test_kip360_a_zombie_does_not_resume() -> None:
    taken = init(txn(COMPLETE_COMMIT)).then
    for in_state in (EMPTY, ONGOING, *PREPARED, COMPLETE_ABORT, COMPLETE_COMMIT):
        now = replace(taken, state=in_state)
        assert code_of(lambda now=now: init(now, expected=me(3))) is FENCED  # type: ignore[misc]
        assert code_of(lambda now=now: init(now, expected=me(3, 77))) is FENCED  # type: ignore[misc]


def test_kip360_its_own_ongoing_transaction_is_aborted_in_the_same_request() -> None:
    first = init(txn(ONGOING), expected=me(3))
    assert first.answer is None
    second = init(completed(first), expected=me(3))
    assert second.answer == me(4)


def test_a_late_question_does_not_abort_the_transaction_that_began_after_its_answer() -> None:
    bumped = init(txn(EMPTY), expected=me(3)).then
    begun = state.add_partitions(bumped, me(4), [A], NOW).then
    assert code_of(lambda: init(begun, expected=me(3))) is FENCED


@pytest.mark.proves("epochs-used-up")
def test_epochs_are_used_up_and_the_producer_id_rotates() -> None:
    last = init(txn(EMPTY, EPOCH_LAST - 1)).then
    assert last is not None
    assert last.identity == me(EPOCH_LAST)
    step = init(last)
    assert step.answer == ProducerIdentity(FRESH, 0)
    assert step.then is not None
    assert step.then.previous_producer_id == PID
    with pytest.raises(KafkaError, match="is fenced"):
        end(step.then, True, EPOCH_LAST)
    with pytest.raises(NeedsProducerIdError):
        state.init(last, Init(transactional_id="t", timeout_ms=1), NOW)


def test_a_lost_reply_about_a_rotation_is_asked_for_again() -> None:
    step = init(txn(EMPTY, EPOCH_LAST), expected=me(EPOCH_LAST))
    assert step.answer == ProducerIdentity(FRESH, 0)
    assert init(step.then, expected=me(EPOCH_LAST)).answer == step.answer
    assert code_of(lambda: init(step.then, expected=me(EPOCH_LAST - 1))) is FENCED


@pytest.mark.parametrize("expected", [NO_IDENTITY, me(EPOCH_LAST)], ids=["new instance", "resumed"])
def test_the_epoch_reserved_for_fences_is_not_allocated(expected: ProducerIdentity) -> None:
    first = init(txn(ONGOING, EPOCH_LAST), expected=expected)
    assert first.then is not None
    assert first.then.producer_epoch == EPOCH_MAX
    second = init(completed(first), expected=expected)
    assert second.answer == ProducerIdentity(FRESH, 0)
    assert init(second.then, expected=expected).answer == ProducerIdentity(FRESH, 0 if expected else 1)


def test_the_words_of_an_operator_are_in_the_ledger() -> None:
    then = init(txn(EMPTY), note="stuck since Monday").then
    assert then is not None
    assert (then.fences[-1].reason, then.fences[-1].note) == (FenceReason.ADMIN, "stuck since Monday")


RULES = TransactionRules(timeout_ms_max=900_000)


@pytest.mark.parametrize(
    ("asked_ms", "options", "code"),
    [
        (1, {}, OK),
        (900_000, {}, OK),
        (0, {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (-1, {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (900_001, {}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (1, {"enable_2pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (1, {"keep_prepared": True}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_timeouts_that_may_be_asked_for(asked_ms: int, options: dict[str, bool], code: ErrorCode) -> None:
    flags = {"enable_2pc": False, "keep_prepared": False, **options}
    assert code_of(lambda: RULES.timeout_ms_of(asked_ms, **flags)) is code


# --- partitions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_state", BETWEEN)
def test_the_first_partition_opens_the_transaction_and_starts_its_clock(in_state: TransactionState) -> None:
    then = state.add_partitions(txn(in_state), me(), [A, B], NOW, version=2).then
    assert then is not None
    assert (then.state, then.start_ms, list(then.partitions)) == (ONGOING, NOW, [A, B])
    assert then.client_transaction_version == 2


def test_enrolling_a_partition_again_writes_nothing() -> None:
    step = state.add_partitions(txn(ONGOING), me(), [A], NOW)
    assert (step.then, step.answer) == (None, me())


def test_more_partitions_do_not_move_the_clock() -> None:
    before = txn(ONGOING)
    then = state.add_partitions(before, me(), [A, B], NOW).then
    assert then is not None
    assert (then.start_ms, list(then.partitions)) == (before.start_ms, [A, B])


@pytest.mark.proves("records-after-the-marker")
@pytest.mark.parametrize("in_state", [EMPTY, *PREPARED, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_hanging_transaction_data_after_the_marker_is_refused(in_state: TransactionState) -> None:
    assert code_of(lambda: state.verify(txn(in_state), me(), A)) is STATE


def test_data_is_written_into_enrolled_partitions_only() -> None:
    state.verify(txn(ONGOING), me(), A)
    assert code_of(lambda: state.verify(txn(ONGOING), me(), B)) is STATE


# --- the end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_version_1_keeps_the_epoch_and_answers_a_retry(commit: bool) -> None:
    step = end(txn(ONGOING), commit)
    assert (step.answer, step.awaits_markers) == (me(), True)
    done = completed(step)
    assert (done.state, done.identity, done.partitions) == (
        COMPLETE_COMMIT if commit else COMPLETE_ABORT,
        me(),
        {},
    )
    assert end(done, commit) == TransactionStep(None, me())
    assert code_of(lambda: end(done, not commit)) is STATE


@pytest.mark.parametrize("commit", [True, False])
def test_kip890_version_2_bumps_the_epoch_at_every_end(commit: bool) -> None:
    step = end(txn(ONGOING), commit, version=2)
    assert step.then is not None
    assert (step.then.producer_epoch, step.answer) == (4, me(4)), "markers carry the new epoch: it fences late writes"
    assert completed(step).identity == me(4)
    assert completed(step).fences == (), "no producer was fenced"


@pytest.mark.parametrize("commit", [True, False])
def test_kip890_a_commit_whose_answer_was_lost_is_recognised_by_the_epoch_before(commit: bool) -> None:
    step = end(txn(ONGOING), commit, version=2)
    assert code_of(lambda: end(step.then, commit, version=2)) is WAIT
    assert code_of(lambda: end(step.then, not commit, version=2)) is STATE
    done = completed(step)
    assert end(done, commit, version=2) == TransactionStep(None, me(4))
    assert code_of(lambda: end(done, not commit, version=2)) is STATE


@pytest.mark.proves("late-transaction-request")
def test_late_end_txn_of_transaction_n_does_not_end_n_plus_1() -> None:
    done = completed(end(txn(ONGOING), True, version=2))
    begun = state.add_partitions(done, me(4), [B], NOW, version=2).then
    for commit in (True, False):
        assert code_of(lambda commit=commit: end(begun, commit, version=2)) is FENCED  # type: ignore[misc]
    assert code_of(lambda: state.add_partitions(begun, me(3), [A], NOW, version=2)) is FENCED
    assert code_of(lambda: state.verify(begun, me(3), B)) is FENCED


@pytest.mark.proves("empty-commit")
@pytest.mark.parametrize("in_state", BETWEEN)
def test_empty_commit_is_refused_and_empty_abort_bumps_the_epoch_with_version_2(in_state: TransactionState) -> None:
    assert code_of(lambda: end(txn(in_state), True, version=2)) is STATE
    step = end(txn(in_state), False, version=2)
    assert step.then is not None
    assert (step.then.state, step.then.partitions, step.answer) == (PREPARE_ABORT, {}, me(4))
    assert completed(step).state is COMPLETE_ABORT


@pytest.mark.parametrize("commit", [True, False])
def test_kip890_epoch_exhaustion_rotates_the_producer_id_at_the_end(commit: bool) -> None:
    step = end(txn(ONGOING, EPOCH_LAST), commit, EPOCH_LAST, version=2)
    prepared = step.then
    assert prepared is not None
    assert (prepared.producer_id, prepared.producer_epoch) == (PID, EPOCH_MAX), "the data's id, fenced"
    assert step.answer == prepared.identity == ProducerIdentity(FRESH, 0)
    assert code_of(lambda: end(prepared, commit, EPOCH_LAST, version=2)) is WAIT
    done = completed(step)
    assert (done.identity, done.previous_producer_id) == (ProducerIdentity(FRESH, 0), PID)
    assert end(done, commit, EPOCH_LAST, version=2) == TransactionStep(None, ProducerIdentity(FRESH, 0))
    assert done.fences[-1].reason is FenceReason.EPOCH_EXHAUSTED
    with pytest.raises(NeedsProducerIdError):
        state.end(txn(ONGOING, EPOCH_LAST), End(producer=me(EPOCH_LAST), commit=commit, version=2), NOW)


# --- time ----------------------------------------------------------------------------------------------------


@pytest.mark.proves("commit-and-timeout")
def test_commit_racing_the_timeout_abort_by_1_ms() -> None:
    before = txn(ONGOING, start_ms=NOW)
    due = NOW + TIMEOUT_MS
    assert not state.is_timed_out(before, due)
    assert state.is_timed_out(before, due + 1)
    committed = end(before, True).then
    assert state.time_out(committed, due + 1, BROKER) == TransactionStep(None, NO_IDENTITY), "the commit was first"
    aborted = state.time_out(before, due + 1, BROKER).then
    assert aborted is not None
    assert aborted.state is PREPARE_ABORT
    for version in (0, 2):
        assert code_of(lambda version=version: end(aborted, True, version=version)) is FENCED  # type: ignore[misc]
        done = state.complete(aborted, NOW)
        assert code_of(lambda version=version, done=done: end(done, True, version=version)) is FENCED  # type: ignore[misc]
    assert code_of(lambda: end(state.complete(aborted, NOW), False)) is FENCED, "there is no epoch left for it"


def test_a_producer_that_timed_out_may_abort_and_continue_where_an_end_bumps_the_epoch() -> None:
    """As Kafka 4.1.1: its Java client meets a timeout as an abortable error, and aborts."""
    aborted = state.time_out(txn(ONGOING, start_ms=NOW), NOW + TIMEOUT_MS + 1, BROKER).then
    assert aborted is not None
    assert code_of(lambda: end(aborted, False, version=2)) is ErrorCode.CONCURRENT_TRANSACTIONS, "until it is complete"
    done = state.complete(aborted, NOW)
    assert end(done, False, version=2) == TransactionStep(None, me(4))
    assert code_of(lambda: end(done, False, epoch=2, version=2)) is FENCED, "only the instance whose transaction it was"
    begun = state.add_partitions(done, me(4), [A], NOW, version=2).then
    assert code_of(lambda: end(begun, False, version=2)) is FENCED, "a late copy does not reach the next transaction"
    ended = completed(end(begun, True, epoch=4, version=2))
    assert code_of(lambda: end(ended, False, version=2)) is FENCED
    successor = init(done).then
    assert code_of(lambda: end(successor, False, version=2)) is FENCED, "a new instance is there"


def timed_out(epoch: int = 3) -> TransactionMetadata:
    aborted = state.time_out(txn(ONGOING, epoch, start_ms=NOW), NOW + TIMEOUT_MS + 1, BROKER).then
    assert aborted is not None
    return aborted


def test_a_producer_that_timed_out_may_initialise_itself_again_with_version_2() -> None:
    """As Kafka 4.3: it gets the epoch that the timeout left to it (KIP-360, KIP-890)."""
    aborted = timed_out()
    assert code_of(lambda: init(aborted, me(3), version=2)) is WAIT, "until it is complete"
    done = state.complete(aborted, NOW)
    step = init(done, me(3), version=2)
    assert step.answer == me(4)
    assert step.then is not None
    assert (step.then.state, step.then.identity, step.then.fences[-1].reason) == (EMPTY, me(4), FenceReason.RESUMED)
    assert init(step.then, me(3), version=2).answer == me(4), "a retry of a lost answer"
    begun = state.add_partitions(step.then, me(4), [A], NOW, version=2).then
    assert code_of(lambda: init(begun, me(3), version=2)) is FENCED, "a late copy does not abort the next transaction"
    ended = completed(end(begun, False, epoch=4))
    assert ended.state is COMPLETE_ABORT
    assert ended.timed_out == NO_IDENTITY


def test_a_producer_that_timed_out_is_fenced_with_version_1_and_once_another_instance_is_there() -> None:
    done = state.complete(timed_out(), NOW)
    assert code_of(lambda: init(done, me(3), version=1)) is FENCED
    for epoch in (2, 5):
        assert code_of(lambda epoch=epoch: init(done, me(epoch), version=2)) is FENCED  # type: ignore[misc]
    assert code_of(lambda: init(done, me(3, PID + 1), version=2)) is FENCED
    successor = init(done, version=2).then
    assert code_of(lambda: init(successor, me(3), version=2)) is FENCED
    aborted = completed(end(done, False, version=2, epoch=4))
    assert code_of(lambda: init(aborted, me(3), version=2)) is FENCED, "it has continued by itself"


def test_a_producer_that_timed_out_in_its_last_epoch_gets_a_new_id() -> None:
    done = state.complete(timed_out(EPOCH_LAST), NOW)
    step = init(done, me(EPOCH_LAST), version=2)
    assert step.answer == ProducerIdentity(FRESH, 0)
    assert init(step.then, me(EPOCH_LAST), version=2).answer == ProducerIdentity(FRESH, 0), "a retry"
    assert code_of(lambda: end(done, False, epoch=EPOCH_LAST, version=2)) is FENCED


@pytest.mark.parametrize("expected", [NO_IDENTITY, me(3), me(2)])
def test_an_id_that_is_not_bound_to_the_transactional_id_is_replaced(expected: ProducerIdentity) -> None:
    before = txn(EMPTY, last_producer_epoch=2)
    step = state.init(before, Init(transactional_id="t", timeout_ms=1, expected=expected), NOW, FRESH, is_bound=False)
    assert step.answer == ProducerIdentity(FRESH, 0)
    assert step.then is not None
    assert step.then.previous_producer_id == PID
    with pytest.raises(NeedsProducerIdError, match="t"):
        state.init(before, Init(transactional_id="t", timeout_ms=1, expected=expected), NOW, is_bound=False)


def test_an_open_transaction_under_an_id_that_is_not_bound_is_aborted_first() -> None:
    step = state.init(txn(ONGOING), Init(transactional_id="t", timeout_ms=1), NOW, FRESH, is_bound=False)
    assert (step.answer, completed(step).identity) == (None, me(4))
    assert state.init(
        completed(step), Init(transactional_id="t", timeout_ms=1), NOW, FRESH, is_bound=False
    ).answer == ProducerIdentity(FRESH, 0)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_without_a_producer_id_is_refused(commit: bool) -> None:
    done = txn(COMPLETE_COMMIT if commit else COMPLETE_ABORT)  # last_identity is NO_IDENTITY too
    refused = code_of(lambda: state.end(done, End(producer=NO_IDENTITY, commit=commit, version=2), NOW, FRESH))
    assert refused is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_error_after_a_timeout_says_how_long_the_transaction_was_open() -> None:
    aborted = state.time_out(txn(ONGOING, start_ms=NOW), NOW + TIMEOUT_MS + 7, BROKER).then
    with pytest.raises(KafkaError, match="open for 60007 ms, allowed were 60000 ms"):
        end(aborted, True)
    with pytest.raises(KafkaError, match="broker 0"):
        init(state.complete(aborted, NOW) if aborted else None, expected=me(3))


def test_epoch_exhaustion_on_a_timeout_abort() -> None:
    before = txn(ONGOING, EPOCH_LAST, start_ms=NOW)
    aborted = state.time_out(before, NOW + TIMEOUT_MS + 1, BROKER).then
    assert aborted is not None
    assert aborted.producer_epoch == EPOCH_MAX
    done = state.complete(aborted, NOW)
    assert code_of(lambda: state.add_partitions(done, me(EPOCH_LAST), [A], NOW)) is FENCED
    assert code_of(lambda: end(done, False, epoch=EPOCH_LAST, version=2)) is FENCED, "no producer writes with EPOCH_MAX"
    assert init(done).answer == ProducerIdentity(FRESH, 0)


@pytest.mark.parametrize("in_state", [EMPTY, *PREPARED, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_only_an_open_transaction_times_out(in_state: TransactionState) -> None:
    assert state.time_out(txn(in_state), NOW + 10 * TIMEOUT_MS, BROKER) == TransactionStep(None, NO_IDENTITY)


@pytest.mark.parametrize("in_state", IN_EVERY_STATE)
def test_ids_expire_between_transactions_only(in_state: TransactionState) -> None:
    before = txn(in_state, last_update_ms=NOW)
    assert not state.is_expired(before, NOW + 99, 100)
    assert state.is_expired(before, NOW + 100, 100) == (in_state in BETWEEN)


def test_the_ledger_of_an_expired_id_says_that_it_expired() -> None:
    dead = state.expire(txn(COMPLETE_COMMIT), NOW, 100, BROKER)
    assert dead.state is DEAD
    assert "producer id 5 epoch 3 was dropped" in dead.fences[-1].text
    assert "transactional.id.expiration.ms" in dead.fences[-1].text


def test_a_fence_that_another_coordinator_began_is_carried_through() -> None:
    then = state.taken_over(txn(PREPARE_EPOCH_FENCE, 4), NOW, BROKER)
    assert (then.state, then.producer_epoch) == (PREPARE_ABORT, 4)
    with pytest.raises(KafkaError, match="another coordinator had begun to fence it"):
        end(then, True)


# --- two-phase commit ----------------------------------------------------------------------------------------


def test_kip939_a_prepared_transaction_never_times_out() -> None:
    before = txn(ONGOING, timeout_ms=TIMEOUT_NEVER_MS)
    assert not state.is_timed_out(before, NOW + 10**12)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("epoch", [3, EPOCH_LAST])
@pytest.mark.parametrize("commit", [True, False])
def test_kip939_a_new_instance_keeps_and_ends_a_prepared_transaction(commit: bool, epoch: int, version: int) -> None:
    before = txn(ONGOING, epoch, timeout_ms=TIMEOUT_NEVER_MS)
    kept = init(before, keep_prepared=True)
    mine = kept.answer
    assert mine == (me(4) if epoch == 3 else ProducerIdentity(FRESH, 0))
    assert (kept.kept, kept.then and kept.then.state) == (me(epoch), ONGOING)
    assert code_of(lambda: end(kept.then, True, epoch)) is FENCED
    assert code_of(lambda: state.add_partitions(kept.then, mine, [B], NOW)) is STATE
    again = init(kept.then, keep_prepared=True)
    assert (again.kept, again.answer) == (me(epoch), ProducerIdentity(mine.producer_id, mine.epoch + 1))

    step = end(kept.then, commit, mine.epoch, version, mine.producer_id)
    prepared = step.then
    assert prepared is not None
    assert prepared.producer_id == PID, "markers carry the id that wrote the data"
    assert prepared.producer_epoch > epoch
    bump = 1 if version else 0
    done = completed(step)
    assert done.identity == step.answer == ProducerIdentity(mine.producer_id, mine.epoch + bump)
    assert end(done, commit, mine.epoch, version, mine.producer_id) == TransactionStep(None, done.identity)


def test_kip939_without_keeping_it_is_aborted_above_both_epochs() -> None:
    kept = init(txn(ONGOING), keep_prepared=True).then
    aborted = init(kept).then
    assert aborted is not None
    assert (aborted.state, aborted.producer_epoch) == (PREPARE_ABORT, 5)
    rotated = init(txn(ONGOING, EPOCH_LAST), keep_prepared=True).then
    aborted = init(rotated).then
    assert aborted is not None
    assert (aborted.producer_id, aborted.producer_epoch) == (PID, EPOCH_MAX)
    assert init(state.complete(aborted, NOW)).answer == ProducerIdentity(FRESH, 2)


# --- codes ---------------------------------------------------------------------------------------------------


def test_kip588_old_clients_get_invalid_epoch_and_new_ones_producer_fenced() -> None:
    error = KafkaError(ErrorCode.PRODUCER_FENCED, "who and when")
    assert for_version(error, ApiKey.END_TXN, 2) is error
    old = for_version(error, ApiKey.END_TXN, 1)
    assert (old.code, old.message) == (ErrorCode.INVALID_PRODUCER_EPOCH, "who and when")
    other = KafkaError(ErrorCode.INVALID_TXN_STATE)
    assert for_version(other, ApiKey.END_TXN, 1) is other
