"""Checks that clients make progress after all faults: consumers read to the end, and producers can write.

The check uses the clients of the run, with their state from the time of the faults: their metadata, and the events that
they wait for. A new client, such as the final reader, has no such state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from semel import Consumer, TopicPartition
from semel.errors import IllegalStateError, KafkaError, RetriableError

from sim.workloads.base import ClientContext, raise_unexpected
from sim.workloads.plan import ClientPlan, WorkloadPlan
from sim.workloads.recording_producer import PAUSE_S, RecordingProducer

POLL_MS = 500
RECOVERED_WITHIN_S = 20.0
"""Time limit in addition to the client's own timeouts. It is well below 300 s, the default of metadata_max_age_ms."""

NOT_FOUND, NOT_ASSIGNED = -1, -2
"""Stand for a position that the consumer is still looking up, and for a partition that no member has."""

Behind = dict[TopicPartition, tuple[int, int]]
"""Partitions with more records to read: the position in each, and its end."""


class ReadingConsumer(Protocol):
    """A consumer that records its actions: a RecordingConsumer or a Membership."""

    consumer: Consumer
    read_committed: bool

    async def poll(self, timeout_ms: int) -> Any: ...


class StallDetector:
    """Finds partitions with unread records whose position stays the same for `limit_s`."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._since: dict[TopicPartition, tuple[int, float]] = {}

    def stalled(self, behind: Behind, now_s: float) -> Behind:
        """The partitions in `behind` whose position has been the same for too long."""
        since = {place: (position, now_s) for place, (position, _) in behind.items()}
        for place, before in self._since.items():
            if place in since and since[place][0] == before[0]:
                since[place] = before
        self._since = since
        return {place: behind[place] for place, (_, at_s) in since.items() if now_s - at_s > self._limit_s}


async def read_on(
    context: ClientContext,
    client: ClientPlan,
    mine: ReadingConsumer,
    group: str = "",
    places: Collection[TopicPartition] = (),
) -> None:
    """Wait until all faults are over, then read to the end of all partitions of `mine`, or until it fails for good.

    A consumer that stalls is recorded, and left. The last member of a `group` (see `member_of`) has to get all its
    partitions (`places`) and to read them, too.
    """
    await until_fault_free(context, client)
    await _read_to_the_end(context, client, mine, context.fault_free.members.get(group, {}), places)


@contextmanager
def member_of(context: ClientContext, client: ClientPlan, group: str) -> Iterator[None]:
    """In this context the client is a member of the group, or will be again: others need not get all partitions."""
    members = context.fault_free.members.setdefault(group, {})
    members[client.name] = None
    try:
        yield
    finally:
        members.pop(client.name, None)


async def _read_to_the_end(
    context: ClientContext,
    client: ClientPlan,
    mine: ReadingConsumer,
    members: Collection[str],
    places: Collection[TopicPartition],
) -> None:
    """`members`: those of the group; none without a group."""
    detector = StallDetector(limit_s(client.settings))
    isolation = "read_committed" if mine.read_committed else "read_uncommitted"
    async with Consumer(**context.settings(isolation_level=isolation, bootstrap_timeout_ms=60_000)) as other:
        # Another consumer asks for the end offsets: the question must not change the state of `mine`.
        while await can_poll(mine):
            behind = await _behind(mine.consumer, other)
            if behind is None:
                continue
            if list(members) == [client.name]:
                behind |= {each: (NOT_ASSIGNED, 0) for each in places if each not in mine.consumer.assignment()}
            if not behind:
                return
            if stalled := detector.stalled(behind, context.edge.monotonic()):
                words = ", ".join(f"{p.topic}-{p.partition} {_words(*found)}" for p, found in stalled.items())
                context.fault_free.stalled.append(f"{client.name} reads nothing more of {words}")
                return


def _words(position: int, end: int) -> str:
    return "which is not assigned" if position == NOT_ASSIGNED else f"at {position} of {end}"


async def write_on(
    context: ClientContext, client: ClientPlan, mine: RecordingProducer, once: Callable[[], Awaitable[bool]]
) -> None:
    """Wait until all faults are over, then call `once` until it returns True: the records were stored.

    A producer that does not succeed in time is recorded. Returns also after an error that makes the producer useless.
    """
    await until_fault_free(context, client)
    mine.drop_padding()
    deadline = context.edge.monotonic() + limit_s(client.settings)
    while context.edge.monotonic() < deadline:
        try:
            if await once():
                return
        except KafkaError as error:
            raise_unexpected(error)
            if not isinstance(error, RetriableError):
                return
        await asyncio.sleep(PAUSE_S)
    context.fault_free.stalled.append(f"{client.name} cannot write any more")


def every_place(plan: WorkloadPlan) -> list[list[Any]]:
    """One record for each partition, as [topic, partition, key]; for a compacted topic one record with a key. None for
    the outputs of pipelines, to which only workers write.
    """
    outputs = [target for _, _, target in plan.pipelines]
    return [
        [topic.name, number, None] if topic.cleanup != "compact" else [topic.name, -1, "k0"]
        for topic in plan.topics
        if topic.name not in outputs
        for number in range(topic.partitions if topic.cleanup != "compact" else 1)
    ]


async def until_fault_free(context: ClientContext, client: ClientPlan) -> None:
    """Pause the whole process until the faults are over: its fetches and heartbeats would cost simulation time."""
    context.fault_free.waiting[client.name] = None
    while not context.fault_free.has_begun:
        context.pause_process()
        await asyncio.sleep(0)


def limit_s(settings: dict[str, Any]) -> float:
    timeouts = ("rebalance_timeout_ms", "session_timeout_ms", "max_poll_interval_ms")
    needs_ms = 2 * settings["request_timeout_ms"] + sum(settings.get(name, 0) for name in timeouts)
    return float(needs_ms / 1000 + RECOVERED_WITHIN_S)


async def can_poll(mine: ReadingConsumer) -> bool:
    """Poll once. Whether the consumer can continue."""
    try:
        await mine.poll(POLL_MS)
    except KafkaError as error:
        raise_unexpected(error)
        return isinstance(error, RetriableError)
    return True


async def _behind(consumer: Consumer, other: Consumer) -> Behind | None:
    """The partitions with unread records; None if some were revoked meanwhile."""
    found: Behind = {}
    ends = await other.end_offsets(sorted(consumer.assignment()))
    for place, end in ends.items():
        try:
            position = await consumer.position(place)
        except IllegalStateError:
            return None
        except KafkaError as error:
            raise_unexpected(error)
            position = NOT_FOUND
        if position < end:
            found[place] = (position, end)
    return found
