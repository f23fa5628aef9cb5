"""The role of an intruder: it reads in the log which producers write there, and sends batches under their ids.

It has a transactional id of its own. Its batches have the producer id, the epoch and the next sequence of the newest
batch that it has read. None of its values is in the history: whatever is stored of them is a phantom read, and a record
of the victim that is answered as a retry of the intruder's is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from broker.wire import batch, fetch_request, headers_of, produce_request
from semel_protocol.batch import BatchHeader
from semel_protocol.messages.k00_produce import ProduceRequest

from sim.workloads.base import ClientContext
from sim.workloads.plan import ClientPlan, Op, Script, TopicPlan, WorkloadPlan, pause_ms
from sim.workloads.wires import Address, NoAnswerError, Wires, addresses_of

ROLE = "intruder"
KINDS = ("idempotent", "transactional")
"""The workloads whose producers it imitates."""
FETCH_VERSION = 11
SEQUENCES = 1 << 31
EPOCH_MAX = 32_767
TIMEOUT_MS = 2_000


def draw(rng: Random, prefix: str, topics: Sequence[TopicPlan]) -> ClientPlan:
    """An intruder. Operations forge: a batch for this partition, with an epoch so much above the victim's (-1: the
    last one)."""
    places = [(topic.name, partition) for topic in topics for partition in range(topic.partitions)]
    mean_ms = rng.choice((20.0, 100.0))
    ops = []
    for _ in range(rng.randint(100, 200)):
        topic, partition = rng.choice(places)
        args = {
            "topic": topic,
            "partition": partition,
            "raise_epoch": rng.choice((0, 0, 0, 0, 1, -1)),
            "version": rng.choice((7, 11, 12)),
        }
        ops.append(Op(kind="forge", pause_ms=pause_ms(rng, mean_ms), args=args))
    return ClientPlan(name=f"{prefix}intruder", role=ROLE, ops=ops)


class Intruder:
    """Follows partitions and forges batches of their newest producer."""

    def __init__(self, context: ClientContext, name: str) -> None:
        self._name = name
        self._wires = Wires(addresses_of(context.bootstrap_servers), TIMEOUT_MS / 1000)
        self._leaders: dict[tuple[str, int], Address] = {}
        self._offsets: dict[tuple[str, int], int] = {}
        self._newest: dict[tuple[str, int], BatchHeader] = {}
        self._count = 0

    async def look(self) -> None:
        """Look which brokers lead. Raises NoAnswerError."""
        found = await self._wires.metadata()
        addresses = {broker.node_id: (broker.host, broker.port) for broker in found.brokers}
        self._leaders = {
            (topic.name or "", row.partition_index): addresses[row.leader_id]
            for topic in found.topics
            for row in topic.partitions
            if row.leader_id in addresses
        }

    async def forge(self, topic: str, partition: int, raise_epoch: int, version: int) -> None:
        """Send one batch under the id of the newest producer of the partition. Raises NoAnswerError."""
        place = topic, partition
        if place not in self._leaders:
            await self.look()
        if place not in self._leaders:
            return
        await self._follow(place)
        victim = self._newest.get(place)
        if victim is None:
            return
        self._count += 1
        epoch = EPOCH_MAX if raise_epoch < 0 else min(victim.producer_epoch + raise_epoch, EPOCH_MAX)
        forged = batch(
            f"{self._name}:{self._count}".encode(),
            producer_id=victim.producer_id,
            producer_epoch=epoch,
            base_sequence=0 if raise_epoch else (victim.last_sequence + 1) % SEQUENCES,
            is_transactional=victim.is_transactional,
        )
        request: ProduceRequest = produce_request(topic, forged, partition=partition)
        request.transactional_id = self._name
        await self._wires.call(self._leaders.pop(place), request, version)

    async def _follow(self, place: tuple[str, int]) -> None:
        request = fetch_request(place[0], self._offsets.get(place, 0), partition=place[1], max_wait_ms=0)
        answer = await self._wires.call(self._leaders[place], request, FETCH_VERSION)
        row = answer.responses[0].partitions[0]
        if row.error_code:
            del self._leaders[place]
            raise NoAnswerError(f"error {row.error_code}")
        for header in headers_of(row.records):
            self._offsets[place] = header.last_offset + 1
            if header.producer_id >= 0 and not header.is_control:
                self._newest[place] = header

    def close(self) -> None:
        self._wires.close()


async def intrude(plan: WorkloadPlan, client: ClientPlan, context: ClientContext, script: Script) -> None:
    """Play the role."""
    mine = Intruder(context, client.name)
    while (op := script.next()) is not None:
        await asyncio.sleep(op.pause_ms / 1000)
        try:
            await mine.forge(**op.args)
        except NoAnswerError:
            pass  # it has nothing to lose
    mine.close()
