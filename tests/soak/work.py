"""The work of a soak: kinds of rounds, each with names that are used once, so that all state has to expire."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Literal

from broker.wire import Wire
from semel import Admin, Consumer, NewTopic, Producer, TopicPartition
from semel.errors import CommitFailedError
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest

GroupProtocol = Literal["classic", "consumer"]
LOG, OUTPUT, COMPACTED = "soak", "soak-output", "soak-compacted"
PARTITIONS = 4
RECORDS = 20
KEYS = 50


class SoakWorkload:
    """`await SoakWorkload(bootstrap, seed).run(stop)`: rounds of all kinds until `stop` is set.

    `counts`: the finished rounds.
    """

    def __init__(self, bootstrap: str, seed: int, pause_s: float) -> None:
        self.counts: Counter[str] = Counter()
        self._bootstrap, self._rng, self._pause_s = bootstrap, Random(seed), pause_s
        self._number = 0

    def _name(self, kind: str) -> str:
        self._number += 1
        return f"{kind}-{self._number}"

    async def prepare(self) -> None:
        async with Admin(bootstrap_servers=self._bootstrap) as admin:
            compact = {"cleanup.policy": "compact", "segment.ms": "10000", "min.cleanable.dirty.ratio": "0.1"}
            topics = [NewTopic(LOG, PARTITIONS, 1), NewTopic(OUTPUT, PARTITIONS, 1)]
            await admin.create_topics([*topics, NewTopic(COMPACTED, 1, 1, topic_configs=compact)])

    async def run(self, stop: asyncio.Event) -> None:
        """Raise the error of a round: in a soak no round may fail."""
        kinds = (
            self.new_producer,
            self.new_transactional_id,
            self.classic_group,
            self.consumer_group,
            self.topic_for_a_moment,
            self.compacted,
            self.short_connections,
        )
        async with asyncio.TaskGroup() as group:
            for kind in kinds:
                group.create_task(self._repeat(kind, stop))

    async def _repeat(self, kind: Callable[[], Awaitable[None]], stop: asyncio.Event) -> None:
        while not stop.is_set():
            await kind()
            self.counts[getattr(kind, "__name__", "")] += 1
            await asyncio.sleep(self._rng.uniform(0.5, 1.5) * self._pause_s)

    async def new_producer(self) -> None:
        async with Producer(bootstrap_servers=self._bootstrap, client_id=self._name("client")) as producer:
            for number in range(RECORDS):
                await producer.send(LOG, b"x" * 100, key=str(number).encode())
            await producer.flush()

    async def new_transactional_id(self) -> None:
        async with Producer(
            bootstrap_servers=self._bootstrap, transactional_id=self._name("transactional")
        ) as producer:
            for _ in range(2):
                await producer.begin_transaction()
                for number in range(RECORDS):
                    await producer.send(OUTPUT, b"x" * 100, partition=number % PARTITIONS)
                await producer.send_offsets_to_transaction({TopicPartition(LOG, 0): 1}, self._name("offsets-of"))
                if self._rng.random() < 0.3:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()

    async def classic_group(self) -> None:
        await self._group("classic")

    async def consumer_group(self) -> None:
        await self._group("consumer")

    async def _group(self, protocol: GroupProtocol) -> None:
        """Two members of a new group: the second one joins while the first one reads."""
        group_id = self._name(f"{protocol}-group")
        await asyncio.gather(self._read_as_member(group_id, protocol, 6), self._read_as_member(group_id, protocol, 4))

    async def _read_as_member(self, group_id: str, protocol: GroupProtocol, polls: int) -> None:
        async with self._member(group_id, protocol) as consumer:
            for _ in range(polls):
                await consumer.getmany(timeout_ms=300)
                try:
                    await consumer.commit()
                except CommitFailedError:
                    continue  # another member has the partitions since the other member came or left

    def _member(self, group_id: str, protocol: GroupProtocol) -> Consumer:
        return Consumer(
            LOG,
            bootstrap_servers=self._bootstrap,
            group_id=group_id,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )

    async def topic_for_a_moment(self) -> None:
        name = self._name("topic")
        async with Admin(bootstrap_servers=self._bootstrap) as admin:
            await admin.create_topics([NewTopic(name, 3, 1)])
            async with Producer(bootstrap_servers=self._bootstrap) as producer:
                for partition in range(3):
                    await producer.send_and_wait(name, b"x", partition=partition)
            async with Consumer(name, bootstrap_servers=self._bootstrap, auto_offset_reset="earliest") as consumer:
                await consumer.getmany(timeout_ms=500)
            await admin.delete_topics([name])

    async def compacted(self) -> None:
        async with Producer(bootstrap_servers=self._bootstrap) as producer:
            for number in range(RECORDS):
                key = f"key-{self._rng.randrange(KEYS)}".encode()
                await producer.send(COMPACTED, None if number % 7 == 0 else b"x" * 100, key=key)
            await producer.flush()

    async def short_connections(self) -> None:
        """Ten connections: some request ApiVersions, some end without a request."""
        port = int(self._bootstrap.rpartition(":")[2])
        for number in range(10):
            wire = await Wire.connect(port)
            if number % 2:
                await wire.call(ApiVersionsRequest(), 0)
            await wire.close()
