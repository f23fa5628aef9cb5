"""The role of a writer that sends records to a topic by its id (Produce v13), in raw requests.

So each record is stored in the topic that its value names, or not at all.
"""

from __future__ import annotations

import asyncio
from random import Random

from broker.wire import batch
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)

from sim.events import identified
from sim.workloads.base import ClientContext, LastTopic
from sim.workloads.liveness import limit_s, until_fault_free
from sim.workloads.plan import ClientPlan, Op, Script, WorkloadPlan, pause_ms
from sim.workloads.renewer import last_topic
from sim.workloads.wires import Address, NoAnswerError, Wires, addresses_of

ROLE = "id-writer"
PRODUCE_VERSION = 13
ALL_REPLICAS = -1
LAST_COUNT = 4
"""The records that are written to each partition of the last topic after the faults."""
RETRY_S = 0.2


def draw_ops(rng: Random, *, count: int, partitions_max: int, mean_ms: float) -> list[Op]:
    """Operations burst: so many records (`count`) to this partition, or to another one if the topic has fewer."""
    return [
        Op(
            kind="burst",
            pause_ms=pause_ms(rng, mean_ms),
            args={"partition": rng.randrange(partitions_max), "count": rng.choice((1, 1, 2, 5, 12))},
        )
        for _ in range(count)
    ]


class IdWriter:
    """Writes to the topic that has this name. `topic_id`: of the topic that it takes to have it, None if unknown."""

    def __init__(self, context: ClientContext, name: str, topic: str, request_timeout_ms: int) -> None:
        self.recorder = context.history.recorder(name)
        self._topic, self._timeout_ms = topic, request_timeout_ms
        self._wires = Wires(addresses_of(context.bootstrap_servers), request_timeout_ms / 1000)
        self.topic_id: bytes | None = None
        self.partitions = 0
        self._leaders: dict[int, Address] = {}
        self._count = 0

    async def look(self) -> None:
        """Look which topic has the name. Raises NoAnswerError."""
        found = await self._wires.metadata()
        self.topic_id, self.partitions = None, 0
        self._leaders.clear()
        addresses = {broker.node_id: (broker.host, broker.port) for broker in found.brokers}
        for topic in found.topics:
            if topic.name == self._topic and not topic.error_code:
                self.topic_id, self.partitions = topic.topic_id, len(topic.partitions)
                for row in topic.partitions:
                    if not row.error_code and row.leader_id in addresses:
                        self._leaders[row.partition_index] = addresses[row.leader_id]

    async def write(self, partition: int, count: int) -> bool:
        """Write so many records. Whether they were acknowledged. Raises NoAnswerError."""
        if self.topic_id is None or partition % self.partitions not in self._leaders:
            await self.look()
        if self.topic_id is None or (partition := partition % self.partitions) not in self._leaders:
            return False
        topic = identified(self._topic, self.topic_id)
        values = [f"{topic}-{partition} {self.recorder.client}:{self._count + number}" for number in range(count)]
        self._count += count
        ops = [self.recorder.sending(topic, partition, value=value, idempotent=False) for value in values]
        row = ProduceRequestPartition(index=partition, records=batch(*(value.encode() for value in values)))
        request = ProduceRequest(
            acks=ALL_REPLICAS,
            timeout_ms=self._timeout_ms,
            topic_data=[ProduceRequestTopic(topic_id=self.topic_id, partition_data=[row])],
        )
        try:
            answer: ProduceResponse = await self._wires.call(self._leaders[partition], request, PRODUCE_VERSION)
        except NoAnswerError:
            self.topic_id = None
            raise
        found = answer.responses[0].partition_responses[0]
        if found.error_code != ErrorCode.NONE:
            self.topic_id = None
            return False
        for number, op in enumerate(ops):
            self.recorder.stored(op, partition, found.base_offset + number)
        return True

    def close(self) -> None:
        self._wires.close()


async def write(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role, with the first renewed topic of the plan."""
    mine = IdWriter(context, client.name, plan.renewed[0].name, client.settings["request_timeout_ms"])
    while (op := script.next()) is not None:
        await asyncio.sleep(op.pause_ms / 1000)
        try:
            await mine.write(op.args["partition"], op.args["count"])
        except NoAnswerError:
            pass  # the outcome is unknown
    await until_fault_free(context, client)
    last = await last_topic(plan, context)
    if last is not None and not await _write_everywhere(mine, last, context, limit_s(client.settings)):
        context.fault_free.stalled.append(f"{client.name} cannot write to the last topic {plan.renewed[0].name}")
    context.fault_free.settled[client.name] = None
    mine.close()


async def _write_everywhere(mine: IdWriter, last: LastTopic, context: ClientContext, limit: float) -> bool:
    """Write to every partition of the last topic. Whether that succeeds in time."""
    deadline_s = context.edge.monotonic() + limit
    missing = dict.fromkeys(range(last.partitions))
    while missing and context.edge.monotonic() < deadline_s:
        for partition in list(missing):
            try:
                if await mine.write(partition, LAST_COUNT) and mine.topic_id == last.topic_id:
                    del missing[partition]
            except NoAnswerError:
                pass
        if missing:
            mine.topic_id = None
            await asyncio.sleep(RETRY_S)
    return not missing
