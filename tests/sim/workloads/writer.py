"""The role of a writer without transactions: sends bursts of records, waits, replaces its producer."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

from semel.errors import KafkaError, RetriableError

from sim.workloads import recording_producer
from sim.workloads.base import ClientContext, raise_unexpected, stop
from sim.workloads.liveness import every_place, write_on
from sim.workloads.plan import ClientPlan, Op, Script, TopicPlan, WorkloadPlan, pause_ms
from sim.workloads.recording_producer import RecordingProducer

TOMBSTONE_RATE = 0.2


def draw_ops(rng: Random, topics: list[TopicPlan], *, count: int, mean_ms: float, keys: int = 0) -> list[Op]:
    """Operations burst: `sends` [topic, partition, key, is a tombstone], awaited if `waits`; flush; renew."""
    ops = []
    for _ in range(count):
        kind = rng.choices(("burst", "flush", "renew"), (12, 2, 1))[0]
        args: dict[str, Any] = {}
        if kind == "burst":
            sends = []
            for _ in range(rng.choice((1, 1, 2, 5, 12))):
                topic = rng.choice(topics)
                key = f"k{rng.randrange(keys)}" if keys else None
                partition = -1 if key else rng.randrange(topic.partitions)
                sends.append([topic.name, partition, key, bool(keys) and rng.random() < TOMBSTONE_RATE])
            args = {"sends": sends, "waits": rng.random() < 0.3}
        ops.append(Op(kind=kind, pause_ms=pause_ms(rng, mean_ms), args=args))
    return ops


async def write(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role."""
    mine: RecordingProducer | None = None
    while not script.is_done:
        if mine is None:
            mine = await recording_producer.opened(context, client.name, client.settings)
        op = script.next()
        assert op is not None
        await asyncio.sleep(op.pause_ms / 1000)
        try:
            if op.kind == "burst":
                await _burst(mine, op)
            elif op.kind == "flush":
                await mine.producer.flush()
            elif op.kind == "renew":
                await stop(mine.producer)
                mine = None
        except KafkaError as error:
            raise_unexpected(error)
            if mine is not None and not isinstance(error, RetriableError):
                await stop(mine.producer)
                mine = None
    if mine is not None:
        await write_on(context, client, mine, partial(_everywhere, mine, plan))
        await stop(mine.producer)


async def _everywhere(mine: RecordingProducer, plan: WorkloadPlan) -> bool:
    """Write a record to every partition. Raises KafkaError."""
    futures = [await mine.send(topic, partition, key=key) for topic, partition, key in every_place(plan)]
    outcomes = await asyncio.gather(*futures, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return True


async def _burst(mine: RecordingProducer, op: Op) -> None:
    futures = []
    for topic, partition, key, is_tombstone in op.args["sends"]:
        futures.append(await mine.send(topic, partition, key=key, value=None if is_tombstone else ""))
    if op.args["waits"]:
        await asyncio.wait(futures)
