"""Once all faults are over, whoever reads gets to the end, and whoever writes can write: nobody stands still.

Consumers and producers are kept when their clients have nothing more to do. They are as the faults have left them, with
what they believe of leaders and what they wait for; a fresh one, such as the last reading opens, knows nothing of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from semel import Consumer, TopicPartition
from semel.errors import IllegalStateError, KafkaError, RetriableError

from sim.workloads.base import ClientContext, raise_unexpected
from sim.workloads.plan import ClientPlan, WorkloadPlan
from sim.workloads.recording_producer import PAUSE_S, RecordingProducer

POLL_MS = 500
RECOVERED_WITHIN_S = 20.0
"""Beside what its own timeouts may take a client. Well below the 300 s after which it asks for metadata anyway."""

NOT_FOUND = -1
"""In place of a position that is still looked up."""

Behind = dict[TopicPartition, tuple[int, int]]
"""Partitions with more to read, with the position in each and where it ends."""


class Reading(Protocol):
    """A consumer whose doings are written down: an Eye, or a Membership."""

    consumer: Consumer
    read_committed: bool

    async def poll(self, timeout_ms: int) -> Any: ...


class StallDetector:
    """Notices when nothing comes of a partition for `patience_s`, though there is something."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since: dict[TopicPartition, tuple[int, float]] = {}

    def stalled(self, behind: Behind, now_s: float) -> Behind:
        """Those of them whose position has been the same for too long."""
        since = {place: (position, now_s) for place, (position, _) in behind.items()}
        for place, before in self._since.items():
            if place in since and since[place][0] == before[0]:
                since[place] = before
        self._since = since
        return {place: behind[place] for place, (_, at_s) in since.items() if now_s - at_s > self._patience_s}


async def read_on(context: ClientContext, client: ClientPlan, mine: Reading) -> None:
    """Until all faults are over, and then to the end of whatever `mine` reads, or until that is of no use any more.

    One that stands still meanwhile is written down, and left.
    """
    await _until_fault_free(context, client)
    detector = StallDetector(_patience_s(client.settings))
    isolation = "read_committed" if mine.read_committed else "read_uncommitted"
    async with Consumer(**context.settings(isolation_level=isolation, bootstrap_timeout_ms=60_000)) as other:
        # Another one asks where the ends are: that must not remind `mine` of anything.
        while await _poll(mine):
            behind = await _behind(mine.consumer, other)
            if behind == {}:
                return
            if behind is None:
                continue
            if stalled := detector.stalled(behind, context.edge.monotonic()):
                places = ", ".join(f"{p.topic}-{p.partition} at {at} of {end}" for p, (at, end) in stalled.items())
                context.fault_free.stalled.append(f"{client.name} reads nothing more of {places}")
                return


async def write_on(
    context: ClientContext, client: ClientPlan, mine: RecordingProducer, once: Callable[[], Awaitable[bool]]
) -> None:
    """Until all faults are over, and then `once` more: whether it was stored. It may be tried again, but not for long.

    Returns also when it raises what makes an end of its producer.
    """
    await _until_fault_free(context, client)
    mine.drop_padding()
    deadline = context.edge.monotonic() + _patience_s(client.settings)
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
    """A record for each partition, as [topic, partition, key]; for each topic, where records need keys. None for what
    only a pipeline writes to.
    """
    outputs = [target for _, _, target in plan.pipelines]
    return [
        [topic.name, number, None] if topic.cleanup != "compact" else [topic.name, -1, "k0"]
        for topic in plan.topics
        if topic.name not in outputs
        for number in range(topic.partitions if topic.cleanup != "compact" else 1)
    ]


async def _until_fault_free(context: ClientContext, client: ClientPlan) -> None:
    """Stands still with its whole process: what fetches and beats beside it would cost the run its time."""
    context.fault_free.waiting[client.name] = None
    while not context.fault_free.has_begun:
        context.pause_process()
        await asyncio.sleep(0)


def _patience_s(settings: dict[str, Any]) -> float:
    waits = ("rebalance_timeout_ms", "session_timeout_ms", "max_poll_interval_ms")
    needs_ms = 2 * settings["request_timeout_ms"] + sum(settings.get(wait, 0) for wait in waits)
    return float(needs_ms / 1000 + RECOVERED_WITHIN_S)


async def _poll(mine: Reading) -> bool:
    """Whether it can go on."""
    try:
        await mine.poll(POLL_MS)
    except KafkaError as error:
        raise_unexpected(error)
        return isinstance(error, RetriableError)
    return True


async def _behind(consumer: Consumer, other: Consumer) -> Behind | None:
    """What is there and was not handed out yet; None if partitions were taken away meanwhile."""
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
