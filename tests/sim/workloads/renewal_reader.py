"""The role of a reader of a topic that is deleted and created again: without a group, or as a member of one.

It records all records that it gets; their values say which topic they were written to. After the faults it reads the
last topic to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from random import Random

from semel import Consumer, ConsumerRebalanceListener, TopicPartition
from semel.errors import CommitFailedError, KafkaError, RetriableError
from semel_protocol.fields import first_version
from semel_protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)

from sim.events import identified
from sim.workloads import id_writer
from sim.workloads.base import ClientContext, LastTopic, raise_unexpected, stop
from sim.workloads.liveness import (
    NOT_ASSIGNED,
    NOT_FOUND,
    Behind,
    StallDetector,
    can_poll,
    limit_s,
    member_of,
    until_fault_free,
)
from sim.workloads.plan import ClientPlan, Op, Script, WorkloadPlan, pause_ms
from sim.workloads.recording_consumer import text
from sim.workloads.recording_producer import PAUSE_S
from sim.workloads.renewer import LOOK_S, last_topic
from sim.workloads.wires import NoAnswerError, Wires, addresses_of

ROLE = "renewal-reader"
ASSIGNED, CLASSIC, CONSUMER = "assigned", "classic", "consumer"
"""The ways of reading: partitions of its own choice without a group, or a group of this protocol."""
ANSWERED_WITHIN_S = 5.0
FETCH_BY_ID_FROM = first_version(OffsetFetchRequestTopic, "topic_id")
LOOKS_MAX = 100
OF_ANOTHER_TOPIC = -3
"""Stands for a position in another topic of the same name."""


def draw_ops(rng: Random, *, count: int, mean_ms: float, commits: bool) -> list[Op]:
    """Operations poll: for at most `timeout_ms`; commit: the offsets of the records in hand; renew the consumer."""
    ops = []
    for _ in range(count):
        kind = rng.choices(("poll", "commit", "renew"), (14, 5 if commits else 0, 0.5))[0]
        args = {"timeout_ms": rng.choice((0, 50, 500))} if kind == "poll" else {}
        ops.append(Op(kind=kind, pause_ms=pause_ms(rng, mean_ms), args=args))
    return ops


class RenewalReader(ConsumerRebalanceListener):
    """One consumer of the topic `name`. `group`: "" for none. `in_hand`: by partition, the topic of the last record,
    and the offset behind it; only of partitions that it still has."""

    def __init__(self, context: ClientContext, client: ClientPlan, name: str, group: str, partitions_max: int) -> None:
        self.recorder = context.history.recorder(client.name)
        self.name, self.group = name, group
        settings = {key: value for key, value in client.settings.items() if key != "way"}
        self.read_committed = settings.get("isolation_level") == "read_committed"
        self._commits = bool(group) and not settings.get("enable_auto_commit")
        self.in_hand: dict[TopicPartition, tuple[str, int]] = {}
        self.consumer = Consumer(
            **context.settings(
                client_id=client.name,
                group_id=group or None,
                auto_offset_reset="earliest",
                allow_auto_create_topics=False,
                **settings,
            )
        )
        if group:
            self.consumer.subscribe([name], listener=self)
        else:
            self.consumer.assign([TopicPartition(name, number) for number in range(partitions_max)])

    async def poll(self, timeout_ms: int) -> int:
        """Raise KafkaError."""
        polled = await self.consumer.getmany(timeout_ms=timeout_ms)
        for place, records in polled.items():
            values = [text(record.value) or "" for record in records]
            self.recorder.given(self.group, place, [record.offset for record in records], values)
            self.in_hand[place] = (values[-1].partition(" ")[0].rpartition("-")[0], records[-1].offset + 1)
        return sum(map(len, polled.values()))

    async def commit(self) -> None:
        """Commit the offsets of the records in hand, if this consumer commits itself. Raises KafkaError."""
        if not self.in_hand or not self._commits:
            return
        in_hand = dict(self.in_hand)
        labels = {(topic, place.partition): at for place, (topic, at) in in_hand.items()}
        op = self.recorder.committing_offsets(self.group, labels)
        try:
            await self.consumer.commit({place: at for place, (_, at) in in_hand.items()})
        except CommitFailedError:  # also a DeletedTopicCommitError: nothing is left to commit
            self.in_hand.clear()
            raise
        self.recorder.offsets_committed(op)

    def behind(self, last: LastTopic, ends: dict[TopicPartition, int], *, is_alone: bool) -> Behind:
        """The partitions of the last topic that this consumer has not read to their ends."""
        found: Behind = {}
        for place, end in ends.items():
            state = self.consumer._subscription.states.get(place)
            if state is None:
                if is_alone:
                    found[place] = (NOT_ASSIGNED, end)
            elif state.topic_id != last.topic_id:
                found[place] = (OF_ANOTHER_TOPIC, end)
            elif state.position is None or state.position < end:
                found[place] = (NOT_FOUND if state.position is None else state.position, end)
        return found

    # Called by the consumer

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._gone(assigned)

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._gone(revoked)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self._gone(lost)

    def _gone(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self.in_hand.pop(place, None)


def group_of(plan: WorkloadPlan, client: ClientPlan) -> str:
    way: str = client.settings["way"]
    return "" if way == ASSIGNED else f"{plan.prefix}{way}"


async def read(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role, with the first renewed topic of the plan."""
    group = group_of(plan, client)
    with ExitStack() as stack:
        if group:
            stack.enter_context(member_of(context, client, group))
        mine: RenewalReader | None = None
        while not script.is_done:
            if mine is None:
                mine = await _opened(plan, client, context)
            op = script.next()
            assert op is not None
            await asyncio.sleep(op.pause_ms / 1000)
            try:
                if op.kind == "poll":
                    await mine.poll(op.args["timeout_ms"])
                elif op.kind == "commit":
                    await mine.commit()
                elif op.kind == "renew":
                    await stop(mine.consumer)
                    mine = None
            except KafkaError as error:
                raise_unexpected(error)
                if mine is not None and not isinstance(error, (RetriableError, CommitFailedError)):
                    await stop(mine.consumer)
                    mine = None
        await until_fault_free(context, client)
        last = await last_topic(plan, context)
        while last is not None:
            mine = mine or await _opened(plan, client, context)
            if await _read_to_the_end(plan, client, context, mine, last):
                break
            await stop(mine.consumer)
            mine = None
        if mine is not None:
            await stop(mine.consumer)


