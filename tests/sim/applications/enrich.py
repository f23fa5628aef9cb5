"""The application: reads a topic as a group member and writes one output for each input, both in one transaction.

It is written as the demo's worker and as the documentation recommends; in addition it records its actions.
"""

from __future__ import annotations

from typing import Any

import msgspec
from semel import TopicPartition
from semel.errors import KafkaError, ProducerFenced

from sim.events import Pipeline
from sim.workloads.base import ClientContext, raise_unexpected, stop
from sim.workloads.member import RecordingMember
from sim.workloads.recording_consumer import text
from sim.workloads.recording_producer import RecordingProducer

SOURCE, TARGET, GROUP, ID = "in", "out", "enrich", "enrich-0"
TARGET_PARTITIONS = 2
BATCH_RECORDS = 3
BATCHES = 2
SESSION_MS = 3_000
TRANSACTION_MS = 4_000
REQUEST_MS = 3_000
POLL_INTERVAL_MS = 20_000
"""Also the time that a member waits to join after the broker's machine has lost power."""
PIPELINE = Pipeline(GROUP, SOURCE, TARGET)
INPUT = TopicPartition(SOURCE, 0)


class Enrich(msgspec.Struct):
    """One process of the application.

    `run` returns True when no work is left: every input is processed, or another process has taken over. False: an
    error that a new process may not have.
    """

    context: ClientContext
    name: str

    async def run(self) -> bool:
        common = {"request_timeout_ms": REQUEST_MS, "retry_backoff_ms": 50}
        writer = RecordingProducer(
            self.context, self.name, {**common, "transactional_id": ID, "transaction_timeout_ms": TRANSACTION_MS}
        )
        member = RecordingMember(
            self.context,
            f"{self.name}-in",
            GROUP,
            [SOURCE],
            {
                **common,
                "isolation_level": "read_committed",
                "enable_auto_commit": False,
                "session_timeout_ms": SESSION_MS,
                "heartbeat_interval_ms": SESSION_MS // 6,
                "max_poll_interval_ms": POLL_INTERVAL_MS,
                "max_poll_records": BATCH_RECORDS,
            },
        )
        try:
            await writer.start()
            await member.start()
            while not await is_done(member):
                await self._step(writer, member)
            return True
        except ProducerFenced:
            return True
        except KafkaError as error:
            raise_unexpected(error)
            return False
        finally:
            await stop(member.consumer)
            await stop(writer.producer)

    async def _step(self, writer: RecordingProducer, member: RecordingMember) -> None:
        """Process one batch, if there are records. Raises KafkaError."""
        batches = await member.poll(200)
        if not batches:
            return
        try:
            await transform(writer, member, batches)
        except ProducerFenced:
            raise
        except KafkaError as error:
            raise_unexpected(error)
            places = await member.consumer.seek_to_committed()  # the transaction is aborted: read its inputs again
            mine = member.consumer.assignment()
            back = {place: -1 if offset is None else offset for place, offset in places.items() if place in mine}
            member.recorder.assigned(back, positions=back.values())


async def transform(writer: RecordingProducer, member: RecordingMember, batches: dict[TopicPartition, Any]) -> None:
    """Run one transaction. Raises KafkaError."""
    recorder = writer.recorder
    txn = recorder.beginning(ID)
    async with writer.producer.transaction():
        offsets: dict[TopicPartition, int] = {}
        for place, records in batches.items():
            for record in records:
                target = record.offset % TARGET_PARTITIONS
                await writer.send(TARGET, target, txn=txn, made_from=text(record.value))
            offsets[place] = records[-1].offset + 1
        asked = recorder.committing_offsets(GROUP, offsets, txn=txn)
        await writer.producer.send_offsets_to_transaction(offsets, member.consumer.group_metadata())
        recorder.offsets_committed(asked)
        recorder.committing(txn)
    recorder.committed(txn)


async def is_done(member: RecordingMember) -> bool:
    """Whether all inputs are read. Raises KafkaError."""
    if INPUT not in member.consumer.assignment():
        return False
    return await member.consumer.position(INPUT) >= BATCHES * BATCH_RECORDS
