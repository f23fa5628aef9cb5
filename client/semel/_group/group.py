"""A member's life in its group, as one loop over one table of states.

    UNJOINED -> PREPARING -> JOINING -> SYNCING -> ADOPTING -> STABLE -> PREPARING -> ...

PREPARING gives up what must be given up before a rebalance (all of it with eager assignors, nothing but unsubscribed
topics with cooperative ones: KIP-429), ADOPTING what moved. Partitions are not taken from under records that are in the
application's hands: revoking waits until it comes back for more, at most about rebalance_timeout_ms, while heartbeats
go on. Errors of the coordinator are told apart by the action table in `_retry`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum

from semel_protocol.errors import ErrorCode, ProtocolError

from semel._assignment.assignors import rebalance_protocol
from semel._assignment.protocol import NO_GENERATION
from semel._config.consumer import ConsumerConfig
from semel._group.heartbeat import Heartbeats, MaxPollExceededError, PollCalls
from semel._group.member import Joined, Member
from semel._group.offsets import Membership
from semel._net.cluster import Cluster
from semel._net.retry import Action, Backoff, Deadline, action_for
from semel._net.signal import Signal
from semel._subscription.listener import notify_listener
from semel._subscription.subscription import Mode, Subscription, partition_counts
from semel.errors import (
    BrokerResponseError,
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
)
from semel.structs import TopicPartition

log = logging.getLogger(__name__)


class State(Enum):
    UNJOINED = "not a member"
    PREPARING = "giving up partitions"
    JOINING = "waiting for the other members"
    SYNCING = "waiting for the assignment"
    ADOPTING = "exchanging partitions"
    STABLE = "a member"
    FAILED = "failed for good"
    STOPPED = "stopped"


NEXT: dict[State, tuple[State, ...]] = {
    State.UNJOINED: (State.PREPARING, State.STOPPED),
    State.PREPARING: (State.JOINING, State.UNJOINED, State.FAILED, State.STOPPED),
    State.JOINING: (State.SYNCING, State.PREPARING, State.UNJOINED, State.FAILED, State.STOPPED),
    State.SYNCING: (State.ADOPTING, State.PREPARING, State.UNJOINED, State.FAILED, State.STOPPED),
    State.ADOPTING: (State.STABLE, State.STOPPED),
    State.STABLE: (State.PREPARING, State.UNJOINED, State.FAILED, State.STOPPED),
    State.FAILED: (State.STOPPED,),
    State.STOPPED: (),
}


class Group:
    """The membership of one consumer; `run` is its task.

    before_revocation: commits what auto-commit must commit while the partitions are still owned; changed: called
    after every change of the assignment.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        subscription: Subscription,
        calls: PollCalls,
        *,
        before_revocation: Callable[[Sequence[TopicPartition]], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._cluster, self._config, self._subscription = cluster, config, subscription
        self._before_revocation, self._changed = before_revocation, changed
        self._edge = cluster.edge
        self._protocol = rebalance_protocol(config.assignors)
        self._backoff = Backoff(self._edge, config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._task: asyncio.Task[None] | None = None
        self._wake = Signal()
        self._max_poll_exceeded = False
        self._rejoin: str | None = None
        self._lost: KafkaError | None = None
        self._had: tuple[TopicPartition, ...] = ()
        self._had_generation = NO_GENERATION
        self._joined_topics: tuple[str, ...] = ()
        self._counts: dict[str, int] = {}
        self.member = Member(cluster, config)
        self.heartbeats = Heartbeats(
            cluster, config, self.member, calls, on_rebalance=self.request_rejoin, on_expelled=self._expelled
        )
        self.state = State.UNJOINED
        self.settled = Signal()
        """Notified at every change of state."""
        self.failure: KafkaError | None = None
        """Why this member can never join; raised by every call for records."""
        self.listener_errors: list[BaseException] = []
        """What listeners raised, to be raised by the next call for records."""
        self.assignments = 0
        """How often partitions were assigned; `start` waits for the first."""

    # What the consumer calls

    async def run(self) -> None:
        """Until cancelled."""
        self._task = asyncio.current_task()
        while True:
            await self._until_wanted()
            self._to(State.PREPARING)
            await self._give_up_before_joining()
            if self._max_poll_exceeded:
                continue
            try:
                await self._join_and_adopt()
            except KafkaError as error:
                if not await self._recover(error):
                    return
                continue
            except ProtocolError as error:
                self._fail(KafkaError(f"group {self.member.group_id!r}: a member sent what cannot be read: {error}"))
                return
            self._backoff.reset()
            await self._until_rebalance()

    def request_rejoin(self, reason: str) -> None:
        """A rebalance is needed; it starts as soon as the one under way, if any, is over."""
        self._rejoin = self._rejoin or reason
        self._wake.notify()

    def subscription_changed(self) -> None:
        """The application subscribed to other topics, or unsubscribed."""
        wanted = self._subscription.wanted_topics(self._cluster.metadata)
        for state in self._subscription.states.values():
            if state.topic_partition.topic not in wanted:
                state.hold()
        self.request_rejoin("the subscription changed")

    def metadata_changed(self) -> None:
        """Topics appeared or vanished, or got partitions: rejoin once, when this member is the one to notice."""
        if self.state is not State.STABLE:
            return
        metadata = self._cluster.metadata
        if self._subscription.mode is Mode.PATTERN and (
            sorted(self._subscription.wanted_topics(metadata)) != sorted(self._joined_topics)
        ):
            self.request_rejoin("topics that match the pattern changed")
        elif self._counts and partition_counts(metadata, self._counts, self._counts) != self._counts:
            self.request_rejoin("partitions of a topic changed")

    def application_polled(self) -> None:
        """Called whenever the application asks for more: records that it had in hand are done."""
        self.member.outdated = None
        self._wake.notify()

    async def until_settled(self, timeout_ms: float) -> None:
        """Until the rebalance under way is over, as far as commits are concerned: while ADOPTING they are taken again.

        Raises CommitFailedError from inside a listener (it would wait for itself) and when partitions are being given
        up (which may wait for the application), KafkaTimeoutError.
        """
        deadline = Deadline(self._edge, timeout_ms)
        hopeless = [State.UNJOINED, State.FAILED, State.STOPPED]
        if self._protocol == "eager":
            hopeless.append(State.PREPARING)
        while True:
            if self.state in hopeless or asyncio.current_task() is self._task:
                raise CommitFailedError(f"group {self.member.group_id!r} is rebalancing")
            if self.state is State.ADOPTING or (self.state is State.STABLE and not self._rejoin and not self._lost):
                return
            if deadline.expired:
                raise KafkaTimeoutError(f"group {self.member.group_id!r} did not settle within {timeout_ms:.0f} ms")
            await self.settled.wait(deadline.remaining_ms)

    def commit_refused(self, error: KafkaError, membership: Membership) -> None:
        """The coordinator does not take `membership` for a member: the partitions are lost, and we join anew."""
        if membership == self.member.membership:
            self._expelled(error)

    async def stop(self) -> None:
        """Commits and revokes what is owned, then leaves. `run` must have ended."""
        # First, so that a commit that meets a rebalance does not wait for one that nobody carries out any more.
        self._to(State.STOPPED)
        owned = list(self._subscription.states)
        if owned and self._lost is None and self.failure is None:
            await self._before_revocation(owned)
            await self._notify_listener("on_partitions_revoked", owned)
        await self.heartbeats.end()
        self._subscription.drop(owned)
        await self.member.leave()

    # The states

    def _to(self, state: State) -> None:
        assert state is self.state or state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state
        self.settled.notify()

    async def _until_wanted(self) -> None:
        """UNJOINED is left once topics are wanted and the application shows that it lives."""
        while not self._subscription.is_automatic or (
            self._max_poll_exceeded and self.heartbeats.is_max_poll_exceeded()
        ):
            await self.heartbeats.end()
            self._to(State.UNJOINED)
            await self._lose_all()
            await self.member.leave()
            self._rejoin = None
            await self._wake.wait()
        self._max_poll_exceeded = False

    async def _give_up_before_joining(self) -> None:
        if self._lost is None:
            wanted = self._subscription.wanted_topics(self._cluster.metadata)
            owned = self._subscription.states
            kept = self._protocol == "cooperative"
            await self._revoke([p for p in owned if not (kept and p.topic in wanted)])
        await self._lose_all()

    async def _join_and_adopt(self) -> None:
        """JOINING, SYNCING, STABLE."""
        self._rejoin = self._lost = None
        # Kept beating until here: the coordinator may have waited for us long.
        await self.heartbeats.end()
        topics = await self._topics_to_join_with()
        owned = tuple(self._subscription.states)
        if not owned and self.member.is_outdated:
            await self._join_as_another()
        self._to(State.JOINING)
        joined = await self.member.join(topics, owned, self._had, self._had_generation)
        self._joined_topics = topics
        self._to(State.SYNCING)
        assignments = await self._assign(joined)
        given = await self.member.sync(joined, assignments)
        log.info("group %r generation %d: assigned %s", self.member.group_id, joined.generation, _names(given))
        self._had, self._had_generation = given, joined.generation
        self.heartbeats.start()
        self._to(State.ADOPTING)
        await self._adopt(given)
        self._to(State.STABLE)
        # What changed while this rebalance was under way was not looked at.
        self.metadata_changed()

    async def _join_as_another(self) -> None:
        """Who joins as before, offering what it offered, may be told the generation that there was. As that one the
        application could still commit records that are in its hands, while they are read again."""
        await self.member.leave()
        self.member.forget_identity()  # a static member has not left: whoever joins under its name takes its place

    async def _topics_to_join_with(self) -> tuple[str, ...]:
        if self._subscription.mode is Mode.PATTERN:
            await self._cluster.refresh()
        return self._subscription.wanted_topics(self._cluster.metadata)

    async def _assign(self, joined: Joined) -> dict[str, list[TopicPartition]]:
        """As the leader: shares out what all members want, and keeps an eye on those topics from now on."""
        self._counts = {}
        if not joined.leads:
            return {}
        wanted = dict.fromkeys(topic for member in joined.members for topic in member.topics)
        self._cluster.want(wanted)
        if any(topic not in self._cluster.metadata.topics for topic in wanted):
            await self._cluster.refresh(self._config.request_timeout_ms)
        self._counts = partition_counts(self._cluster.metadata, wanted, {})
        if joined.skip_assignment:
            return {}
        known = {topic: count for topic, count in self._counts.items() if count}
        return joined.assignor.assign(joined.members, known)

    async def _adopt(self, given: Sequence[TopicPartition]) -> None:
        subscription = self._subscription
        if not subscription.is_automatic:
            return
        wanted = subscription.wanted_topics(self._cluster.metadata)
        # Other topics than asked for, when the subscription has changed since: a rejoin is due anyway.
        given = [partition for partition in given if partition.topic in wanted]
        gone = [partition for partition in subscription.states if partition not in given]
        if gone:
            await self._revoke(gone)
            if self._lost is not None:
                return
            self.request_rejoin(f"let go of {_names(gone)}")
        new = [partition for partition in given if partition not in subscription.states]
        subscription.assign(given)
        for partition, state in subscription.states.items():
            # What stays may have been held, too, by a subscription that was changed and changed back.
            state.held = partition in new
        self._changed()
        await self._notify_listener("on_partitions_assigned", new)
        for state in subscription.states.values():
            state.held = False
        self.assignments += 1
        self._changed()

    async def _until_rebalance(self) -> None:
        while self._rejoin is None and self._lost is None and self._subscription.is_automatic:
            await self._wake.wait()
        log.info("group %r: rejoining, %s", self.member.group_id, self._rejoin or self._lost or "unsubscribed")

    # Giving up partitions

    async def _revoke(self, partitions: Sequence[TopicPartition]) -> None:
        """Takes partitions from the application, in good order. Stops half way when they turn out to be lost."""
        if not partitions:
            return
        states = [self._subscription.states[partition] for partition in partitions]
        for state in states:
            state.hold()
        config = self._config
        wait_ms = max(config.rebalance_wait_ms - 2 * config.heartbeat_interval_ms, config.rebalance_wait_ms / 2)
        deadline = Deadline(self._edge, wait_ms)
        self._changed()
        while self._lost is None and any(state.in_hand for state in states):
            if deadline.expired or not await self._wake.wait(deadline.remaining_ms):
                log.warning(
                    "group %r: %s revoked while their records are being processed for %d ms; they will be read again",
                    self.member.group_id, _names(partitions), wait_ms,
                )  # fmt: skip
                break
        if self._lost is not None:
            return
        await self._before_revocation(partitions)
        await self._notify_listener("on_partitions_revoked", partitions)
        self._drop(partitions)
        self._changed()

    async def _lose_all(self) -> None:
        """The partitions are somebody else's by now: nothing to commit."""
        error, self._lost = self._lost, None
        if error is None:
            return
        owned = list(self._subscription.states)
        self._drop(owned)
        self._changed()
        if isinstance(error, BrokerResponseError) and error.code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member.forget_identity()
        else:
            self.member.forget_generation()
        if owned:
            log.warning("group %r: lost %s: %s", self.member.group_id, _names(owned), error)
            await self._notify_listener("on_partitions_lost", owned)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        states = self._subscription.states
        if self.member.outdated is None and any(states[each].in_hand for each in partitions if each in states):
            self.member.outdated = self.member.membership
        self._subscription.drop(partitions)

    async def _notify_listener(self, method: str, partitions: Iterable[TopicPartition]) -> None:
        """PollCalls the application's listener; what it raises is raised again by the next call for records."""
        try:
            await notify_listener(self._subscription.listener, method, partitions)
        except Exception as error:
            log.exception("group %r: %s of the rebalance listener failed", self.member.group_id, method)
            self.listener_errors.append(error)
            self._changed()

    # Errors

    async def _recover(self, error: KafkaError) -> bool:
        """Decides how to go on after a failed rebalance; false when there is no way."""
        action = action_for(error.code) if isinstance(error, BrokerResponseError) else None
        if action is Action.REJOIN_AS_NEW or (
            action is Action.REJOIN and not isinstance(error, RebalanceInProgressError)
        ):
            log.info("group %r: %s; joining anew", self.member.group_id, error)
            self._lost = error
            return True
        if action is Action.REJOIN:
            return True
        if not error.retriable:
            self._fail(error)
            return False
        if action in (None, Action.REDISCOVER):
            self._cluster.forget_coordinator(self.member.group_id)
        log.info("group %r: %s; trying again", self.member.group_id, error)
        await asyncio.sleep(self._backoff.next_ms() / 1000)
        return True

    def _fail(self, error: KafkaError) -> None:
        self.failure = error
        self._subscription.drop(list(self._subscription.states))
        self._to(State.FAILED)
        self._changed()

    def _expelled(self, error: KafkaError) -> None:
        self._max_poll_exceeded = isinstance(error, MaxPollExceededError)
        self._lost = self._lost or error
        self._wake.notify()


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions) or "nothing"