async def _opened(plan: WorkloadPlan, client: ClientPlan, context: ClientContext) -> RenewalReader:
    topic = plan.renewed[0]
    while True:
        mine = RenewalReader(context, client, topic.name, group_of(plan, client), topic.partitions)
        try:
            await mine.consumer.start()
            return mine
        except KafkaError as error:
            raise_unexpected(error)
            await asyncio.sleep(PAUSE_S)


async def _read_to_the_end(
    plan: WorkloadPlan, client: ClientPlan, context: ClientContext, mine: RenewalReader, last: LastTopic
) -> bool:
    """Read the last topic to its end and commit. False after an error that makes the consumer useless.

    A consumer that stalls is recorded, and left. The last member of a group has to get all partitions.
    """
    fault_free, group = context.fault_free, mine.group
    writers = [each.name for each in plan.clients if each.role == id_writer.ROLE]
    places = [TopicPartition(mine.name, number) for number in range(last.partitions)]
    detector = StallDetector(limit_s(client.settings))
    async with Consumer(**context.settings(bootstrap_timeout_ms=60_000)) as other:
        # Another consumer asks for the end offsets: the question must not change the state of `mine`.
        while await can_poll(mine):
            if not all(each in fault_free.settled for each in writers):
                continue
            is_alone = not group or list(fault_free.members[group]) == [client.name]
            ends = await other.end_offsets(places)
            behind = mine.behind(last, ends, is_alone=is_alone)
            if not behind:
                if is_alone:
                    mine.recorder.read_through(group, identified(mine.name, last.topic_id), [ends[at] for at in places])
                await _commit(mine)
                return True
            if stalled := detector.stalled(behind, context.edge.monotonic()):
                words = ", ".join(f"{p.partition} {_words(*found)}" for p, found in stalled.items())
                fault_free.stalled.append(f"{client.name} reads nothing more of the last topic {mine.name}: {words}")
                return True
    return False


def _words(position: int, end: int) -> str:
    special = {NOT_ASSIGNED: "which is not assigned", OF_ANOTHER_TOPIC: "which is of another topic"}
    return special.get(position, f"at {position} of {end}")


async def _commit(mine: RenewalReader) -> None:
    try:
        await mine.commit()
    except KafkaError as error:
        raise_unexpected(error)


async def settle(plan: WorkloadPlan, context: ClientContext) -> None:
    """Record the offsets that each group has committed for the last topic.

    Raises AssertionError if a coordinator does not tell them.
    """
    last = await last_topic(plan, context)
    groups = dict.fromkeys(group_of(plan, client) for client in plan.clients if client.role == ROLE)
    name = plan.renewed[0].name
    recorder = context.history.recorder(f"{plan.prefix}settle")
    wires = Wires(addresses_of(context.bootstrap_servers), ANSWERED_WITHIN_S)
    for group in groups:
        if group and last is not None:
            offsets = await _committed(wires, group, last)
            assert offsets is not None, f"the coordinator of {group} does not tell the committed offsets"
            recorder.committed_by_id(group, identified(name, last.topic_id), offsets)
    wires.close()


async def _committed(wires: Wires, group: str, last: LastTopic) -> list[int | None] | None:
    """The committed offsets by partition; None if the coordinator does not tell them."""
    topic = OffsetFetchRequestTopic(topic_id=last.topic_id, partition_indexes=list(range(last.partitions)))
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[topic])])
    for _ in range(LOOKS_MAX):
        await asyncio.sleep(LOOK_S)
        try:
            answer = (await wires.coordinate(group, request, FETCH_BY_ID_FROM)).groups[0]
        except NoAnswerError:
            continue
        if answer.error_code or any(row.error_code for row in answer.topics[0].partitions):
            wires.look_again()
            continue
        found = {row.partition_index: row.committed_offset for row in answer.topics[0].partitions}
        return [found[number] if found[number] >= 0 else None for number in range(last.partitions)]
    return None
