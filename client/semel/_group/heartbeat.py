"""Heartbeats of a member to its coordinator, as long as the application asks for records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from semel_protocol.backoff import Backoff

from semel._config.consumer import ConsumerConfig
from semel._edge import Edge
from semel._group.member import GroupIdentity
from semel._net.cluster import Cluster
from semel.errors import KafkaError, RebalanceInProgressError

log = logging.getLogger(__name__)


class MaxPollExceededError(KafkaError):
    """The application has not asked for records for max_poll_interval_ms."""

    advice = "Raise max_poll_interval_ms, lower max_poll_records, or process the records in a task of its own"


class PollCalls(msgspec.Struct):
    """The application's calls for records: the number made, and the number that wait now.

    last_at: when a call was noticed last. A call that finds a decoded record is noticed at the next heartbeat.
    """

    made: int = 0
    open: int = 0
    last_at: float = 0.0
    noticed: int = 0

    def notice(self, now: float) -> None:
        """Notice the calls that were made or wait, if there are any since the last time. now: the monotonic clock."""
        if self.open or self.made != self.noticed:
            self.noticed, self.last_at = self.made, now


class PollWatch:
    """Whether the application still asks for records."""

    def __init__(self, edge: Edge, calls: PollCalls, max_poll_interval_ms: int) -> None:
        self._edge, self._calls, self._max_poll_interval_ms = edge, calls, max_poll_interval_ms
        self._calls_seen = 0
        self._called_at = edge.monotonic()

    def exceeded(self) -> bool:
        """Whether the application has not asked for records for max_poll_interval_ms."""
        now = self._edge.monotonic()
        self._calls.notice(now)
        if self._calls.open or self._calls.made != self._calls_seen:
            self._calls_seen, self._called_at = self._calls.made, now
        return (now - self._called_at) * 1000 > self._max_poll_interval_ms


class HeartbeatTask:
    """The task that sends heartbeats, of which a member has one at most."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def _begin(self, beats: Coroutine[Any, Any, None], group_id: str) -> asyncio.Task[None]:
        assert self._task is None, "one heartbeat task at a time"
        self._task = asyncio.create_task(beats, name=f"heartbeats of {group_id}")
        return self._task

    async def end(self) -> None:
        """Stop the task; raise an unexpected exception of it. May be called before `start`."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait((task,))
        if not task.cancelled():
            task.result()

    def cut(self) -> list[asyncio.Task[None]]:
        """Send no more heartbeats from now on. Returns the task, which ends soon."""
        if self._task is None:
            return []
        self._task.cancel()
        return [self._task]

    @property
    def is_over(self) -> bool:
        """Whether the task has ended by itself, which is a bug: `end` raises it."""
        return self._task is not None and self._task.done()


class Heartbeats(HeartbeatTask):
    """Sends heartbeats from one SyncGroup to the next JoinGroup.

    on_rebalance: the coordinator asks for a rejoin.
    on_expelled: the coordinator no longer has this member, or the application has not polled within
    max_poll_interval_ms.
    """

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        member: GroupIdentity,
        polls: PollWatch,
        *,
        on_rebalance: Callable[[str], None],
        on_expelled: Callable[[KafkaError], None],
    ) -> None:
        super().__init__()
        self._cluster, self._config, self._member, self._polls = cluster, config, member, polls
        self._on_rebalance, self._on_expelled = on_rebalance, on_expelled
        self._edge = cluster.edge

    def start(self) -> None:
        self._begin(self._beat(), self._member.group_id)

    async def _beat(self) -> None:
        config = self._config
        backoff = Backoff(self._edge.rng, config.retry_backoff_ms, config.retry_backoff_max_ms)
        pause_ms: float = config.heartbeat_interval_ms
        while True:
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = config.heartbeat_interval_ms
            if self._polls.exceeded():
                self._on_expelled(MaxPollExceededError(f"no call for records within {config.max_poll_interval_ms} ms"))
                return
            try:
                await self._member.heartbeat()
                backoff.reset()
            except RebalanceInProgressError:
                self._on_rebalance("the group is rebalancing")
            except KafkaError as error:
                if not error.retriable:
                    self._on_expelled(error)
                    return
                self._cluster.forget_coordinator(self._member.group_id)
                log.info("group %r: %s; trying again", self._member.group_id, error)
                pause_ms = min(backoff.next_ms(), config.heartbeat_interval_ms)
