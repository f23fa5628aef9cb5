"""The role of a renewer: creates a topic, deletes it and creates it again under the same name, several times.

A request that is late may delete the next topic of the name, or create one too many. Only the topic id tells topics
apart. After the faults the renewer makes sure that there is a topic, and that it stays.
"""

from __future__ import annotations

import asyncio
from random import Random

from semel import Admin, NewTopic
from semel.errors import KafkaError, UnknownTopicOrPartitionError

from sim.events import identified
from sim.history import Recorder
from sim.workloads import administrator
from sim.workloads.base import ClientContext, LastTopic, raise_unexpected
from sim.workloads.liveness import limit_s, until_fault_free
from sim.workloads.plan import ClientPlan, Op, Script, TopicPlan, WorkloadPlan, pause_ms

ROLE = "renewer"
STAYS_S = 5.0
"""A topic that has been there for so long after the faults stays: no late request is on its way any more."""
LOOK_S = 0.2
LIFETIMES = (2, 8, 20)
"""A topic is deleted after so many operations of other clients on average."""


def draw_ops(rng: Random, *, count: int, partitions_max: int, mean_ms: float) -> list[Op]:
    """Operations create: with so many `partitions`; delete. The number of topics is `count`."""
    ops = []
    lifetime_ms = rng.choice(LIFETIMES) * mean_ms
    for _ in range(count):
        args = {"partitions": rng.randint(1, partitions_max)}
        ops.append(Op(kind="create", pause_ms=rng.choice((0, 0, pause_ms(rng, mean_ms))), args=args))
        ops.append(Op(kind="delete", pause_ms=pause_ms(rng, lifetime_ms)))
    return ops[:-1]


async def renew(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role, with the first renewed topic of the plan."""
    recorder = context.history.recorder(client.name)
    topic = plan.renewed[0]
    admin = await administrator.opened(client, context)
    while (op := script.next()) is not None:
        await asyncio.sleep(op.pause_ms / 1000)
        try:
            if op.kind == "delete":
                await admin.delete_topics([topic.name])
            else:
                await _create(admin, topic, op.args["partitions"])
                await _look(admin, topic.name, recorder)
        except KafkaError as error:
            # An earlier attempt may have succeeded: then the topic exists already, or is already deleted.
            raise_unexpected(error)
    await until_fault_free(context, client)
    last = await _last(admin, topic, recorder, deadline_s=limit_s(client.settings), context=context)
    if last is None:
        context.fault_free.stalled.append(f"{client.name} cannot create a topic that stays")
    else:
        recorder.renewed(identified(topic.name, last.topic_id), last.partitions, stays=True)
        context.fault_free.last_topics[topic.name] = last
    context.fault_free.settled[client.name] = None
    await admin.close()


async def _create(admin: Admin, topic: TopicPlan, partitions: int) -> None:
    await admin.create_topics([NewTopic(topic.name, partitions, topic_configs=topic.configs)])


async def _look(admin: Admin, name: str, recorder: Recorder) -> LastTopic:
    """The topic that has this name now. Raises KafkaError."""
    (found,) = await admin.describe_topics([name])
    recorder.renewed(identified(name, found.topic_id), len(found.partitions))
    return LastTopic(found.topic_id, len(found.partitions))


async def _last(
    admin: Admin, topic: TopicPlan, recorder: Recorder, *, deadline_s: float, context: ClientContext
) -> LastTopic | None:
    """The topic that has had the name for a while; one is created if there is none. None: it takes too long."""
    edge = context.edge
    since_s, before = edge.monotonic(), None
    deadline_s += since_s + STAYS_S
    while edge.monotonic() < deadline_s:
        try:
            found = await _look(admin, topic.name, recorder)
            if found != before:
                since_s, before = edge.monotonic(), found
            elif edge.monotonic() - since_s >= STAYS_S:
                return found
        except UnknownTopicOrPartitionError:
            before = None
            try:
                await _create(admin, topic, topic.partitions)
            except KafkaError as error:
                raise_unexpected(error)
        except KafkaError as error:
            raise_unexpected(error)
        await asyncio.sleep(LOOK_S)
    return None


async def last_topic(plan: WorkloadPlan, context: ClientContext) -> LastTopic | None:
    """Wait until the topic that stays is known. None: there is none."""
    fault_free, name = context.fault_free, plan.renewed[0].name
    renewers = [client.name for client in plan.clients if client.role == ROLE]
    while not all(each in fault_free.settled for each in renewers):
        await asyncio.sleep(LOOK_S)
    return fault_free.last_topics.get(name)
