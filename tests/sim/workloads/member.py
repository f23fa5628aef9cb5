"""The role of a member of a consumer group: polls, commits, reads committed offsets, leaves and joins again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from typing import Any

from semel import Consumer, ConsumerRebalanceListener, TopicPartition
from semel.errors import KafkaError, RetriableError

from sim.events import NO_TXN
from sim.history import Recorder
from sim.workloads.base import ClientContext, raise_unexpected, stop
from sim.workloads.liveness import member_of, read_on
from sim.workloads.plan import ClientPlan, Op, Script, WorkloadPlan, pause_ms
from sim.workloads.recording_consumer import noted
from sim.workloads.recording_producer import PAUSE_S

CLOSED_WITHIN_S = 2.0
"""A closing ends within this time after its caller was cancelled."""


def draw_ops(rng: Random, *, count: int, mean_ms: float, auto_commit: bool) -> list[Op]:
    """Operations poll: for at most `timeout_ms`; commit: the polled offsets; look: read committed offsets; renew.

    With automatic commits there is no commit and no look, because the history does not contain these commits.
    """
    ops = []
    for _ in range(count):
        kind = rng.choices(
            ("poll", "commit", "look", "renew"), (14, 0 if auto_commit else 6, 0 if auto_commit else 2, 1)
        )[0]
        args = {"timeout_ms": rng.choice((0, 50, 500))} if kind == "poll" else {}
        ops.append(Op(kind=kind, pause_ms=pause_ms(rng, mean_ms), args=args))
    return ops


class RecordingMember(ConsumerRebalanceListener):
    """A consumer in a group that records its actions. `positions`: next offsets in the partitions that it still has."""

    def __init__(
        self, context: ClientContext, name: str, group: str, topics: list[str], settings: dict[str, Any]
    ) -> None:
        self.recorder: Recorder = context.history.recorder(name)
        self.group, self.positions = group, dict[TopicPartition, int]()
        self._now_ms = context.history.now_ms
        self.read_committed = settings.get("isolation_level") == "read_committed"
        self._protocol = settings.get("group_protocol", "classic")
        self.consumer = Consumer(
            **context.settings(client_id=name, group_id=group, auto_offset_reset="earliest", **settings)
        )
        self.consumer.subscribe(topics, listener=self)

    async def start(self) -> None:
        """Raise KafkaError."""
        self.recorder.consuming(self.group, read_committed=self.read_committed, protocol=self._protocol)
        await self.consumer.start()

    async def poll(self, timeout_ms: int, *, txn: int = NO_TXN) -> dict[TopicPartition, Any]:
        """Raise KafkaError."""
        polled = await self.consumer.getmany(timeout_ms=timeout_ms)
        noted(self.recorder, polled, txn)
        for place, records in polled.items():
            self.positions[place] = records[-1].offset + 1
        return polled

    async def commit(self) -> None:
        """Commit the positions, if there are any. Raises KafkaError."""
        if self.positions:
            offsets = dict(self.positions)
            op = self.recorder.committing_offsets(self.group, offsets)
            await self.consumer.commit(offsets)
            self.recorder.offsets_committed(op)

    async def look(self) -> None:
        """Record the group's committed offsets of the assigned partitions. Raises KafkaError."""
        for place in sorted(self.consumer.assignment()):
            since_ms = self._now_ms()
            offset = await self.consumer.committed(place)
            self.recorder.offsets_seen(self.group, {place: offset}, since_ms=since_ms)

    # Called by the consumer

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        # Not group_metadata(): with records of revoked partitions in hand it returns their generation.
        assert self.consumer._group is not None
        membership = self.consumer._group.member.membership
        self.recorder.assigned(assigned, membership.generation, member_id=membership.member_id)

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._gone(revoked, lost=False)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self._gone(lost, lost=True)

    def _gone(self, places: Iterable[TopicPartition], *, lost: bool) -> None:
        places = list(places)
        self.recorder.revoked(places, lost=lost)
        for place in places:
            self.positions.pop(place, None)


async def opened(
    context: ClientContext, name: str, group: str, topics: list[str], settings: dict[str, Any]
) -> RecordingMember:
    """A member that has started, after as many attempts as needed."""
    while True:
        mine = RecordingMember(context, name, group, topics, settings)
        try:
            await mine.start()
            return mine
        except KafkaError as error:
            raise_unexpected(error)
            await asyncio.sleep(PAUSE_S)


async def stop_in_a_cancelled_scope(context: ClientContext, client: ClientPlan, consumer: Consumer) -> None:
    """Stop as in a cancelled scope of anyio, which cancels each await. The closing ends without its caller.

    A consumer that still sends heartbeats after that is recorded: no member reads its partitions.
    """
    stopping = asyncio.create_task(consumer.stop(), name=f"{client.name} stops")
    await asyncio.sleep(0)
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    await asyncio.sleep(CLOSED_WITHIN_S)
    beats = consumer._group.heartbeats._task if consumer._group is not None else None
    if beats is not None and not beats.done():
        context.fault_free.stalled.append(f"{client.name} has stopped, and its heartbeats continue")


async def take_part(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role, in the first group of the plan."""
    with member_of(context, client, plan.groups[0]):
        await _take_part(plan, client, context, script)


async def _take_part(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    topics = [topic.name for topic in plan.topics]
    mine: RecordingMember | None = None
    renewals = 0
    while not script.is_done:
        if mine is None:
            mine = await opened(context, client.name, plan.groups[0], topics, client.settings)
        op = script.next()
        assert op is not None
        await asyncio.sleep(op.pause_ms / 1000)
        try:
            if op.kind == "poll":
                await mine.poll(op.args["timeout_ms"])
            elif op.kind == "commit":
                await mine.commit()
            elif op.kind == "look":
                await mine.look()
            elif op.kind == "renew":
                renewals += 1
                if renewals % 2:
                    await stop_in_a_cancelled_scope(context, client, mine.consumer)
                else:
                    await stop(mine.consumer)
                mine = None
        except KafkaError as error:
            raise_unexpected(error)
            if mine is not None and not isinstance(error, RetriableError):
                await stop(mine.consumer)
                mine = None
    if mine is not None:
        places = [TopicPartition(topic.name, number) for topic in plan.topics for number in range(topic.partitions)]
        await read_on(context, client, mine, plan.groups[0], places)
        await stop(mine.consumer)
