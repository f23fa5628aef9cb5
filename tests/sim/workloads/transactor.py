"""The role of a transactor: appends to several partitions in transactions, and reads committed records meanwhile."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import Any

from semel.errors import AbortableError, KafkaError, RetriableError, TransactionWasCommitted

from sim.workloads import recording_consumer, recording_producer
from sim.workloads.base import ClientContext, raise_unexpected, stop
from sim.workloads.liveness import every_place, write_on
from sim.workloads.plan import ClientPlan, Op, Script, TopicPlan, WorkloadPlan, pause_ms
from sim.workloads.recording_consumer import RecordingConsumer
from sim.workloads.recording_producer import RecordingProducer

ASKED_TIMES_MAX = 5
PLAIN = {"waits": False, "polls": False, "think_ms": 0, "end": "commit", "insists": True}
"""A transaction without any special behaviour."""


def draw_ops(rng: Random, topics: list[TopicPlan], *, count: int, mean_ms: float, keys: int = 0) -> list[Op]:
    """Operations txn, renew the producer, and at the end perhaps abandon: a transaction that the client never ends.

    txn: `sends` [topic, partition, key], awaited if `waits`, with a poll if `polls`, `think_ms` long; then `end`:
    commit, abort, or overtime (commit after the transaction timeout). `insists`: repeat a commit that has no answer.
    """
    ops = []
    for _ in range(count):
        if rng.random() < 0.08:
            ops.append(Op(kind="renew", pause_ms=pause_ms(rng, mean_ms)))
            continue
        args = {
            "sends": _draw_sends(rng, topics, rng.choice((0, 1, 2, 3, 3, 8)), keys),
            "waits": rng.random() < 0.3,
            "polls": rng.random() < 0.5,
            "think_ms": pause_ms(rng, rng.choice((0, 20, 300, 1_000))),
            "end": rng.choices(("commit", "abort", "overtime"), (14, 4, 1))[0],
            "insists": rng.random() < 0.7,
        }
        ops.append(Op(kind="txn", pause_ms=pause_ms(rng, mean_ms), args=args))
    if rng.random() < 0.1:
        ops.append(Op(kind="abandon", args={"sends": _draw_sends(rng, topics, 3, keys)}))
    return ops


def _draw_sends(rng: Random, topics: list[TopicPlan], count: int, keys: int) -> list[list[Any]]:
    sends: list[list[Any]] = []
    for _ in range(count):
        topic = rng.choice(topics)
        key = f"k{rng.randrange(keys)}" if keys else None
        sends.append([topic.name, -1 if key else rng.randrange(topic.partitions), key])
    return sends


async def transact(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role."""
    places = [(topic.name, number) for topic in plan.topics for number in range(topic.partitions)]
    from_0 = not any(topic.cleanup for topic in plan.topics)
    mine: RecordingProducer | None = None
    reader: RecordingConsumer | None = None
    while not script.is_done:
        if mine is None:
            mine = await recording_producer.opened(context, client.name, client.settings)
        if reader is None:
            reader = await recording_consumer.opened(
                context, f"{client.name}-eye", places, {}, read_committed=True, from_0=from_0
            )
        op = script.next()
        assert op is not None
        await asyncio.sleep(op.pause_ms / 1000)
        try:
            if op.kind == "txn":
                await _transaction(mine, reader, client, op)
            elif op.kind == "abandon":
                await _abandon(mine, client, op)
                return
            elif op.kind == "renew":
                await stop(mine.producer)
                mine = None
        except KafkaError as error:
            raise_unexpected(error)
            if mine is not None:
                await stop(mine.producer)
                mine = None
    if mine is not None and reader is not None:
        last = Op(kind="txn", args={**PLAIN, "sends": every_place(plan)})
        await write_on(context, client, mine, partial(_transaction, mine, reader, client, last))
    if mine is not None:
        await stop(mine.producer)
    if reader is not None:
        await stop(reader.consumer)


async def _transaction(mine: RecordingProducer, reader: RecordingConsumer, client: ClientPlan, op: Op) -> bool:
    """Run one transaction. Whether it is certainly committed. Raises KafkaError when the producer is useless."""
    args, transactional_id = op.args, client.settings["transactional_id"]
    txn = mine.recorder.beginning(transactional_id)
    try:
        await mine.producer.begin_transaction()
        futures = [await mine.send(topic, partition, key=key, txn=txn) for topic, partition, key in args["sends"]]
        if args["waits"] and futures:
            await asyncio.wait(futures)
        if args["polls"]:
            await _look(reader, txn)
        await asyncio.sleep(args["think_ms"] / 1000)
        if args["end"] == "overtime":
            await asyncio.sleep(client.settings["transaction_timeout_ms"] / 1000)
        if args["end"] == "abort":
            await abort(mine, txn)
            return False
        mine.recorder.committing(txn)
        await mine.producer.commit_transaction()
        mine.recorder.committed(txn)
        return True
    except KafkaError as error:
        raise_unexpected(error)
        return await recover(mine, txn, error, insists=args["insists"])


async def _abandon(mine: RecordingProducer, client: ClientPlan, op: Op) -> None:
    """Begin a transaction that ends only by its timeout. Raises KafkaError."""
    txn = mine.recorder.beginning(client.settings["transactional_id"])
    await mine.producer.begin_transaction()
    for topic, partition, key in op.args["sends"]:
        await mine.send(topic, partition, key=key, txn=txn)
    await mine.producer.flush()


async def _look(reader: RecordingConsumer, txn: int) -> None:
    """Read within the transaction. An error of the reader does not end the transaction."""
    try:
        await reader.poll(20, txn=txn)
    except KafkaError as error:
        raise_unexpected(error)


async def recover(mine: RecordingProducer, txn: int, error: KafkaError, *, insists: bool) -> bool:
    """Act as an application does after a failed call. Whether the transaction is committed after all: a commit can take
    longer than the call waits. Raises KafkaError when a new producer is needed.
    """
    times = 0
    while isinstance(error, RetriableError) and insists and times < ASKED_TIMES_MAX and was_sent(mine):
        times += 1
        try:
            await mine.producer.commit_transaction()
            mine.recorder.committed(txn)
            return True
        except KafkaError as again:
            error = again
    if not isinstance(error, RetriableError | AbortableError):
        raise error
    return not await abort(mine, txn)


def was_sent(mine: RecordingProducer) -> bool:
    """Whether a commit was sent whose outcome is not known."""
    transactions = mine.producer._transactions
    return transactions is not None and transactions._commit_outcome is not None and transactions._commit_outcome.commit


async def abort(mine: RecordingProducer, txn: int) -> bool:
    """Abort the transaction. False if it was committed before. Raises KafkaError if it fails or its outcome stays
    unknown.
    """
    for _ in range(ASKED_TIMES_MAX):
        try:
            await mine.producer.abort_transaction()
            mine.recorder.aborted(txn)
            return True
        except TransactionWasCommitted:
            mine.recorder.committed(txn)
            return False
        except RetriableError as error:
            last = error
    raise last
