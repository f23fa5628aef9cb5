"""The role of a driver: offers the tasks of a batch, collects the prepared transactions, and commits them as one.

Its log of batches is outside of it (`shared`). A batch is recorded before its first step and again after its commit.
The next driver continues from there, and learns from the group which batch was committed last.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from semel import GroupStep, TransactionGroup
from semel.errors import InvalidTxnState, KafkaError, KafkaTimeoutError, ProducerFenced
from semel.transaction_group import UNKNOWN_OUTCOME

from sim.history import Recorder
from sim.workloads.base import ClientContext, raise_unexpected, stop
from sim.workloads.plan import ClientPlan, Op, Script, TopicPlan, WorkloadPlan, pause_ms
from sim.workloads.shared_state import Offer, RowBatch, SharedState, Task, TaskResult

LOOK_S = 0.02
PAUSE_S = 0.2
SILENT_MS = 3_000
"""After so long without a sign of life the deputy takes over."""
WAITS_MAX = 6
"""How often tasks are offered again before the driver begins a new step."""
ASKED_TIMES_MAX = 5


def draw_ops(rng: Random, topics: list[TopicPlan], *, count: int, mean_ms: float) -> list[Op]:
    """Operations batch: `tasks`, each a list of [topic, partition].

    Tasks in `twice` get two attempts from the start, and `last` says which result counts. Tasks without a result after
    `patience_ms` are offered again. The driver waits `think_ms` before the end. The first try may `end` by abort, or by
    overtime (commit after the step's timeout). `insists`: the driver repeats a commit without an answer. `looks`: the
    driver accepts the group's last token as proof that the batch is committed; otherwise it begins the batch again.
    """
    ops = []
    for _ in range(count):
        tasks = [_draw_sends(rng, topics, rng.choice((0, 1, 2, 4))) for _ in range(rng.choice((1, 2, 3, 4)))]
        args = {
            "tasks": tasks,
            "twice": [number for number in range(len(tasks)) if rng.random() < 0.3],
            "last": rng.random() < 0.5,
            "patience_ms": rng.choice((500, 2_000, 6_000)),
            "think_ms": pause_ms(rng, rng.choice((0, 0, 20, 300))),
            "end": rng.choices(("commit", "abort", "overtime"), (14, 2, 1))[0],
            "insists": rng.random() < 0.7,
            "looks": rng.random() < 0.7,
        }
        ops.append(Op(kind="batch", pause_ms=pause_ms(rng, mean_ms), args=args))
    return ops


def _draw_sends(rng: Random, topics: list[TopicPlan], count: int) -> list[list[Any]]:
    chosen = [rng.choice(topics) for _ in range(count)]
    return [[topic.name, rng.randrange(topic.partitions)] for topic in chosen]


def group_of(plan: WorkloadPlan) -> str:
    return f"{plan.prefix}group"


class SimDriver:
    """One incarnation of one driver."""

    def __init__(self, plan: WorkloadPlan, client: ClientPlan, context: ClientContext) -> None:
        self.name = client.name
        self.shared: SharedState = context.shared_state(plan.prefix)
        self._settings, self._context = client.settings, context
        self._group = group_of(plan)
        self._now_ms = context.history.now_ms
        self.recorder: Recorder = context.history.recorder(client.name)
        self._transactions: TransactionGroup | None = None
        self._doubts = 0

    async def open(self) -> TransactionGroup:
        """The group, after as many attempts to start it as needed."""
        while self._transactions is None:
            made = TransactionGroup(
                self._group, **self._context.settings(client_id=self.name, owner=self.recorder.client, **self._settings)
            )
            try:
                await made.start()
                self._transactions = made
            except KafkaError as error:
                raise_unexpected(error)
                await stop(made)
                await asyncio.sleep(PAUSE_S)
        return self._transactions

    async def close(self) -> None:
        if self._transactions is not None:
            await stop(self._transactions)

    def drives(self) -> bool:
        """Whether this driver is the active one. It becomes active if the other one was silent for too long."""
        shared, now_ms = self.shared, self._now_ms()
        if shared.driver != self.name and shared.driver and now_ms < shared.beaten_ms + SILENT_MS:
            return False
        shared.driver, shared.beaten_ms = self.name, now_ms
        return True

    def plan(self, op: Op) -> None:
        """Record the next batch."""
        shared = self.shared
        number = len(shared.planned)
        batch = RowBatch(number, f"{self._group}:{number}", op.args["tasks"], op.args)
        shared.planned.append(batch)
        self.recorder.planned(self._group, batch.token, batch.rows)

    async def attempt(self, batch: RowBatch) -> None:
        """Run one step. Raises KafkaError."""
        group, shared = await self.open(), self.shared
        since_ms = self._now_ms()
        step = await group.begin()
        self.recorder.step_begun(self._group, step.epoch, since_ms=since_ms, decided_token=step.decided_token)
        done = shared.place_of(step.decided_token)
        if done > batch.number or (done == batch.number and batch.args["looks"]):
            shared.committed = max(shared.committed, done + 1)
            return
        batch.tries += 1
        offer = shared.offer = _offer(step, batch)
        if not await self._all_have_results(offer):
            return
        if batch.tries == 1:  # no wait in later tries, in which the deputy may be waiting
            await asyncio.sleep(batch.args["think_ms"] / 1000)
        last = -1 if batch.args["last"] else 0
        results = [task.results[last] for task in offer.tasks]
        if batch.tries == 1 and batch.args["end"] == "abort":
            await group.abort(step)
            for result in results:
                self.recorder.aborted(result.txn)
            return
        if batch.tries == 1 and batch.args["end"] == "overtime":
            await asyncio.sleep(self._settings["timeout_ms"] / 1000)
        await self._commit(group, offer, [result for result in results if result.prepared is not None])

    async def _all_have_results(self, offer: Offer) -> bool:
        """Wait for a result of each task. False: give the step up, or another driver has begun one."""
        for _ in range(WAITS_MAX):
            until_ms = self._now_ms() + offer.batch.args["patience_ms"]
            while self._now_ms() < until_ms:
                if self.shared.offer is not offer:
                    return False
                if self.shared.driver == self.name:
                    self.shared.beaten_ms = self._now_ms()
                if all(task.results for task in offer.tasks):
                    return True
                await asyncio.sleep(LOOK_S)
            for task in offer.tasks:
                if not task.results:
                    task.offer_again()
        return False

    async def _commit(self, group: TransactionGroup, offer: Offer, results: list[TaskResult]) -> None:
        step, batch, shared = offer.step, offer.batch, self.shared
        op = self.recorder.deciding(self._group, step.epoch, batch.token, [result.txn for result in results])
        prepared = [result.prepared for result in results if result.prepared is not None]
        try:
            is_ours = await self._outcome(group, step, batch, prepared)
        except (ProducerFenced, InvalidTxnState) as error:
            if not self._doubts and UNKNOWN_OUTCOME not in str(error):
                for result in results:
                    self.recorder.aborted(result.txn)
            raise
        self.recorder.decided(op, is_ours=is_ours)
        for result in results:
            if is_ours:
                self.recorder.committed(result.txn)
            else:
                self.recorder.aborted(result.txn)
        shared.committed = max(shared.committed, batch.number + 1)

    async def _outcome(self, group: TransactionGroup, step: GroupStep, batch: RowBatch, prepared: list[Any]) -> bool:
        self._doubts = 0
        while batch.args["insists"] and self._doubts < ASKED_TIMES_MAX:
            try:
                return await group.commit(step, batch.token, prepared)
            except KafkaTimeoutError:
                self._doubts += 1
        return await group.commit(step, batch.token, prepared)


def _offer(step: GroupStep, batch: RowBatch) -> Offer:
    twice = batch.args["twice"] if batch.tries == 1 else ()
    tasks = [Task(number, sends, offered=1 + (number in twice)) for number, sends in enumerate(batch.tasks)]
    return Offer(step, batch, tasks)


async def drive(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role."""
    driver = SimDriver(plan, client, context)
    shared = driver.shared
    has_workers = any(other.role == "tasker" for other in plan.clients)
    while has_workers and not shared.is_over:
        if not driver.drives():
            await asyncio.sleep(PAUSE_S)
            continue
        if shared.current is None:
            op = script.next()
            if op is None:
                shared.is_over = True
                break
            await asyncio.sleep(op.pause_ms / 1000)
            if shared.current is None:
                driver.plan(op)
        batch = shared.current
        if batch is None:
            continue
        try:
            await driver.attempt(batch)
        except ProducerFenced:
            await asyncio.sleep(PAUSE_S)  # another driver is active, or has ended the step: the next step shows which
        except KafkaError as error:
            raise_unexpected(error)
            await asyncio.sleep(PAUSE_S)
    await driver.close()
