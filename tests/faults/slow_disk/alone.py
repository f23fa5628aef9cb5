"""The cases of one broker: the load of clients while a bystander waits. They run in this order, on one broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from semel import Admin, Consumer, NewTopic, Producer, TopicPartition
from semel.admin import (
    Acl,
    Operation,
    PatternType,
    Permission,
    QuotaEntity,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from faults.slow_disk.held_broker import PIPE_BYTES, HeldBroker
from faults.slow_disk.measure import CLIENT, LoadCase, MeasuredCluster

SETTINGS = {
    "log.flush.offset.checkpoint.interval.ms": "5000",
    "log.retention.check.interval.ms": "2000",
    "log.cleaner.backoff.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SWEEP_S = 6.0
WIDE = 1_000
OPEN = 5
"""The number of transactions that are open while the broker is killed."""
LEFT_UNREAD = 60


class Alone(MeasuredCluster):
    """One broker, an administrator and a producer."""

    def __init__(self, directory: Path) -> None:
        super().__init__({"the broker": HeldBroker(directory / "broker", **SETTINGS)})
        self._broker = self.brokers["the broker"]
        self._open: list[Producer] = []

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[None]:
        address = self._broker.process.address
        async with (
            Admin(bootstrap_servers=address, **CLIENT) as self._admin,
            Producer(bootstrap_servers=address, linger_ms=0, delivery_timeout_ms=110_000, **CLIENT) as self._producer,
        ):
            try:
                yield
            finally:
                await asyncio.gather(*[producer.stop() for producer in self._open], return_exceptions=True)

    async def prepare(self) -> None:
        rolled = {"segment.bytes": "20000"}
        compacted = {"cleanup.policy": "compact", "segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}
        kept = {"segment.bytes": "20000", "retention.bytes": "20000"}
        await self._admin.create_topics(
            [
                NewTopic("many", 140),
                NewTopic("wide", WIDE),
                NewTopic("rolled", 1, topic_configs=rolled),
                NewTopic("kept", 4, topic_configs=kept),
                NewTopic("compacted", 1, topic_configs=compacted),
                NewTopic("known", 20),
                NewTopic("deleted", 10),
            ]
        )
        await self._fill("deleted", 10)
        await self._fill("wide", WIDE)
        await asyncio.sleep(SWEEP_S)  # a checkpoint of all these logs: a start after kill -9 does not scan them

    async def _fill(self, topic: str, partitions: int, value: bytes = b"x") -> None:
        """Write a record to each partition."""
        sent = [self._producer.send_and_wait(topic, value, partition=each) for each in range(partitions)]
        await asyncio.gather(*sent)

    async def become_slow(self) -> None:
        await self._fill("deleted", 10)

    async def partitions_created(self) -> None:
        await self._admin.create_topics([NewTopic("more", 140)])

    async def first_records(self) -> None:
        await self._fill("known", 20)

    async def produces(self) -> None:
        for number in range(40):
            await self._producer.send_and_wait("known", b"x", partition=number % 20)

    async def rolls(self) -> None:
        for _ in range(8):
            await self._producer.send_and_wait("rolled", bytes(15_000), partition=0)
        await self._fill("many", 60)
        await asyncio.sleep(SWEEP_S)

    async def snapshots(self) -> None:
        """20 producers write to a log that rolls. Each roll keeps a snapshot of them."""

        async def write(number: int) -> None:
            address = self._broker.process.address
            async with Producer(bootstrap_servers=address, linger_ms=0, **CLIENT) as producer:
                for _ in range(2):
                    await producer.send_and_wait("rolled", bytes(7_000), partition=0)

        await asyncio.gather(*map(write, range(20)))
        await asyncio.sleep(SWEEP_S)

    async def retention(self) -> None:
        for _ in range(6):
            await self._fill("kept", 4, bytes(15_000))
        await asyncio.sleep(SWEEP_S)

    async def new_transactional_id(self) -> None:
        await self._transactions("new-id", 1)

    async def transactions(self) -> None:
        await self._transactions("new-id", 6)

    def _transactional(self, name: str) -> Producer:
        address = self._broker.process.address
        return Producer(bootstrap_servers=address, transactional_id=name, linger_ms=0, **CLIENT)

    async def _transactions(self, name: str, count: int) -> None:
        async with self._transactional(name) as producer:
            for _ in range(count):
                async with producer.transaction():
                    await producer.send("known", b"y", partition=0)

    async def new_group(self) -> None:
        await self._group("classic")

    async def new_consumer_group(self) -> None:
        await self._group("consumer")

    async def _group(self, protocol: str) -> None:
        settings: Any = {"group_protocol": protocol, "auto_offset_reset": "earliest", **CLIENT}
        address = self._broker.process.address
        async with Consumer("known", bootstrap_servers=address, group_id=f"{protocol}-group", **settings) as consumer:
            await consumer.getone()
            await consumer.commit()

    async def compaction(self) -> None:
        for number in range(20):
            await self._producer.send_and_wait("compacted", bytes(1_000), key=b"%d" % (number % 3), partition=0)
        await asyncio.sleep(SWEEP_S)

    async def records_deleted(self) -> None:
        await self._admin.delete_records({TopicPartition("rolled", 0): 6})

    async def many_records_deleted(self) -> None:
        await self._admin.delete_records({TopicPartition("wide", each): 1 for each in range(WIDE)})

    async def topic_deleted(self) -> None:
        await self._admin.delete_topics(["deleted"])

    async def topic_created_and_deleted(self) -> None:
        for _ in range(3):
            await self._admin.create_topics([NewTopic("renewed", 10)])
            await self._fill("renewed", 10)
            await self._admin.delete_topics(["renewed"])

    async def quotas(self) -> None:
        for number in range(5):
            entity = QuotaEntity(client_id=f"client-{number}")
            await self._admin.alter_client_quotas({entity: {"producer_byte_rate": 1e9}})

    async def credentials(self) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096)
        for number in range(5):
            user = UserScramCredentialUpsertion(f"user-{number}", info, "a password")
            await self._admin.alter_user_scram_credentials([user])

    async def acls(self) -> None:
        for number in range(5):
            topic, user = f"topic-{number}", f"User:user-{number}"
            acl = Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, user, "*", Operation.READ, Permission.ALLOW)
            await self._admin.create_acls([acl])

    async def outputs_unread(self) -> None:
        """Each topic has a line in the log and in the audit log; a tenth of them fills the pipes."""
        self._broker.leave_unread()
        await self._admin.create_topics([NewTopic(f"unread-{number}", 1) for number in range(LEFT_UNREAD)])
        unread = self._broker.unread_bytes()
        assert min(unread) > PIPE_BYTES / 5, f"the pipes were not full: {unread} bytes"
        await self._fill("known", 20)
        self._broker.read()

    async def kill(self) -> None:
        """Begin transactions, and kill the broker amid them."""
        self._open = [self._transactional(f"open-{number}") for number in range(OPEN)]
        for producer in self._open:
            await producer.start()
            await producer.begin_transaction()
            await producer.send_and_wait("known", b"z", partition=1)
        self._broker.kill()

    async def transactions_resumed(self) -> None:
        """A start after kill -9, amid open transactions."""
        await self._broker.up()
        self.note(f"it listens {self._broker.listened_s:.1f} s after its start")
        await asyncio.gather(*[producer.commit_transaction() for producer in self._open])

    async def stop(self) -> None:
        self.note(f"ended {await self._broker.stop():.1f} s after SIGTERM")

    async def started_again(self) -> None:
        await self._broker.up()
        self.note(f"it listens {self._broker.listened_s:.1f} s after its start")
        await self._fill("known", 20)


ROWS: Mapping[str, LoadCase[Alone]] = {
    "partitions": LoadCase("140 partitions created", Alone.partitions_created),
    "first": LoadCase("first records of 20 partitions", Alone.first_records),
    "produces": LoadCase("40 produces to known partitions", Alone.produces),
    "rolls": LoadCase("8 rolls, first records of 60, and a sweep", Alone.rolls),
    "snapshots": LoadCase("20 producers write to a log that rolls: snapshots, and a sweep", Alone.snapshots),
    "retention": LoadCase("retention deletes segments of 4 partitions", Alone.retention),
    "id": LoadCase("a new transactional id, one transaction", Alone.new_transactional_id),
    "transactions": LoadCase("6 transactions of a known id", Alone.transactions),
    "group": LoadCase("a new group joins and commits", Alone.new_group),
    "consumer-group": LoadCase("a new group of KIP-848 joins and commits", Alone.new_consumer_group),
    "compaction": LoadCase("compaction of 5 segments", Alone.compaction),
    "records": LoadCase("DeleteRecords", Alone.records_deleted),
    "many-records": LoadCase("DeleteRecords of 1,000 partitions", Alone.many_records_deleted),
    "topic": LoadCase("a topic of 10 partitions deleted", Alone.topic_deleted),
    "renewed": LoadCase(
        "a topic of 10 partitions created, written and deleted, three times", Alone.topic_created_and_deleted
    ),
    "quotas": LoadCase("5 quotas written", Alone.quotas),
    "credentials": LoadCase("5 users created", Alone.credentials),
    "acls": LoadCase("5 ACLs created", Alone.acls),
    "unread": LoadCase("output and audit log are full pipes, first records of 20", Alone.outputs_unread),
    "resumed": LoadCase(
        "a start after kill -9, and 5 open transactions committed", Alone.transactions_resumed, Alone.kill
    ),
    "stop": LoadCase("SIGTERM", Alone.stop),
    "start": LoadCase("a start after it, and 20 produces", Alone.started_again),
}
