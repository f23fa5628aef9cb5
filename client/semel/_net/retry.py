"""Retries: one table from error codes to actions, deadlines, and `retrying`.

Only `retrying` waits. Time and random numbers come from the `Edge`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from operator import attrgetter
from typing import TypeVar

from semel_protocol.backoff import Backoff
from semel_protocol.errors import ErrorCode, error_code

from semel._edge import Edge
from semel.errors import (
    BrokerResponseError,
    IllegalSaslStateError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

T = TypeVar("T")
LOGIN_REFUSED = (SaslAuthenticationFailed, UnsupportedSaslMechanismError, IllegalSaslStateError)
"""A broker does not accept the client's credentials. The application gets the error instead of waiting."""
FOREVER_MS = float("inf")
"""A timeout that never ends."""
CUT_OFF_MS = 10.0
"""An attempt that times out with less than this left was cut off by the deadline."""


class Action(Enum):
    """The client's reaction to an error code, before the application sees it."""

    FAIL = "raise it to the caller"
    BACKOFF = "try again after a pause"
    REFRESH = "refresh metadata, then try again"
    REDISCOVER = "find the coordinator again, then try again"
    REJOIN = "join the group again, keeping the member id"
    REJOIN_AS_NEW = "join the group again with an empty member id"
    NEW_EPOCH = "bump the producer epoch and restart the sequences"
    NEW_PRODUCER_ID = "ask for a new producer id and restart the sequences"
    STORED = "count as success: the records are already in the log"


_REASONED = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Action.REDISCOVER,
    ErrorCode.NOT_COORDINATOR: Action.REDISCOVER,
    ErrorCode.NOT_CONTROLLER: Action.REFRESH,
    ErrorCode.REBALANCE_IN_PROGRESS: Action.REJOIN,
    ErrorCode.ILLEGAL_GENERATION: Action.REJOIN,
    ErrorCode.MEMBER_ID_REQUIRED: Action.REJOIN,
    ErrorCode.UNKNOWN_MEMBER_ID: Action.REJOIN_AS_NEW,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Action.NEW_EPOCH,
    ErrorCode.INVALID_PRODUCER_EPOCH: Action.NEW_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID: Action.NEW_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Action.NEW_PRODUCER_ID,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Action.STORED,
    ErrorCode.ELECTION_NOT_NEEDED: Action.FAIL,
}


def _action(code: ErrorCode) -> Action:
    if code in _REASONED:
        return _REASONED[code]
    if code.refreshes_metadata:
        return Action.REFRESH
    return Action.BACKOFF if code.retriable else Action.FAIL


ACTION: dict[ErrorCode, Action] = {code: _action(code) for code in ErrorCode if code is not ErrorCode.NONE}


def action_for(code: int) -> Action:
    """The action for a broker's error code; FAIL for an unknown code."""
    return ACTION[error_code(code)]


UNSETTLED = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""Codes after which the request may have taken effect. The broker has written it, but its replicas did not have it
in time, or the broker is no longer leader.
"""


class Deadline:
    """A moment on the edge's monotonic clock."""

    __slots__ = ("_at", "_edge", "timeout_ms")

    def __init__(self, edge: Edge, timeout_ms: float) -> None:
        self._edge, self.timeout_ms = edge, timeout_ms
        self._at = edge.monotonic() + timeout_ms / 1000

    @property
    def remaining_ms(self) -> float:
        """Milliseconds left, never negative."""
        return max(0.0, (self._at - self._edge.monotonic()) * 1000)

    @property
    def expired(self) -> bool:
        return self._edge.monotonic() >= self._at


class CallInProgress:
    """A call that is tried until it succeeds. what: a gerund phrase. error: that of the last attempt, if one has
    failed; not that of an attempt that was cut off by the deadline."""

    __slots__ = ("began", "error", "what")

    def __init__(self, what: str, began: float) -> None:
        self.what, self.began = what, began
        self.error: KafkaError | None = None


async def retrying(
    attempt: Callable[[Deadline], Awaitable[T]],
    call: CallInProgress,
    *,
    edge: Edge,
    backoff: Backoff,
    timeout_ms: float,
    explain: Callable[[str, float], str],
    is_retriable: Callable[[KafkaError], bool] = attrgetter("retriable"),
    on_error: Callable[[KafkaError], None] | None = None,
    pause_ms_max: Callable[[KafkaError], float] | None = None,
) -> T:
    """Run `attempt` until it succeeds, fail for good, or `timeout_ms` has passed (FOREVER_MS: until cancelled).

    A retriable KafkaError is passed to `on_error`, which may forget a coordinator or request metadata. The attempt is
    repeated after the pause of `backoff`, cut down to `pause_ms_max(error)`. Any other exception goes to the caller.
    Raises KafkaTimeoutError from the last error when the next pause would pass the deadline. An attempt that the
    deadline cuts off says only that, so the error before it counts. explain: adds the errors of brokers that were not
    reached to its text (Reachability.explained).
    """
    deadline = Deadline(edge, timeout_ms)
    while True:
        try:
            return await attempt(deadline)
        except KafkaError as error:
            if not is_retriable(error):
                raise
            if on_error is not None:
                on_error(error)
            if call.error is None or not (isinstance(error, KafkaTimeoutError) and deadline.remaining_ms < CUT_OFF_MS):
                call.error = error
            pause_ms = backoff.next_ms()
            if pause_ms_max is not None:
                pause_ms = min(pause_ms, pause_ms_max(error))
            if pause_ms >= deadline.remaining_ms:
                text = f"{call.what} did not succeed within {timeout_ms:.0f} ms: {call.error}"
                raise KafkaTimeoutError(explain(text, timeout_ms)) from call.error
        await asyncio.sleep(pause_ms / 1000)


def is_stale_metadata(error: KafkaError) -> bool:
    """Whether the error says that the client's metadata of topics and leaders is stale."""
    return isinstance(error, BrokerResponseError) and action_for(error.code) is Action.REFRESH


def is_lost_coordinator(error: KafkaError) -> bool:
    """Whether the error says that another broker is the coordinator."""
    return isinstance(error, BrokerResponseError) and action_for(error.code) is Action.REDISCOVER


def is_unsettled(error: KafkaError) -> bool:
    """Whether a broker has answered, and the request may have taken effect all the same."""
    return isinstance(error, BrokerResponseError) and error.code in UNSETTLED
