"""The role of an administrator: creates, grows, configures and deletes topics, and deletes records."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from semel import Admin, ConfigResource, ConfigResourceType, NewPartitions, NewTopic, TopicPartition
from semel.errors import KafkaError

from sim.history import Recorder
from sim.workloads.base import ClientContext, raise_unexpected
from sim.workloads.plan import ClientPlan, Op, Script, TopicPlan, WorkloadPlan, pause_ms

FORGET_MS = (60_000, 600_000, 86_400_000)


def draw_ops(rng: Random, prefix: str, *, count: int, mean_ms: float) -> list[Op]:
    """Operations create, grow, configure, delete, on topics that no other client uses. Names are not used twice."""
    ops: list[Op] = []
    made: dict[str, int] = {}
    for number in range(count):
        kind = rng.choices(("create", "grow", "configure", "delete"), (5, 3, 5, 2))[0] if made else "create"
        topic = f"{prefix}t{number}" if kind == "create" else rng.choice(list(made))
        args: dict[str, Any] = {"topic": topic}
        if kind == "create":
            made[topic] = args["partitions"] = rng.randint(1, 4)
        elif kind == "grow":
            made[topic] += rng.randint(1, 2)
            args["partitions"] = made[topic]
        elif kind == "configure":
            args["value"] = str(rng.choice(FORGET_MS))
        else:
            del made[topic]
        ops.append(Op(kind=kind, pause_ms=pause_ms(rng, mean_ms), args=args))
    return ops


def draw_deletions(rng: Random, topics: list[TopicPlan], *, count: int, mean_ms: float) -> list[Op]:
    """Operations delete-records: in one partition, below the given share of its end offset."""
    ops = []
    for _ in range(count):
        topic = rng.choice(topics)
        args = {
            "topic": topic.name,
            "partition": rng.randrange(topic.partitions),
            "share": rng.choice((0.2, 0.5, 1.0)),
        }
        ops.append(Op(kind="delete-records", pause_ms=pause_ms(rng, mean_ms), args=args))
    return ops


async def administer(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role."""
    recorder = context.history.recorder(client.name)
    admin: Admin | None = None
    while not script.is_done:
        if admin is None:
            admin = await opened(client, context)
        op = script.next()
        assert op is not None
        await asyncio.sleep(op.pause_ms / 1000)
        try:
            await _change(admin, recorder, op)
        except KafkaError as error:
            # An earlier attempt may have succeeded: then the topic exists already, or is already deleted.
            raise_unexpected(error)
    if admin is not None:
        await admin.close()


async def opened(client: ClientPlan, context: ClientContext) -> Admin:
    """A started client, after as many attempts as needed."""
    while True:
        admin = Admin(**context.settings(client_id=client.name, **client.settings))
        try:
            await admin.start()
            return admin
        except KafkaError as error:
            raise_unexpected(error)
            await admin.close()
            await asyncio.sleep(0.2)


async def _change(admin: Admin, recorder: Recorder, op: Op) -> None:
    args = op.args
    name = args["topic"]
    match op.kind:
        case "create":
            asked = recorder.asking("create", name, str(args["partitions"]))
            await admin.create_topics([NewTopic(name, args["partitions"])])
        case "grow":
            asked = recorder.asking("grow", name, str(args["partitions"]))
            await admin.create_partitions({name: NewPartitions(args["partitions"])})
        case "configure":
            asked = recorder.asking("configure", name, f"retention.ms={args['value']}")
            configs = {"retention.ms": args["value"]}
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, configs)])
        case "delete":
            asked = recorder.asking("delete", name)
            await admin.delete_topics([name])
        case _:
            place = TopicPartition(name, args["partition"])
            ends = await admin.list_offsets({place: -1})
            below = int(ends[place].offset * args["share"])
            asked = recorder.asking("delete-records", name, f"{place.partition}:{below}")
            await admin.delete_records({place: below})
    recorder.changed(asked)
