"""A program: members of a group with semel's client. `python -m support.group_semel JOB`."""

from __future__ import annotations

import asyncio
from typing import Any

from semel import Consumer, ConsumerRebalanceListener, Producer, TopicPartition
from semel.errors import AbortableError, CommitFailedError, KafkaError, KafkaTimeoutError

from support.group_program import ProgramMember, run

BATCH = 20
POLL_MS = 100


class SemelProgramMember(ProgramMember):
    def read(self) -> None:
        asyncio.run(self._read())

    def transform(self) -> None:
        asyncio.run(self._transform())

    def _consumer(self) -> Consumer:
        settings: dict[str, Any] = {"group_protocol": "consumer", **self.job.config}
        consumer = Consumer(
            bootstrap_servers=self.job.bootstrap,
            group_id=self.job.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed" if self.job.target else "read_uncommitted",
            **settings,
        )
        topic = self.job.subscription
        if topic.startswith("^"):  # as librdkafka takes it
            consumer.subscribe(pattern=topic, listener=EventListener(self))
        else:
            consumer.subscribe([topic], listener=EventListener(self))
        return consumer

    async def _read(self) -> None:
        async with self._consumer() as consumer:
            while not self.is_leaving.is_set():
                for place, records in (await consumer.getmany(timeout_ms=POLL_MS, max_records=1)).items():
                    (record,) = records
                    self.say("value", record.value.decode())
                    while True:
                        try:
                            await consumer.commit({place: record.offset + 1})
                            break
                        except KafkaTimeoutError:
                            self.say("error", "KafkaTimeoutError")
                    self.say("committed", 1)

    async def _transform(self) -> None:
        """Transform with new clients after each error that ends a producer, as a supervisor would start a new
        process.
        """
        while not self.is_leaving.is_set():
            producer = Producer(
                bootstrap_servers=self.job.bootstrap,
                transactional_id=self.name,
                transaction_timeout_ms=self.job.transaction_timeout_ms,
            )
            try:
                async with producer, self._consumer() as consumer:
                    while not self.is_leaving.is_set():
                        if batch := await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH):
                            await self._transaction(consumer, producer, batch)
            except KafkaError as error:
                self.say("error", type(error).__name__)
                await asyncio.sleep(0.1)

    async def _transaction(self, consumer: Consumer, producer: Producer, batch: dict[TopicPartition, Any]) -> None:
        try:
            async with producer.transaction():
                for place, records in batch.items():
                    for record in records:
                        await producer.send(self.job.target, b"done-" + record.value, partition=place.partition)
                await producer.flush()
                await asyncio.to_thread(self.reach, "sent")
                positions = {place: records[-1].offset + 1 for place, records in batch.items()}
                await producer.send_offsets_to_transaction(positions, consumer.group_metadata())
                await asyncio.to_thread(self.reach, "offsets")
        except (AbortableError, CommitFailedError) as error:
            self.say("aborted", type(error).__name__)
            await consumer.seek_to_committed(*consumer.assignment())
        else:
            self.say("committed", sum(map(len, batch.values())))


class EventListener(ConsumerRebalanceListener):
    """Prints assigned, revoked and lost partitions."""

    def __init__(self, member: ProgramMember) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._member.say("assigned", *assigned)

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._member.say("revoked", *revoked)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self._member.say("lost", *lost)


if __name__ == "__main__":
    run(SemelProgramMember)
