"""The role of a reader: reads partitions of its own choice, repeatedly from the beginning."""

from __future__ import annotations

import asyncio
from random import Random

from semel.errors import KafkaError, RetriableError

from sim.workloads import recording_consumer
from sim.workloads.base import ClientContext, raise_unexpected, stop
from sim.workloads.liveness import read_on
from sim.workloads.plan import ClientPlan, Op, Script, WorkloadPlan, pause_ms
from sim.workloads.recording_consumer import RecordingConsumer


def draw_ops(rng: Random, *, count: int, mean_ms: float) -> list[Op]:
    """Operations poll: for at most `timeout_ms`; rewind; renew the consumer."""
    ops = []
    for _ in range(count):
        kind = rng.choices(("poll", "rewind", "renew"), (20, 1, 1))[0]
        args = {"timeout_ms": rng.choice((0, 50, 500))} if kind == "poll" else {}
        ops.append(Op(kind=kind, pause_ms=pause_ms(rng, mean_ms), args=args))
    return ops


async def read(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role. It has one setting beside the consumer's: `read_committed`."""
    settings = dict(client.settings)
    read_committed = settings.pop("read_committed")
    places = [(topic.name, number) for topic in plan.topics for number in range(topic.partitions)]
    from_0 = not any(topic.cleanup for topic in plan.topics)
    mine: RecordingConsumer | None = None
    while not script.is_done:
        if mine is None:
            mine = await recording_consumer.opened(
                context, client.name, places, settings, read_committed=read_committed, from_0=from_0
            )
        op = script.next()
        assert op is not None
        await asyncio.sleep(op.pause_ms / 1000)
        try:
            if op.kind == "poll":
                await mine.poll(op.args["timeout_ms"])
            elif op.kind == "rewind":
                await mine.rewind()
            elif op.kind == "renew":
                await stop(mine.consumer)
                mine = None
        except KafkaError as error:
            raise_unexpected(error)
            if mine is not None and not isinstance(error, RetriableError):
                await stop(mine.consumer)
                mine = None
    if mine is not None:
        await read_on(context, client, mine)
        await stop(mine.consumer)
