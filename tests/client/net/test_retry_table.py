"""Each error code has one action, and an exception that says the same."""

from __future__ import annotations

import pytest
from semel._net.retry import ACTION, Action, action_for
from semel.errors import RefreshRetriableError, RetriableError, error_for
from semel_protocol.errors import ErrorCode

SHARE_GROUPS = (
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.SHARE_SESSION_LIMIT_REACHED,
)
"""Nothing that this client asks is answered with them."""
AGAIN = (Action.BACKOFF, Action.REFRESH, Action.REDISCOVER)


def test_every_code_has_an_action() -> None:
    assert [code for code in ErrorCode if code is not ErrorCode.NONE and code not in ACTION] == []


@pytest.mark.parametrize("code", [code for code in ErrorCode if code.retriable and code not in SHARE_GROUPS])
def test_a_retriable_code_is_retried_and_has_a_retriable_exception(code: ErrorCode) -> None:
    error = error_for(code, "asking")
    assert isinstance(error, RetriableError), "an application that looks at the kind must see it"
    assert error.retriable
    if code.refreshes_metadata:
        assert isinstance(error, RefreshRetriableError)
    if code is not ErrorCode.ELECTION_NOT_NEEDED:  # that is as good as an answer
        assert action_for(code) in AGAIN


@pytest.mark.parametrize("code", [code for code in ErrorCode if not code.retriable and code > 0])
def test_a_code_that_is_not_retriable_has_no_retriable_exception(code: ErrorCode) -> None:
    assert not isinstance(error_for(code, "asking"), RetriableError)
    assert action_for(code) not in AGAIN


@pytest.mark.parametrize(
    ("code", "action"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Action.REFRESH),
        (ErrorCode.FENCED_LEADER_EPOCH, Action.REFRESH),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Action.BACKOFF),
        (ErrorCode.OFFSET_NOT_AVAILABLE, Action.BACKOFF),
        (ErrorCode.NOT_ENOUGH_REPLICAS, Action.BACKOFF),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, Action.BACKOFF),
        (ErrorCode.REPLICA_NOT_AVAILABLE, Action.REFRESH),
        (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, Action.REFRESH),
        (ErrorCode.NOT_CONTROLLER, Action.REFRESH),
        (ErrorCode.BROKER_NOT_AVAILABLE, Action.FAIL),
        (ErrorCode.INVALID_REPLICA_ASSIGNMENT, Action.FAIL),
        (ErrorCode.ELECTION_NOT_NEEDED, Action.FAIL),
        (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, Action.FAIL),
    ],
)
def test_cluster_codes_ask_for_this(code: ErrorCode, action: Action) -> None:
    assert action_for(code) is action
