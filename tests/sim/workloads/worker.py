"""The role of a worker of a pipeline: reads inputs, writes one output for each, and commits both in one transaction."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import msgspec
from semel import Consumer, ConsumerGroupMetadata, TopicPartition
from semel.errors import KafkaError

from sim.events import Pipeline
from sim.workloads import member, recording_producer
from sim.workloads.base import ClientContext, raise_unexpected, stop
from sim.workloads.liveness import member_of, read_on
from sim.workloads.member import RecordingMember
from sim.workloads.plan import ClientPlan, Op, Script, WorkloadPlan, pause_ms
from sim.workloads.recording_consumer import text
from sim.workloads.recording_producer import RecordingProducer
from sim.workloads.transactor import abort, recover

STALLED_S = 120
PATIENT_AFTER_S = 60
HURRIED = "delivery_timeout_ms", "transaction_timeout_ms"
EPOCH_ROLE = "epoch-worker"
"""A worker in a group of the consumer protocol, or in one that changes its protocol."""


def draw_ops(rng: Random, *, count: int, mean_ms: float) -> list[Op]:
    """Operations renew, and batch: poll for at most `timeout_ms`, then run one transaction.

    The transaction waits `think_ms` before its offsets are sent and `linger_ms` after, then ends by `end`.
    """
    ops = []
    for _ in range(count):
        if rng.random() < 0.05:
            ops.append(Op(kind="renew", pause_ms=pause_ms(rng, mean_ms), args={"whom": rng.choice(("both", "reader"))}))
            continue
        args = {
            "timeout_ms": rng.choice((50, 500)),
            "think_ms": pause_ms(rng, rng.choice((0, 0, 20, 500, 2_000))),
            "linger_ms": pause_ms(rng, rng.choice((0, 0, 20, 500, 2_000))),
            "end": rng.choices(("commit", "abort"), (9, 1))[0],
            "insists": rng.random() < 0.7,
        }
        ops.append(Op(kind="batch", pause_ms=pause_ms(rng, mean_ms), args=args))
    return ops


class SimWorker:
    """A member of the group and a transactional producer. Each is replaced after an error that makes it useless."""

    def __init__(self, plan: WorkloadPlan, client: ClientPlan, context: ClientContext) -> None:
        group, source, target = plan.pipelines[0]
        self.pipeline = Pipeline(group, source, target)
        self._client, self._context = client, context
        self.member: RecordingMember | None = None
        self.writer: RecordingProducer | None = None

    async def step(self, op: Op) -> int:
        """Run one batch. Returns the number of its inputs if it was committed, else 0."""
        reading, writing = await self._ready()
        try:
            polled = await reading.poll(op.args["timeout_ms"])
        except KafkaError as error:
            raise_unexpected(error)
            await self.renew(producer_too=False)
            return 0
        if not polled:
            return 0
        identity = reading.consumer.group_metadata() if self._client.settings.get("metadata_at_poll") else None
        txn = writing.recorder.beginning(self._client.settings["pen"]["transactional_id"])
        try:
            if await self._transaction(reading, writing, polled, txn, op, identity):
                return sum(map(len, polled.values()))
        except KafkaError as error:
            raise_unexpected(error)
            await self.renew(producer_too=True)
            return 0
        await self._rewind(reading)
        return 0

    async def renew(self, *, producer_too: bool) -> None:
        """Stop the consumer, and with `producer_too` the producer; the next step makes new ones."""
        reading, self.member = self.member, None
        if reading is not None:
            await stop(reading.consumer)
        if producer_too:
            writing, self.writer = self.writer, None
            if writing is not None:
                await stop(writing.producer)

    async def _ready(self) -> tuple[RecordingMember, RecordingProducer]:
        name, settings = self._client.name, self._client.settings
        if self.writer is None:
            self.writer = await recording_producer.opened(self._context, name, settings["pen"])
        if self.member is None:
            self.member = await member.opened(
                self._context, f"{name}-in", self.pipeline.group, [self.pipeline.source], settings["member"]
            )
        return self.member, self.writer

    async def _transaction(
        self,
        reading: RecordingMember,
        writing: RecordingProducer,
        polled: Any,
        txn: int,
        op: Op,
        identity: ConsumerGroupMetadata | None,
    ) -> bool:
        """True: committed. False: aborted, or outcome unknown. Raises KafkaError when the producer is useless.

        `identity`: the membership to commit offsets as; None: that at the time of the commit.
        """
        producer, recorder = writing.producer, writing.recorder
        try:
            await producer.begin_transaction()
            for place, records in polled.items():
                for record in records:
                    await writing.send(self.pipeline.target, place.partition, txn=txn, made_from=text(record.value))
            await asyncio.sleep(op.args["think_ms"] / 1000)
            if op.args["end"] == "abort":
                await abort(writing, txn)
                return False
            offsets = {place: records[-1].offset + 1 for place, records in polled.items()}
            asked = recorder.committing_offsets(self.pipeline.group, offsets, txn=txn, consumer=reading.recorder.client)
            await producer.send_offsets_to_transaction(offsets, identity or reading.consumer.group_metadata())
            recorder.offsets_committed(asked)
            await asyncio.sleep(op.args["linger_ms"] / 1000)
            recorder.committing(txn)
            await producer.commit_transaction()
            recorder.committed(txn)
            return True
        except KafkaError as error:
            raise_unexpected(error)
            await recover(writing, txn, error, insists=op.args["insists"])
            return False

    async def _rewind(self, reading: RecordingMember) -> None:
        """Seek back to the committed offsets: the inputs since then must be read again."""
        try:
            positions = await reading.consumer.seek_to_committed()
        except KafkaError as error:
            raise_unexpected(error)
            await self.renew(producer_too=False)
            return
        mine = reading.consumer.assignment()  # which may have changed meanwhile
        back = {place: -1 if offset is None else offset for place, offset in positions.items() if place in mine}
        reading.recorder.assigned(back, positions=back.values())


async def work(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role. Settings: `pen` for the producer, `member` for the consumer; `metadata_at_poll`: it commits
    offsets as the member that it was when it polled; `reads_on`: at the end it reads on without transactions."""
    worker = SimWorker(plan, client, context)
    if worker.pipeline not in context.history.pipelines:
        context.history.declare(pipelines=[worker.pipeline])
    with member_of(context, client, worker.pipeline.group):
        await _work(plan, client, context, script, worker)


