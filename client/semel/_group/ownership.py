"""The partitions that one member owns: revokes them in order, loses them, and calls the rebalance listener.

A revocation waits while the application processes records of the partitions, then commits and calls the listener.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from semel._config.consumer import ConsumerConfig
from semel._edge import Edge
from semel._group.offsets import Membership
from semel._net.retry import Deadline
from semel._net.signal import Signal
from semel._subscription.listener import notify_listener
from semel._subscription.subscription import Mode, Subscription
from semel.errors import KafkaError
from semel.structs import TopicPartition

log = logging.getLogger(__name__)


class MemberIdentity(Protocol):
    """outdated: the membership under which the application got records of partitions that are revoked since."""

    outdated: Membership | None

    @property
    def membership(self) -> Membership:
        """The membership for commits."""


class Ownership:
    """The owned partitions are those of the subscription.

    wake: notified when the application asks for records, and when partitions are lost.
    before_revocation: runs the auto-commit while the partitions are still owned.
    changed: called after every change of the assignment.
    calling_back: marks calls of the listener.
    """

    def __init__(
        self,
        edge: Edge,
        config: ConsumerConfig,
        subscription: Subscription,
        member: MemberIdentity,
        wake: Signal,
        *,
        before_revocation: Callable[[Sequence[TopicPartition]], Awaitable[None]],
        changed: Callable[[], None],
        calling_back: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._edge, self._config, self._subscription, self._member = edge, config, subscription, member
        self._wake, self._before_revocation, self._changed = wake, before_revocation, changed
        self._calling_back = calling_back
        self.lost: KafkaError | None = None
        """The reason why other members may own the partitions already."""
        self.listener_errors: list[BaseException] = []
        """Exceptions of rebalance listeners, for the next calls for records to raise."""
        self.assignments = 0
        """The number of assignments so far."""

    def lose(self, error: KafkaError) -> None:
        """The partitions are lost from now on. The task of the group calls `let_go`."""
        self.lost = self.lost or error
        self._wake.notify()

    async def revoke(self, partitions: Sequence[TopicPartition], heartbeat_interval_ms: float) -> bool:
        """Revoke partitions in order: wait for the application, commit, call the listener, drop them. False when
        they turn out lost.
        """
        if not partitions:
            return True
        states = [self._subscription.states[partition] for partition in partitions]
        for state in states:
            state.hold()
        rebalance_ms = self._config.rebalance_wait_ms
        wait_ms = max(rebalance_ms - 2 * heartbeat_interval_ms, rebalance_ms / 2)
        deadline = Deadline(self._edge, wait_ms)
        self._changed()
        while self.lost is None and any(state.in_hand for state in states):
            if deadline.expired or not await self._wake.wait(deadline.remaining_ms):
                log.warning(
                    "group %r: %s revoked after %d ms while their records are processed; other members read them again",
                    self._config.group_id, names_of(partitions), wait_ms,
                )  # fmt: skip
                break
        if self.lost is not None:
            return False
        await self.give_up(partitions)
        self.drop(partitions)
        self._changed()
        return True

    async def give_up(self, partitions: Sequence[TopicPartition]) -> None:
        """Commit the partitions and call on_partitions_revoked."""
        await self._before_revocation(partitions)
        await self.notify_listener("on_partitions_revoked", partitions)

    async def let_go(self, before_listener: Callable[[], None]) -> None:
        """Drop all partitions because they are lost. Nothing is committed: other members may own them already.

        before_listener: forgets the membership, which `drop` has noted for records in hand.
        """
        error, self.lost = self.lost, None
        # Partitions that the application has assigned itself meanwhile are no part of the membership.
        owned = list(self._subscription.states) if self._subscription.mode is not Mode.MANUAL else []
        self.drop(owned)
        self._changed()
        before_listener()
        if owned:
            log.warning("group %r: lost %s: %s", self._config.group_id, names_of(owned), error)
            await self.notify_listener("on_partitions_lost", owned)

    async def adopt(
        self, given: Sequence[TopicPartition], topic_ids: Mapping[TopicPartition, bytes] | None = None
    ) -> None:
        """Replace the assignment and call on_partitions_assigned. Partitions in both keep their state.

        topic_ids: as in `Subscription.assign`.
        """
        subscription = self._subscription
        new = [partition for partition in given if partition not in subscription.states]
        subscription.assign(given, topic_ids)
        for partition, state in subscription.states.items():
            # A kept partition may be held too, after a subscription that was changed and changed back.
            state.held = partition in new
        self._changed()
        await self.notify_listener("on_partitions_assigned", new)
        for state in subscription.states.values():
            state.held = False
        self.assignments += 1
        self._changed()

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """End the states of the partitions. Notes the membership if the application processes records of them."""
        states = self._subscription.states
        if self._member.outdated is None and any(states[each].in_hand for each in partitions if each in states):
            self._member.outdated = self._member.membership
        self._subscription.drop(partitions)

    async def notify_listener(self, method: str, partitions: Iterable[TopicPartition]) -> None:
        """Call the application's listener. The next call for records raises its exception."""
        try:
            with self._calling_back():
                await notify_listener(self._subscription.listener, method, partitions)
        except Exception as error:
            log.exception("group %r: %s of the rebalance listener failed", self._config.group_id, method)
            self.listener_errors.append(error)
            self._changed()


def names_of(partitions: Iterable[TopicPartition]) -> str:
    """The partitions for a log line."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions) or "nothing"
