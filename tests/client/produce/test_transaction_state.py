"""The state machine of a transactional producer: the allowed calls in each state, and the effect of each error code."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from semel._produce.transaction_state import (
    NEXT,
    VERDICT,
    ErrorEffect,
    State,
    TransactionState,
    verdict_on,
)
from semel.errors import (
    ERROR_OF,
    AbortableError,
    ApplicationRecoverableError,
    IllegalOperation,
    IllegalStateError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    MisconfiguredError,
    ProducerFenced,
    RefreshRetriableError,
    RetriableError,
    TransactionHasFailed,
    error_for,
)
from semel.structs import GroupStep, PreparedTransaction, TopicPartition
from semel_protocol.errors import ErrorCode

CAUSE = InvalidRecordError("produce to t-0")
P = TopicPartition("t", 0)
STEP = GroupStep("g", 3)

REACH: dict[State, Callable[[TransactionState], object]] = {
    State.UNINITIALIZED: lambda made: None,
    State.READY: lambda made: made.initialized(),
    State.IN_TRANSACTION: lambda made: (made.initialized(), made.begin(2)),
    State.COMMITTING: lambda made: (made.initialized(), made.begin(2), made.start_commit()),
    State.PREPARING: lambda made: (made.initialized(), made.begin(2), made.start_prepare()),
    State.PREPARED: lambda made: (
        made.initialized(),
        made.begin(2),
        made.start_prepare(),
        made.prepared(7, 0),
    ),
    State.ABORTABLE: lambda made: (made.initialized(), made.begin(2), made.fail(CAUSE)),
    State.ABORTING: lambda made: (made.initialized(), made.begin(2), made.start_abort()),
    State.ENDED: lambda made: (made.initialized(), made.end(ProducerFenced("by x"))),
}
CALLS: dict[str, Callable[[TransactionState], object]] = {
    "begin": lambda made: made.begin(1),
    "send": lambda made: made.check_open(),
    "commit": lambda made: made.start_commit(),
    "prepare": lambda made: made.start_prepare(),
    "abort": lambda made: made.start_abort(),
}
ALLOWED = {
    ("begin", State.READY): State.IN_TRANSACTION,
    ("send", State.IN_TRANSACTION): State.IN_TRANSACTION,
    ("commit", State.IN_TRANSACTION): State.COMMITTING,
    ("prepare", State.IN_TRANSACTION): State.PREPARING,
    ("prepare", State.PREPARING): State.PREPARING,
    ("prepare", State.PREPARED): State.PREPARED,
    ("abort", State.PREPARING): State.ABORTING,
    ("abort", State.PREPARED): State.ABORTING,
    ("abort", State.IN_TRANSACTION): State.ABORTING,
    ("abort", State.COMMITTING): State.ABORTING,
    ("abort", State.ABORTABLE): State.ABORTING,
}


def in_state(state: State, step: GroupStep | None = None) -> TransactionState:
    made = TransactionState("g/x", STEP if state in (State.PREPARING, State.PREPARED) else None)
    REACH[state](made)
    made.step = step or made.step
    assert made.state is state
    return made


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_changes_the_state_or_is_refused_and_changes_nothing(state: State, call: str) -> None:
    made = in_state(state, STEP if call == "prepare" else None)
    if (call, state) in ALLOWED:
        CALLS[call](made)
        assert made.state is ALLOWED[call, state]
        return
    refusal: type[KafkaError] = IllegalOperation if call == "send" else IllegalStateError
    if call == "commit" and made.step is not None:
        refusal = IllegalOperation
    elif state is State.ENDED:
        refusal = ProducerFenced
    elif state is State.ABORTABLE:
        refusal = TransactionHasFailed
    with pytest.raises(refusal):
        CALLS[call](made)
    assert made.state is state


def test_every_state_but_the_last_has_a_successor_and_can_end() -> None:
    assert set(NEXT) == set(State)
    assert all(State.ENDED in then for state, then in NEXT.items() if state is not State.ENDED)
    assert NEXT[State.ENDED] == ()


@pytest.mark.parametrize("state", State)
def test_an_error_fails_only_a_transaction_that_could_still_commit(state: State) -> None:
    made = in_state(state)
    made.fail(CAUSE, needs_new_epoch=True)
    fails = state in (State.IN_TRANSACTION, State.COMMITTING, State.PREPARING)
    assert made.state is (State.ABORTABLE if fails else state)
    assert made.needs_new_epoch


@pytest.mark.parametrize("state", State)
def test_commit_is_refused_in_a_step_and_prepare_is_refused_outside_of_one(state: State) -> None:
    with pytest.raises(IllegalOperation, match="prepare_transaction"):
        in_state(state, STEP).start_commit()
    if state not in (State.PREPARING, State.PREPARED):
        with pytest.raises(IllegalOperation, match="commit_transaction"):
            in_state(state).start_prepare()


def test_a_prepared_transaction_names_producer_and_step_and_is_none_without_records() -> None:
    made = in_state(State.PREPARING)
    assert made.prepared(7, 1) is None
    assert made.state is State.PREPARED
    assert not made.is_prepared
    made = in_state(State.IN_TRANSACTION, STEP)
    assert made.admits(P)
    made.start_prepare()
    assert made.admits(P), "what was sent before is still on its way"
    assert made.prepared(7, 1) == made.prepared(7, 1) == PreparedTransaction("g/x", 7, 1, 3)
    assert not made.admits(P)


def test_the_first_failure_is_the_cause() -> None:
    made = in_state(State.IN_TRANSACTION)
    made.fail(CAUSE)
    made.fail(KafkaTimeoutError("later"))
    with pytest.raises(TransactionHasFailed, match="INVALID_RECORD") as caught:
        made.check_open()
    assert caught.value.__cause__ is CAUSE


@pytest.mark.parametrize("version", [1, 2])
def test_partitions_wait_for_their_enrolment_in_version_1_only(version: int) -> None:
    made = in_state(State.READY)
    assert not made.admits(P)
    made.begin(version)
    assert made.admits(P) == (version == 2)
    assert list(made.wanted) == ([P] if version == 1 else [])
    made.enrolled([P])
    assert made.admits(P)
    made.start_abort()
    assert not made.admits(P)


@pytest.mark.parametrize(("dirty", "new_epoch"), [(False, False), (False, True), (True, False), (True, True)])
def test_a_closed_transaction_leaves_only_needs_new_epoch(dirty: bool, new_epoch: bool) -> None:
    made = in_state(State.IN_TRANSACTION)
    made.touched = made.commit_sent = True
    made.groups["g"] = made.partitions[P] = None
    made.fail(CAUSE, needs_new_epoch=dirty)
    made.start_abort()
    made.closed(new_epoch=new_epoch)
    fresh = in_state(State.READY)
    fresh.needs_new_epoch, fresh.version = dirty and not new_epoch, 2
    assert vars(made) == vars(fresh)


@pytest.mark.parametrize("code", ERROR_OF)
def test_every_code_has_a_verdict_and_retriable_ones_are_asked_again(code: ErrorCode) -> None:
    verdict = verdict_on(error_for(code))
    assert (verdict is ErrorEffect.RETRY) == code.retriable
    if code is not ErrorCode.UNSUPPORTED_VERSION:
        assert verdict is VERDICT.get(code, ErrorEffect.RETRY if code.retriable else ErrorEffect.END)


KINDS = (RetriableError, AbortableError, ApplicationRecoverableError, MisconfiguredError)


@pytest.mark.parametrize("code", ERROR_OF)
def test_an_exception_is_of_one_kind_at_most_and_says_what_to_do(code: ErrorCode) -> None:
    made = ERROR_OF[code]
    assert sum(issubclass(made, kind) for kind in KINDS) <= 1
    assert issubclass(made, RetriableError) == made.retriable == code.retriable
    assert issubclass(made, RefreshRetriableError) or not code.refreshes_metadata
    assert made.advice
