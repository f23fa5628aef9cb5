"""The heartbeats of a member of the consumer protocol (KIP-848). They join, report and leave; one task sends them.

They continue while rebalance listeners run and while a revocation waits for the application.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from semel_protocol.acls import Operation
from semel_protocol.backoff import Backoff
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k68_consumer_group_heartbeat import (
    OWN_MEMBER_ID_FROM,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

from semel._config.consumer import ConsumerConfig
from semel._group.consumer_member import BEATING_STATES, ConsumerMember, State, Subscribed
from semel._group.heartbeat import HeartbeatTask, MaxPollExceededError, PollWatch
from semel._group.member import LEAVE_TIMEOUT_MS
from semel._net.cluster import Cluster
from semel._net.connection import Connection
from semel._net.outage import Outage
from semel._net.signal import Signal
from semel.errors import (
    BrokerResponseError,
    InvalidRegularExpressionError,
    KafkaError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
    error_for,
)

log = logging.getLogger(__name__)

FENCING_CODES = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class ConsumerHeartbeats(HeartbeatTask):
    """Sends heartbeats while the member's state wants them.

    subscribed: the subscription to send; its argument says whether the broker evaluates regular expressions.
    on_answer: called after every answer. on_lost: the member is fenced, or must leave. on_failed: it can never join.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        member: ConsumerMember,
        polls: PollWatch,
        *,
        subscribed: Callable[[bool], Subscribed],
        on_answer: Callable[[], None],
        on_lost: Callable[[KafkaError], None],
        on_failed: Callable[[KafkaError], None],
    ) -> None:
        super().__init__()
        self._cluster, self._config, self._member, self._polls = cluster, config, member, polls
        self._subscribed, self._on_answer, self._on_lost, self._on_failed = subscribed, on_answer, on_lost, on_failed
        self._backoff = Backoff(cluster.edge.rng, config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._outage = Outage(cluster.edge)
        self._wake = Signal()
        self._is_wanted = False
        self._leaving: ConsumerGroupHeartbeatRequest | None = None
        """A request to leave without an outcome: the call was cancelled."""
        self._regex_version = True
        self.sent = self.answered = 0
        """The number of the last heartbeat sent, and of the last one with an answer."""
        self.is_regex_refused = False
        """The broker cannot read the regular expression."""

    def start(self) -> None:
        task = self._begin(self._run(), self._member.group_id)
        task.add_done_callback(lambda _: self._on_answer())

    def look(self) -> None:
        """Something changed: a heartbeat may be due."""
        self._wake.notify()

    def request(self) -> int:
        """Ask for a heartbeat now, and return its number."""
        self._is_wanted = True
        self._wake.notify()
        return self.sent + 1

    async def leave(self) -> None:
        """Leave the group, so that the others get the partitions soon. If that fails, the session ends by itself.

        A call that follows a cancelled one completes it.
        """
        request = self._leaving = self._member.leave_request() or self._leaving
        if request is None:
            return
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                connection = await self._cluster.coordinator_connection(self._member.group_id)
                answer = await connection.request(request, timeout_ms=LEAVE_TIMEOUT_MS)
            if answer.error_code:
                raise error_for(answer.error_code, f"leave group {self._member.group_id!r}")
        except (KafkaError, TimeoutError) as error:
            log.info("group %r: cannot leave, the session will time out: %s", self._member.group_id, error)
        self._leaving = None

    async def _run(self) -> None:
        member = self._member
        while True:
            if member.state not in BEATING_STATES:
                await self._wake.wait()
                continue
            if self._polls.exceeded():
                self._on_lost(
                    MaxPollExceededError(f"no call for records within {self._config.max_poll_interval_ms} ms")
                )
                continue
            pause_ms = await self._beat()
            if pause_ms is not None:
                await asyncio.sleep(pause_ms / 1000)
                continue
            interval_ms = member.interval_ms
            beaten_at = self._cluster.edge.monotonic()
            while member.state in BEATING_STATES and not self._is_due():
                left_ms = interval_ms - (self._cluster.edge.monotonic() - beaten_at) * 1000
                if left_ms <= 0 or not await self._wake.wait(left_ms):
                    break

    def _is_due(self) -> bool:
        return self._is_wanted or self._member.is_due(self._subscribed(self._regex_version))

    async def _beat(self) -> float | None:
        """Send one heartbeat. Returns the pause before the next try, in ms, after an error."""
        member = self._member
        self._is_wanted = False
        try:
            connection = await self._connection()
            if member.state not in BEATING_STATES:
                return None
            makes_own_id = connection.version(ConsumerGroupHeartbeatRequest) >= OWN_MEMBER_ID_FROM
            self._regex_version = makes_own_id
            said = member.says(self._subscribed(makes_own_id))
            request = member.heartbeat(said, makes_own_id=makes_own_id)
            self.sent = number = self.sent + 1
            answer: ConsumerGroupHeartbeatResponse = await connection.request(
                request, timeout_ms=self._config.request_timeout_ms
            )
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
                raise UnsupportedVersionError(_unserved(connection))
            if answer.error_code:
                # The message of a broker may say more: which assignors it has, or why an expression is invalid.
                why = f": {answer.error_message}" if answer.error_message else ""
                right = self._cluster.right(Operation.READ, group=member.group_id)
                raise error_for(answer.error_code, f"heartbeat to group {member.group_id!r}{why}", right)
        except KafkaError as error:
            return self._failed(error)
        self._backoff.reset()
        self._outage.end()
        member.answered(request, said, answer)
        self.answered = number
        self._on_answer()
        return None

    async def _connection(self) -> Connection:
        try:
            connection = await self._cluster.coordinator_connection(self._member.group_id)
        except KafkaError:
            self._cluster.forget_coordinator(self._member.group_id)
            raise
        if not connection.serves(ConsumerGroupHeartbeatRequest):
            raise UnsupportedVersionError(_unserved(connection))
        return connection

    def _failed(self, error: KafkaError) -> float | None:
        """Decide about a failed heartbeat. Returns the pause before the next one, in ms; None to go on at once."""
        member = self._member
        if member.state not in BEATING_STATES:
            return None  # fenced or leaving meanwhile
        member.unanswered()
        code = error.code if isinstance(error, BrokerResponseError) else None
        is_joining = member.state is State.JOINING
        if code in FENCING_CODES or (code == ErrorCode.GROUP_ID_NOT_FOUND and not is_joining):
            self._on_lost(error)
            return self._backoff.next_ms()
        if isinstance(error, InvalidRegularExpressionError) and not self.is_regex_refused:
            log.warning("group %r: the client evaluates the pattern, not the broker: %s", member.group_id, error)
            self.is_regex_refused = True
            return None
        if not error.retriable and not isinstance(error, UnreleasedInstanceIdError):
            self._on_failed(error)
            return None
        if code in (None, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._cluster.forget_coordinator(member.group_id)
        if self._outage.is_due():
            log.info("group %r: %s; trying again", member.group_id, error)
        return min(self._backoff.next_ms(), member.interval_ms)


def _unserved(connection: Connection) -> str:
    return (
        f"{connection.name} does not serve ConsumerGroupHeartbeat (KIP-848): use group_protocol='classic', or a broker "
        "whose group.coordinator.rebalance.protocols has 'consumer'"
    )
