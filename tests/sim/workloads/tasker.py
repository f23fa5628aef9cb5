"""The role of a worker for tasks: each attempt is one prepared transaction of a producer with an id of its own.

It keeps its producers from step to step. After a kill its task is offered to other workers again. Some workers make
errors on purpose: they abort a transaction that they have reported, or use an id that is in use.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from semel import GroupStep
from semel.errors import KafkaError, TransactionWasCommitted

from sim.workloads.base import ClientContext, raise_unexpected, stop
from sim.workloads.driver import LOOK_S, PAUSE_S, group_of
from sim.workloads.plan import ClientPlan, Op, Script, WorkloadPlan, pause_ms
from sim.workloads.recording_producer import RecordingProducer
from sim.workloads.shared_state import Offer, SharedState, Task, TaskResult


def draw_ops(rng: Random, *, count: int, mean_ms: float) -> list[Op]:
    """Operations attempt: `think_ms` in the transaction; `linger_ms` after the report follows the action `goes_on`.

    `goes_on`: "" (none), "abort" the transaction, "stop" the producer. `careless`: use the id of the worker's slot 0.
    """
    ops = []
    for _ in range(count):
        args = {
            "think_ms": pause_ms(rng, rng.choice((0, 0, 20, 300, 1_500))),
            "linger_ms": pause_ms(rng, rng.choice((0, 20, 300))),
            "goes_on": rng.choices(("", "abort", "stop"), (8, 1, 2))[0],
            "careless": rng.random() < 0.05,
        }
        ops.append(Op(kind="attempt", pause_ms=pause_ms(rng, mean_ms), args=args))
    return ops


CALM = Op(kind="attempt", args={"think_ms": 0, "linger_ms": 0, "goes_on": "", "careless": False})
"""The operation for tasks that are on offer after the end of the script."""


class Tasker:
    """One incarnation of one worker, with a producer for each attempt in the same step."""

    def __init__(self, plan: WorkloadPlan, client: ClientPlan, context: ClientContext) -> None:
        self.shared: SharedState = context.shared_state(plan.prefix)
        self._client, self._context = client, context
        self._group = group_of(plan)
        self._writers: dict[int, RecordingProducer] = {}

    async def attempt(self, offer: Offer, task: Task, op: Op) -> None:
        """Report the prepared transaction, or offer the task again."""
        slot = 0 if op.args["careless"] else self.shared.slot(self._client.name, offer.step)
        try:
            writer = await self._writer(slot, offer.step)
            result = await self._result(writer, self._name(slot), offer, task, op)
        except KafkaError as error:
            raise_unexpected(error)
            await self._drop(slot)
            task.offer_again()
            await asyncio.sleep(PAUSE_S)
            return
        task.results.append(result)
        await asyncio.sleep(op.args["linger_ms"] / 1000)
        if op.args["goes_on"] == "abort":
            await self._abort(writer, slot, result)
        elif op.args["goes_on"] == "stop":
            await self._drop(slot)

    async def close(self) -> None:
        """Stop all producers; prepared transactions stay prepared."""
        for slot in list(self._writers):
            await self._drop(slot)

    async def _result(self, writer: RecordingProducer, name: str, offer: Offer, task: Task, op: Op) -> TaskResult:
        txn = writer.recorder.beginning(name)
        await writer.producer.begin_transaction()
        for place, (topic, partition) in enumerate(task.sends):
            await writer.send(topic, partition, txn=txn, made_from=offer.batch.row(task.number, place))
        await asyncio.sleep(op.args["think_ms"] / 1000)
        return TaskResult(await writer.producer.prepare_transaction(), txn)

    async def _abort(self, writer: RecordingProducer, slot: int, result: TaskResult) -> None:
        try:
            await writer.producer.abort_transaction()
            if result.prepared is not None:
                writer.recorder.aborted(result.txn)
        except TransactionWasCommitted:
            writer.recorder.committed(result.txn)
        except KafkaError as error:
            raise_unexpected(error)
            await self._drop(slot)

    async def _writer(self, slot: int, step: GroupStep) -> RecordingProducer:
        """A producer in this step. Raises KafkaError."""
        writer = self._writers.get(slot)
        if writer is not None:
            await writer.join(step)
            return writer
        settings: dict[str, Any] = {
            **self._client.settings,
            "transactional_id": self._name(slot),
            "transaction_group_step": step,
        }
        writer = self._writers[slot] = RecordingProducer(self._context, f"{self._client.name}.{slot}", settings)
        await writer.start()
        return writer

    def _name(self, slot: int) -> str:
        return f"{self._group}/{self._client.name}.{slot}"

    async def _drop(self, slot: int) -> None:
        writer = self._writers.pop(slot, None)
        if writer is not None:
            await stop(writer.producer)


async def work(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role."""
    tasker = Tasker(plan, client, context)
    has_driver = any(other.role == "driver" for other in plan.clients)
    while has_driver and not tasker.shared.is_over:
        found = tasker.shared.take()
        if found is None:
            await asyncio.sleep(LOOK_S)
            continue
        op = script.next() or CALM
        await asyncio.sleep(op.pause_ms / 1000)
        await tasker.attempt(*found, op)
    await tasker.close()
