"""The membership of one consumer in a group of the consumer protocol (KIP-848): one task over the table of its member.

The coordinator assigns the partitions. This task exchanges them, one step at a time: it revokes partitions that are not
assigned any more, acknowledges, then adopts new ones. A revocation waits while the application processes records of the
partitions, for at most about rebalance_timeout_ms. The heartbeats are a task of their own.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager

from semel_protocol.backoff import Backoff

from semel._config.consumer import ConsumerConfig
from semel._group.consumer_heartbeats import ConsumerHeartbeats
from semel._group.consumer_member import (
    BEATING_STATES,
    MEMBER_STATES,
    ConsumerMember,
    IdPartition,
    State,
    Subscribed,
    topic_ids,
)
from semel._group.group import ClassicGroup
from semel._group.heartbeat import MaxPollExceededError, PollCalls, PollWatch
from semel._group.offsets import Membership
from semel._group.ownership import Ownership, names_of
from semel._group.topic_names import TopicNames
from semel._group.topic_regex import regex_for_brokers
from semel._net.cluster import Cluster
from semel._net.retry import Deadline
from semel._net.signal import Signal
from semel._subscription.subscription import Subscription
from semel.errors import CommitFailedError, KafkaError
from semel.structs import TopicPartition

log = logging.getLogger(__name__)


class ConsumerGroup:
    """The membership of one consumer; `run` is its task. Its calls are those of the classic `ClassicGroup`."""

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
        self._cluster, self._config, self._subscription, self._changed = cluster, config, subscription, changed
        self._wake = Signal()
        self._backoff = Backoff(cluster.edge.rng, config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._polls = PollWatch(cluster.edge, calls, config.max_poll_interval_ms)
        self.member = ConsumerMember(config, str(uuid.UUID(int=cluster.edge.rng.getrandbits(128), version=4)))
        self._names = TopicNames(cluster)
        self._ids: dict[TopicPartition, IdPartition] = {}
        self._targets_adopted = 0
        self._resolve_at = 0.0
        self._ownership = Ownership(
            cluster.edge, config, subscription, self.member, self._wake,
            before_revocation=before_revocation, changed=changed, calling_back=calling_back,
        )  # fmt: skip
        self.heartbeats = ConsumerHeartbeats(
            cluster, config, self.member, self._polls,
            subscribed=self._subscribed, on_answer=self._answered, on_lost=self._lost, on_failed=self._failed,
        )  # fmt: skip
        self.settled = Signal()
        """Notified at every change of state, and after every answer."""
        self.failure: KafkaError | None = None
        """The reason why this member can never join; every call for records raises it."""
        self.listener_errors = self._ownership.listener_errors

    @property
    def assignments(self) -> int:
        """The number of assignments so far; `start` waits for the first."""
        return self._ownership.assignments

    # Calls of the consumer

    async def run(self) -> None:
        """Run until cancelled, or until the member has failed."""
        self.heartbeats.start()
        while not self.heartbeats.is_over:
            if self.failure is not None:
                await self._let_go()
                return
            if not self._is_wanted:
                await self._leave_until_wanted()
            elif self._ownership.lost is not None:
                await self._let_go()
            elif self.member.state in (State.UNJOINED, State.FENCED):
                self._join()
            elif not await self._step():
                await self._until_woken()
        await self.heartbeats.end()

    def request_rejoin(self, reason: str) -> None:
        """Ask the coordinator for news at once."""
        log.debug("group %r: heartbeat at once, %s", self.member.group_id, reason)
        self.heartbeats.request()

    def subscription_changed(self) -> None:
        """The application subscribed to other topics, or unsubscribed. The next step revokes the others' partitions."""
        for state in self._subscription.states.values():
            if not self._is_subscribed(state.topic_partition.topic):
                state.hold()
        self.heartbeats.is_regex_refused = False
        self._wake.notify()
        self.heartbeats.look()

    def metadata_changed(self) -> None:
        """Topics that match a pattern may be new, and ids of topics may be known now."""
        self.heartbeats.look()
        self._wake.notify()

    def application_polled(self) -> None:
        """The application asks for records: the records handed out before are processed."""
        self.member.outdated = None
        self._wake.notify()

    async def until_settled(self, timeout_ms: float) -> None:
        """Wait for an answer to a heartbeat sent from now on, which has the member's epoch. Listeners may wait for it.

        Raises CommitFailedError when this consumer is no member, KafkaTimeoutError.
        """
        deadline = Deadline(self._cluster.edge, timeout_ms)
        number = self.heartbeats.request()
        while self.heartbeats.answered < number:
            if self.member.state not in MEMBER_STATES:
                raise CommitFailedError(f"this consumer is no member of group {self.member.group_id!r} at the moment")
            if deadline.expired:
                text = f"the coordinator of group {self.member.group_id!r} did not answer within {timeout_ms:.0f} ms"
                raise self._cluster.timed_out(text, timeout_ms)
            await self.settled.wait(deadline.remaining_ms)

    def commit_refused(self, error: KafkaError, membership: Membership) -> None:
        """The coordinator does not accept `membership` as a member: the partitions are lost, and the consumer joins
        again.
        """
        if self.member.state in MEMBER_STATES and membership == self.member.membership:
            self._lost(error)

    async def stop(self) -> None:
        """Commit and revoke the owned partitions, then leave the group. `run` must have ended."""
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
        self._subscription.drop(list(self._subscription.states))
        if self.failure is None and self.member.state is not State.STOPPED:
            self._to(State.LEAVING)
            await self.heartbeats.leave()
        self._to(State.STOPPED)

    # The states

    def _to(self, state: State) -> None:
        self.member.move(state)
        self.settled.notify()

    @property
    def _is_wanted(self) -> bool:
        """Whether topics are subscribed and the application asks for records."""
        exceeded = isinstance(self._ownership.lost, MaxPollExceededError)
        return self._subscription.is_automatic and not exceeded

    async def _leave_until_wanted(self) -> None:
        """Leave the group. Waits in UNJOINED until topics are subscribed and the application asks for records."""
        if self.member.state is not State.UNJOINED:
            self._to(State.LEAVING)
            if self._ownership.lost is not None:
                await self._let_go()
            self._ids.clear()
            await self.heartbeats.leave()
            self._to(State.UNJOINED)
        while not self._subscription.is_automatic or self._polls.exceeded():
            await self._wake.wait()

    def _join(self) -> None:
        self.member.join()
        self.settled.notify()
        self.heartbeats.look()

    async def _step(self) -> bool:
        """Take one step towards the target assignment. False when there is none to take now."""
        member = self.member
        if member.state not in MEMBER_STATES:
            return False
        self._forget_dropped()
        gone, new, unknown = self._gone(), self._new(), self._unknown()
        is_held = any(state.held for state in self._subscription.states.values())
        if member.state is State.STABLE and (gone or new or is_held):
            self._to(State.RECONCILING)
        if gone:
            await self._revoke(gone)
        elif unknown and self._cluster.edge.monotonic() >= self._resolve_at:
            await self._resolve(unknown)
        elif new or is_held or (not unknown and self._targets_adopted != member.targets):
            await self._adopt(new)
        else:
            if not unknown and member.state is State.RECONCILING:
                self._to(State.STABLE)
            return False
        return True

    def _forget_dropped(self) -> None:
        """`unsubscribe` has dropped partitions. If it was followed by `subscribe`, they are new again."""
        states = self._subscription.states
        if any(each not in states for each in self._ids):
            self._own({each: at for each, at in self._ids.items() if each in states})

    def _unknown(self) -> list[bytes]:
        """The assigned topics without a name yet."""
        return [topic_id for topic_id in topic_ids(self.member.target) if self._names.get(topic_id) is None]

    def _gone(self) -> list[TopicPartition]:
        """The owned partitions that are not assigned any more, or whose topics are not subscribed."""
        target = self.member.target
        return [each for each, at in self._ids.items() if at not in target or not self._is_subscribed(each.topic)]

    def _new(self) -> dict[TopicPartition, IdPartition]:
        """The assigned partitions that are not owned yet, as far as their topics have names."""
        new: dict[TopicPartition, IdPartition] = {}
        for at in sorted(self.member.target):
            name = self._names.get(at[0])
            if name is not None and self._is_subscribed(name) and TopicPartition(name, at[1]) not in self._ids:
                new[TopicPartition(name, at[1])] = at
        return new

    async def _resolve(self, unknown: Sequence[bytes]) -> None:
        """Ask for names of topic ids. A broker may not know a topic yet that its coordinator has assigned."""
        try:
            await self._names.resolve(unknown)
        except KafkaError as error:
            if not error.retriable:
                self._failed(error)
                return
            log.info("group %r: cannot get the names of assigned topics, trying again: %s", self.member.group_id, error)
        if not self._unknown():
            self._backoff.reset()
        else:
            self._resolve_at = self._cluster.edge.monotonic() + self._backoff.next_ms() / 1000

    async def _revoke(self, gone: Sequence[TopicPartition]) -> None:
        if await self._ownership.revoke(gone, self.member.interval_ms) and self._ownership.lost is None:
            log.info("group %r epoch %d: revoked %s", self.member.group_id, self.member.epoch, names_of(gone))
            self._own({each: at for each, at in self._ids.items() if each not in gone})

    async def _adopt(self, new: dict[TopicPartition, IdPartition]) -> None:
        self._targets_adopted = self.member.targets
        log.info("group %r epoch %d: assigned %s", self.member.group_id, self.member.epoch, names_of(new))
        self._cluster.want(each.topic for each in new)
        ids = self._ids | new
        self.member.own(ids.values())  # already now: the target may lose them while the listener gets them
        await self._ownership.adopt(list(ids), {each: at[0] for each, at in ids.items()})
        if self._ownership.lost is None:
            self._own(ids)
            self._names.keep([*topic_ids(self.member.target), *topic_ids(self.member.owned)])

    def _own(self, ids: dict[TopicPartition, IdPartition]) -> None:
        """Replace the owned partitions, and have them acknowledged at once."""
        self._ids = ids
        self.member.own(ids.values())
        self.heartbeats.look()

    async def _until_woken(self) -> None:
        """Wait for a change. There is no await between the last check of `_step` and this."""
        if self._unknown():
            await self._wake.wait(max(self._resolve_at - self._cluster.edge.monotonic(), 0) * 1000)
        else:
            await self._wake.wait()

    # The subscription

    def _subscribed(self, broker_has_regex: bool) -> Subscribed:
        subscription = self._subscription
        if subscription.pattern is not None and broker_has_regex and not self.heartbeats.is_regex_refused:
            regex = regex_for_brokers(
                subscription.pattern, exclude_internal_topics=self._config.exclude_internal_topics
            )
            if regex is not None:
                return Subscribed(regex=regex)
        return Subscribed(names=tuple(sorted(subscription.wanted_topics(self._cluster.metadata))))

    def _is_subscribed(self, topic: str) -> bool:
        """Whether the topic belongs to the subscription. The metadata may not have it yet."""
        pattern = self._subscription.pattern
        return topic in self._subscription.topics if pattern is None else pattern.match(topic) is not None

    # Events of the heartbeats

    def _answered(self) -> None:
        self._wake.notify()
        self.settled.notify()

    def _lost(self, error: KafkaError) -> None:
        if isinstance(error, MaxPollExceededError):
            self.member.move(State.LEAVING)
        else:
            self.member.fence()
        self._ownership.lose(error)
        self.settled.notify()

    def _failed(self, error: KafkaError) -> None:
        if self.member.state not in BEATING_STATES:
            return
        self.failure = error
        self.member.move(State.FAILED)
        self._ownership.lose(error)
        self.settled.notify()
        self._changed()

    async def _let_go(self) -> None:
        self._ids = {}
        await self._ownership.let_go(before_listener=lambda: None)


AnyGroup = ClassicGroup | ConsumerGroup
"""The membership in a group of either protocol."""