async def _work(
    plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script, worker: SimWorker
) -> None:
    while (op := script.next()) is not None:
        await asyncio.sleep(op.pause_ms / 1000)
        if op.kind == "batch":
            await worker.step(op)
        elif op.kind == "renew":
            await worker.renew(producer_too=op.args["whom"] == "both")
    if worker.member is not None and client.settings.get("reads_on"):
        count = next((topic.partitions for topic in plan.topics if topic.name == worker.pipeline.source), 0)
        places = [TopicPartition(worker.pipeline.source, number) for number in range(count)]
        reads = msgspec.structs.replace(client, settings=client.settings["member"])
        await read_on(context, reads, worker.member, worker.pipeline.group, places)
    await worker.renew(producer_too=True)


async def settle(plan: WorkloadPlan, client: ClientPlan, context: ClientContext) -> None:
    """Run one more worker until all inputs are processed. Raises AssertionError if it commits nothing for too long.

    A poll may return so many inputs that a slow network cannot carry their outputs within the timeouts of the plan. A
    worker that is not done after a while gets the default timeouts.
    """
    worker, is_patient = SimWorker(plan, client, context), False
    op = Op(kind="batch", args={"timeout_ms": 500, "think_ms": 0, "linger_ms": 0, "end": "commit", "insists": True})
    patient_at = context.edge.monotonic() + PATIENT_AFTER_S
    deadline = context.edge.monotonic() + STALLED_S
    try:
        while left := await _left(plan, worker.pipeline, context):
            now = context.edge.monotonic()
            assert now <= deadline, f"group {worker.pipeline.group} has unread records in {left}"
            if now >= patient_at and not is_patient:
                await worker.renew(producer_too=True)
                worker, is_patient = SimWorker(plan, _patient(client), context), True
            while await worker.step(op):
                deadline = context.edge.monotonic() + STALLED_S
    finally:
        await worker.renew(producer_too=True)


def _patient(client: ClientPlan) -> ClientPlan:
    pen = {name: value for name, value in client.settings["pen"].items() if name not in HURRIED}
    return msgspec.structs.replace(client, settings={**client.settings, "pen": pen})


async def _left(plan: WorkloadPlan, pipeline: Pipeline, context: ClientContext) -> list[TopicPartition]:
    """The partitions that have records after the committed offset."""
    count = next(topic.partitions for topic in plan.topics if topic.name == pipeline.source)
    places = [TopicPartition(pipeline.source, number) for number in range(count)]
    settings = {"group_id": pipeline.group, "isolation_level": "read_committed", "enable_auto_commit": False}
    left: dict[TopicPartition, None] = {}
    async with Consumer(**context.settings(auto_offset_reset="earliest", **settings)) as consumer:
        ends = await consumer.end_offsets(places)
        consumer.assign(places)
        while [place for place in places if await consumer.position(place) < ends[place]]:
            left |= dict.fromkeys(await consumer.getmany(timeout_ms=500))
    return list(left)
