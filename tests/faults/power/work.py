"""The work of clients on a recorded broker, and their answers, with the number of the disk call before each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from semel import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition

Place = tuple[str, int]

SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "metrics.listener": "",
}
ROLLED = {"segment.bytes": "4000"}
KEPT = {"segment.bytes": "3000", "retention.bytes": "3000"}
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
PARTITIONS = 4
ROUNDS = ("1", "2", LAST_ROUND := "3")
"""The broker is killed after the first one, and stopped by SIGTERM after the others."""
GROUP = "group"
TRANSACTION_TIMEOUT_MS = 1_000


class AcknowledgedWork(msgspec.Struct):
    """The requests of clients, and the acknowledged ones. `at`: the number of the last disk call before the answer."""

    sent: dict[str, tuple[Place, int]] = {}
    """Each value is sent once: (place, how often its topic had been deleted before)."""
    stored: list[tuple[int, Place, int, str]] = []
    """Acknowledged: (at, place, offset, value); those of a transaction, when it was committed."""
    transactions: list[tuple[int | None, bool, list[str]]] = []
    """(at, whether it was to be committed, values); at None: not acknowledged."""
    deleting: list[tuple[int, Place, int]] = []
    """Requested: (at, place, the offset before which records are deleted)."""
    deleted: list[tuple[int, Place, int]] = []
    """Acknowledged."""
    topics: list[tuple[int, int, str, bool]] = []
    """(requested at, acknowledged at, topic, whether it was created; False: it was deleted)."""
    committed: list[tuple[int, Place, int]] = []
    """Acknowledged offsets of the group."""
    keyed: list[tuple[int, str, str]] = []
    """Acknowledged: (at, key, value) in the compacted topic."""
    keyed_sent: list[tuple[str, str]] = []

    def deletions_of(self, topic: str) -> int:
        """The number of its deletions so far."""
        return sum(name == topic and not is_created for _, _, name, is_created in self.topics)

    def deletion(self, topic: str, number: int) -> tuple[int, int] | None:
        """The times at which a deletion was requested and acknowledged."""
        found = [(asked, at) for asked, at, name, is_created in self.topics if name == topic and not is_created]
        return found[number] if number < len(found) else None


class PowerLossWorkload:
    """`count`: the number of disk calls so far."""

    def __init__(self, address: str, count: Callable[[], int], round_name: str, answers: AcknowledgedWork) -> None:
        self._address, self._count, self._round, self.answers = address, count, round_name, answers
        self._number = 0

    async def prepare(self) -> None:
        async with Admin(bootstrap_servers=self._address) as admin:
            for topic in (
                NewTopic("first", PARTITIONS),
                NewTopic("rolled", 1, topic_configs=ROLLED),
                NewTopic("kept", 1, topic_configs=KEPT),
                NewTopic("compacted", 1, topic_configs=COMPACTED),
            ):
                await self._create(admin, topic)

    async def do(self) -> None:
        """Run all tasks concurrently, so that calls for one topic come between those for others."""
        async with (
            Admin(bootstrap_servers=self._address) as self._admin,
            Producer(bootstrap_servers=self._address, linger_ms=0) as self._producer,
        ):
            acts: list[Callable[[], Awaitable[None]]] = [
                self._first_records,
                self._rolls_and_deletions,
                self._retention,
                self._compaction,
                self._transactions,
                self._group,
                self._renewed_topic,
            ]
            await asyncio.gather(*[act() for act in acts])

    def _value(self, place: Place, size: int = 0) -> str:
        self._number += 1
        value = f"{self._round}-{self._number}".ljust(size, ".")
        self.answers.sent[value] = place, self.answers.deletions_of(place[0])
        return value

    async def _send(self, topic: str, partition: int = 0, size: int = 0) -> int:
        place = topic, partition
        value = self._value(place, size)
        stored = await self._producer.send_and_wait(topic, value.encode(), partition=partition)
        self.answers.stored.append((self._count(), place, stored.offset, value))
        return stored.offset

    async def _create(self, admin: Admin, topic: NewTopic) -> None:
        asked_at = self._count()
        await admin.create_topics([topic])
        self.answers.topics.append((asked_at, self._count(), topic.name, True))

    async def _delete(self, topic: str) -> None:
        asked_at = self._count()
        await self._admin.delete_topics([topic])
        self.answers.topics.append((asked_at, self._count(), topic, False))

    async def _first_records(self) -> None:
        for partition in range(PARTITIONS):
            await self._send("first", partition)
            await self._send("first", partition, 700)

    async def _rolls_and_deletions(self) -> None:
        for _ in range(3):
            for _ in range(4):
                end = await self._send("rolled", size=1_500)
            place = "rolled", 0
            self.answers.deleting.append((self._count(), place, end - 1))
            await self._admin.delete_records({TopicPartition(*place): end - 1})
            self.answers.deleted.append((self._count(), place, end - 1))

    async def _retention(self) -> None:
        for _ in range(8):
            await self._send("kept", size=1_400)
            await asyncio.sleep(0.1)  # retention deletes meanwhile

    async def _compaction(self) -> None:
        for number in range(12):
            key, value = f"key-{number % 3}", self._value(("compacted", 0), 700)
            self.answers.keyed_sent.append((key, value))
            await self._producer.send_and_wait("compacted", value.encode(), key=key.encode(), partition=0)
            self.answers.keyed.append((self._count(), key, value))
            await asyncio.sleep(0.05)  # the cleaner compacts meanwhile

    async def _transactions(self) -> None:
        settings: Any = {"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS, "linger_ms": 0}
        async with Producer(bootstrap_servers=self._address, transactional_id="id", **settings) as producer:
            for number in range(6):
                is_committed = number % 3 != 2
                await producer.begin_transaction()
                values = [self._value(("first", partition)) for partition in range(2)]
                self.answers.transactions.append((None, is_committed, values))
                place = len(self.answers.transactions) - 1
                offsets = [
                    (await producer.send_and_wait("first", value.encode(), partition=partition)).offset
                    for partition, value in enumerate(values)
                ]
                await (producer.commit_transaction() if is_committed else producer.abort_transaction())
                self.answers.transactions[place] = (self._count(), is_committed, values)
                if is_committed:
                    for partition, (offset, value) in enumerate(zip(offsets, values, strict=True)):
                        self.answers.stored.append((self._count(), ("first", partition), offset, value))

    async def _group(self) -> None:
        for number in range(1, 9):
            position = TopicPartition("first", number % PARTITIONS)
            offset = number + 100 * int(self._round)
            await self._admin.alter_consumer_group_offsets(GROUP, {position: OffsetAndMetadata(offset, "")})
            self.answers.committed.append((self._count(), (position.topic, position.partition), offset))

    async def _renewed_topic(self) -> None:
        for _ in range(2):
            await self._create(self._admin, NewTopic("renewed", 2))
            for partition in range(2):
                await self._send("renewed", partition)
            await self._delete("renewed")
        await self._create(self._admin, NewTopic("renewed", 2))
        await self._send("renewed", 1)
        if self._round != LAST_ROUND:
            await self._delete("renewed")
