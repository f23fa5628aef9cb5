"""Commits of positions: on request, every auto_commit_interval_ms, and before partitions are revoked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from semel_protocol.schema import ZERO_UUID

from semel._config.consumer import ConsumerConfig
from semel._edge import Edge
from semel._group.consumer_group import AnyGroup
from semel._group.offsets import Membership, Offsets
from semel._net.retry import Deadline
from semel._subscription.subscription import Subscription
from semel.errors import (
    CommitFailedError,
    DeletedTopicCommitError,
    FencedMemberEpochError,
    GroupIdNotFound,
    IllegalGenerationError,
    KafkaError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from semel.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)

AUTO_COMMIT_TIMEOUT_MS = 10_000
"""Bounds the auto-commit, because a rebalance or `stop` waits for it."""

ToCommit = Mapping[TopicPartition, OffsetAndMetadata]
Committable = int | OffsetAndMetadata | tuple[int, str]


def committable(at: Committable) -> OffsetAndMetadata:
    """The offset to commit. Raises ValueError for a negative one."""
    made = OffsetAndMetadata(at) if isinstance(at, int) else OffsetAndMetadata(*at)
    if made.offset < 0:
        raise ValueError(f"offset={made.offset} cannot be committed: offsets start at 0")
    return made


class Commits:
    """The commits of one consumer."""

    def __init__(
        self, edge: Edge, config: ConsumerConfig, subscription: Subscription, offsets: Offsets, group: AnyGroup
    ) -> None:
        self._edge, self._config = edge, config
        self._subscription, self._offsets, self._group = subscription, offsets, group

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The membership under which the application got its records, and the topics of the records. After a revocation
        the coordinator refuses it. For a consumer with assigned partitions the membership is only the group's id.
        """
        member, states = self._group.member, self._subscription.states
        ids = tuple((place, state.topic_in_hand) for place, state in states.items() if state.topic_in_hand != ZERO_UUID)
        membership = member.transaction_membership if self._subscription.is_automatic else Membership()
        return ConsumerGroupMetadata(
            member.group_id, membership.generation, membership.member_id, membership.group_instance_id, ids
        )

    async def run(self) -> None:
        """Auto-commit until cancelled."""
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            await self.commit_consumed()

    async def commit_consumed(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Commit the consumed positions that the coordinator does not know yet. Never raises.

        A refused auto-commit loses nothing: the records are read again.
        """
        offsets = {p: OffsetAndMetadata(at) for p, at in self._subscription.to_commit(partitions).items()}
        if not offsets or not self._config.enable_auto_commit:
            return
        timeout_ms = min(self._config.default_api_timeout_ms, AUTO_COMMIT_TIMEOUT_MS)
        try:
            await self.commit(offsets, timeout_ms)
        except KafkaError as error:
            log.warning("auto-commit of group %r failed: %s", self._config.group_id, error)

    def check_topics(self, offsets: ToCommit) -> None:
        """Raise DeletedTopicCommitError if offsets that the application gives are of a topic that was deleted."""
        for partition in offsets:
            state = self._subscription.states.get(partition)
            if state is not None and state.topic_in_hand != state.topic_id:
                raise _topic_is_gone(partition)

    async def commit(self, offsets: ToCommit, timeout_ms: float) -> None:
        """Commit offsets. Waits for a rebalance to end, as long as the partitions stay assigned.

        Raises CommitFailedError when they do not, DeletedTopicCommitError when the topic was deleted,
        KafkaTimeoutError, and final errors of the coordinator.
        """
        if not self._subscription.is_automatic:
            await self._commit_without_membership(offsets, timeout_ms)
            return
        states = {partition: self._subscription.states.get(partition) for partition in offsets}
        if None in states.values():
            missing = ", ".join(f"{p.topic}-{p.partition}" for p, state in states.items() if state is None)
            raise CommitFailedError(f"not assigned to this consumer: {missing}")
        deadline = Deadline(self._edge, timeout_ms)
        while not await self._try(offsets, deadline):
            await self._group.until_settled(deadline.remaining_ms)
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)
            for partition, state in states.items():
                now = self._subscription.states.get(partition)
                if now is not None and state is not None and now.topic_id != state.topic_id:
                    raise _topic_is_gone(partition)
                if now is not state:
                    raise CommitFailedError("the group has rebalanced and moved the partitions")
        for partition, state in states.items():
            assert state is not None
            state.committed = offsets[partition].offset

    async def _try(self, offsets: ToCommit, deadline: Deadline) -> bool:
        """Commit once. False when a rebalance is in progress, or the epoch has changed."""
        membership = self._group.member.membership
        try:
            await self._offsets.commit(offsets, membership, max(deadline.remaining_ms, 1))
        except RebalanceInProgressError:
            self._group.request_rejoin("the coordinator refused a commit because of a rebalance")
            return False
        except StaleMemberEpochError:
            return False  # a heartbeat brings the present epoch of the consumer protocol
        except (IllegalGenerationError, UnknownMemberIdError, FencedMemberEpochError, GroupIdNotFound) as error:
            if membership != self._group.member.membership and isinstance(error, IllegalGenerationError):
                return False  # the request was sent just before a new generation began
            self._group.commit_refused(error, membership)
            raise CommitFailedError(error.message or str(error)) from error
        return True

    async def _commit_without_membership(self, offsets: ToCommit, timeout_ms: float) -> None:
        try:
            await self._offsets.commit(offsets, Membership(), timeout_ms)
        except (UnknownMemberIdError, IllegalGenerationError, StaleMemberEpochError, RebalanceInProgressError) as error:
            raise CommitFailedError(
                f"group {self._config.group_id!r} has members, and this consumer is none: it has assigned partitions"
            ) from error
        for partition, at in offsets.items():
            if (state := self._subscription.states.get(partition)) is not None:
                state.committed = at.offset


def _topic_is_gone(partition: TopicPartition) -> DeletedTopicCommitError:
    topic, index = partition
    return DeletedTopicCommitError(f"{topic}-{index} was read from a topic that was deleted and created again since")
