"""The membership of one consumer in its group: one loop over one table of states.

    UNJOINED -> PREPARING -> JOINING -> SYNCING -> ADOPTING -> STABLE -> PREPARING -> ...

PREPARING revokes partitions before a rebalance: all of them with eager assignors, only those of unsubscribed topics
with cooperative ones (KIP-429). ADOPTING revokes the partitions that moved. A revocation waits while the application
processes records of the partitions, for at most about rebalance_timeout_ms; heartbeats continue meanwhile. The table in
`semel._net.retry` decides about errors of the coordinator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from enum import Enum

from semel_protocol.backoff import Backoff
from semel_protocol.consumer_protocol import NO_GENERATION
from semel_protocol.errors import ErrorCode, ProtocolError

from semel._assignment.assignors import rebalance_protocol
from semel._config.consumer import ConsumerConfig
from semel._group.heartbeat import Heartbeats, MaxPollExceededError, PollCalls, PollWatch
from semel._group.member import GroupIdentity, JoinedGeneration
from semel._group.offsets import Membership
from semel._group.ownership import Ownership, names_of
from semel._net.cluster import Cluster
from semel._net.outage import Outage
from semel._net.retry import Action, Deadline, action_for
from semel._net.signal import Signal
from semel._subscription.subscription import Mode, Subscription, partition_counts
from semel.errors import (
    BrokerResponseError,
    CommitFailedError,
    KafkaError,
    RebalanceInProgressError,
)
from semel.structs import TopicPartition

log = logging.getLogger(__name__)


class State(Enum):
    UNJOINED = "not a member"
    PREPARING = "revoking partitions"
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


class ClassicGroup:
    """The membership of one consumer; `run` is its task.

    before_revocation: runs the auto-commit while the partitions are still owned.
    changed: called after every change of the assignment.
    calling_back: marks calls of the rebalance listener.
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
        calling_back: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._cluster, self._config, self._subscription = cluster, config, subscription
        self._changed = changed
        self._edge = cluster.edge
        self._protocol = rebalance_protocol(config.assignors)
        self._backoff = Backoff(self._edge.rng, config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._outage = Outage(self._edge)
        self._task: asyncio.Task[None] | None = None
        self._wake = Signal()
        self._max_poll_exceeded = False
        self._rejoin: str | None = None
        self._had: tuple[TopicPartition, ...] = ()
        self._had_generation = NO_GENERATION
        self._joined_topics: tuple[str, ...] = ()
        self._counts: dict[str, int] = {}
        self.member = GroupIdentity(cluster, config)
        self._ownership = Ownership(
            cluster.edge, config, subscription, self.member, self._wake,
            before_revocation=before_revocation, changed=changed, calling_back=calling_back,
        )  # fmt: skip
        self._polls = PollWatch(cluster.edge, calls, config.max_poll_interval_ms)
        self.heartbeats = Heartbeats(
            cluster, config, self.member, self._polls, on_rebalance=self.request_rejoin, on_expelled=self._expelled
        )
        self.state = State.UNJOINED
        self.settled = Signal()
        """Notified at every change of state."""
        self.failure: KafkaError | None = None
        """The reason why this member can never join; every call for records raises it."""
        self.listener_errors = self._ownership.listener_errors

    @property
    def assignments(self) -> int:
        """The number of assignments so far; `start` waits for the first."""
        return self._ownership.assignments

    # Calls of the consumer

    async def run(self) -> None:
        """Run until cancelled."""
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
                self._fail(KafkaError(f"group {self.member.group_id!r}: cannot read a member's subscription: {error}"))
                return
            self._backoff.reset()
            self._outage.end()
            await self._until_rebalance()

    def request_rejoin(self, reason: str) -> None:
        """Requests a rebalance. It starts when the one in progress, if any, is over."""
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
        """Rejoin when topics or partitions have changed and this member must notice it."""
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
        """The application asks for records: the records handed out before are processed."""
        self.member.outdated = None
        self._wake.notify()

    async def until_settled(self, timeout_ms: float) -> None:
        """Wait until the rebalance in progress is over for commits. In ADOPTING the coordinator accepts them again.

        Raises CommitFailedError from inside a listener (it would wait for itself) and while partitions are revoked
        (that may wait for the application). Raises KafkaTimeoutError.
        """
        deadline = Deadline(self._edge, timeout_ms)
        hopeless = [State.UNJOINED, State.FAILED, State.STOPPED]
        if self._protocol == "eager":
            hopeless.append(State.PREPARING)
        while True:
            if self.state in hopeless or asyncio.current_task() is self._task:
                raise CommitFailedError(f"group {self.member.group_id!r} is rebalancing")
            if self.state is State.ADOPTING or (
                self.state is State.STABLE and not self._rejoin and not self._ownership.lost
            ):
                return
            if deadline.expired:
                text = f"group {self.member.group_id!r} did not settle within {timeout_ms:.0f} ms"
                raise self._cluster.timed_out(text, timeout_ms)
            await self.settled.wait(deadline.remaining_ms)

    def commit_refused(self, error: KafkaError, membership: Membership) -> None:
        """The coordinator does not accept `membership` as a member: the partitions are lost, and the consumer joins
        again.
        """
        if membership == self.member.membership:
            self._expelled(error)

    async def stop(self) -> None:
        """Commit and revoke the owned partitions, then leave the group. `run` must have ended."""
        # First: a commit that meets a rebalance must not wait for it, because `run` has ended.
        self._to(State.STOPPED)
        owned = list(self._subscription.states)
        if owned and self._ownership.lost is None and self.failure is None:
            await self._ownership.give_up(owned)
        await self.heartbeats.end()
        await self.leave()

    async def leave(self) -> None:
        """Leave the group at once: nothing is committed, and the listener is not called. May follow a cancelled
        `stop`.
        """
        self.heartbeats.cut()
        self._to(State.STOPPED)
        self._subscription.drop(list(self._subscription.states))
        await self.member.leave()

    # The states

    def _to(self, state: State) -> None:
        assert state is self.state or state in NEXT[self.state], f"{self.state} -> {state}"
        self.state = state
        self.settled.notify()

    async def _until_wanted(self) -> None:
        """Wait in UNJOINED until topics are subscribed and the application asks for records."""
        while not self._subscription.is_automatic or (self._max_poll_exceeded and self._polls.exceeded()):
            await self.heartbeats.end()
            self._to(State.UNJOINED)
            await self._lose_all()
            await self.member.leave()
            self._rejoin = None
            await self._wake.wait()
        self._max_poll_exceeded = False

    async def _give_up_before_joining(self) -> None:
        if self._ownership.lost is None:
            wanted = self._subscription.wanted_topics(self._cluster.metadata)
            owned = self._subscription.states
            kept = self._protocol == "cooperative"
            await self._revoke([p for p in owned if not (kept and p.topic in wanted)])
        await self._lose_all()

    async def _join_and_adopt(self) -> None:
        """Go through JOINING, SYNCING, ADOPTING to STABLE."""
        self._rejoin = self._ownership.lost = None
        # Heartbeats continue until here: the coordinator may have waited long for this member.
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
        log.info("group %r generation %d: assigned %s", self.member.group_id, joined.generation, names_of(given))
        self._had, self._had_generation = given, joined.generation
        self.heartbeats.start()
        self._to(State.ADOPTING)
        await self._adopt(given)
        self._to(State.STABLE)
        # Changes during this rebalance were not looked at.
        self.metadata_changed()

    async def _join_as_another(self) -> None:
        """Leave and join as a new member. A member that rejoins unchanged may get the same generation again. With
        that generation the application could commit records of revoked partitions while other members read them.
        """
        await self.member.leave()
        self.member.forget_identity()  # a static member does not leave: the next join with its name replaces it

    async def _topics_to_join_with(self) -> tuple[str, ...]:
        if self._subscription.mode is Mode.PATTERN:
            await self._cluster.refresh()
        return self._subscription.wanted_topics(self._cluster.metadata)

    async def _assign(self, joined: JoinedGeneration) -> dict[str, list[TopicPartition]]:
        """As the group's leader: computes the assignment, and watches the partition counts of all subscribed topics."""
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
        # The subscription may have changed since the join. A rejoin is due then anyway.
        given = [partition for partition in given if partition.topic in wanted]
        gone = [partition for partition in subscription.states if partition not in given]
        if gone:
            if not await self._revoke(gone):
                return
            self.request_rejoin(f"revoked {names_of(gone)}")
        await self._ownership.adopt(given)

    async def _until_rebalance(self) -> None:
        while self._rejoin is None and self._ownership.lost is None and self._subscription.is_automatic:
            await self._wake.wait()
        log.info(
            "group %r: rejoining, %s", self.member.group_id, self._rejoin or self._ownership.lost or "unsubscribed"
        )

    # Revoking partitions

    async def _revoke(self, partitions: Sequence[TopicPartition]) -> bool:
        return await self._ownership.revoke(partitions, self._config.heartbeat_interval_ms)

    async def _lose_all(self) -> None:
        error = self._ownership.lost
        if error is None:
            return
        await self._ownership.let_go(before_listener=lambda: self._forget_membership(error))

    def _forget_membership(self, error: KafkaError) -> None:
        if isinstance(error, BrokerResponseError) and error.code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member.forget_identity()
        else:
            self.member.forget_generation()

    # Errors

    async def _recover(self, error: KafkaError) -> bool:
        """Decide how to continue after a failed rebalance. False when the member cannot continue."""
        action = action_for(error.code) if isinstance(error, BrokerResponseError) else None
        if action is Action.REJOIN_AS_NEW or (
            action is Action.REJOIN and not isinstance(error, RebalanceInProgressError)
        ):
            log.info("group %r: %s; joining again", self.member.group_id, error)
            self._ownership.lost = error
            return True
        if action is Action.REJOIN:
            return True
        if not error.retriable:
            self._fail(error)
            return False
        if action in (None, Action.REDISCOVER):
            self._cluster.forget_coordinator(self.member.group_id)
        if self._outage.is_due():
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
        self._ownership.lose(error)
