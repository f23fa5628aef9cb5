"""The work of a worker with semel's client library."""

from __future__ import annotations

import asyncio
from typing import Any

from semel import Consumer, ConsumerRebalanceListener, Producer, TopicPartition
from semel.errors import (
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFenced,
    TransactionWasCommitted,
)
from semel.structs import RecordMetadata
from sim.history import Recorder

from demo.client_settings import of_semel
from faults.worker import (
    DELIVERY_TIMEOUT_MS,
    LIFE_OPS,
    PATIENCE_MS,
    REQUEST_TIMEOUT_MS,
    SESSION_MS,
    TRANSACTION_TIMEOUT_MS,
    Fenced,
    WorkerJob,
)

POLL_MS = 200
BATCH_RECORDS = 20
ABORTS = 0.2
"""The share of transactions that are aborted although they could be committed."""
LINGERS = 0.02
LINGER_S = 0.7
"""With probability LINGERS a transaction pauses this long, so that readers reach its records while it is open."""


class HistoryListener(ConsumerRebalanceListener):
    """Notes assigned and revoked partitions in the history."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.consumer: Consumer | None = None

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        assert self.consumer is not None
        # Not the generation of `group_metadata`: that is for records returned earlier, perhaps in an older generation.
        group = self.consumer._group
        assert group is not None
        self._recorder.assigned(assigned, group.member.membership.generation)

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        self._recorder.revoked(revoked)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        self._recorder.revoked(lost, lost=True)


class SemelWorker:
    def __init__(self, job: WorkerJob) -> None:
        self._job, self._plan = job, job.plan
        self._common: dict[str, Any] = {
            **of_semel(job.run.bootstrap),
            "client_id": job.plan.name,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "max_block_ms": PATIENCE_MS,
            "reconnect_backoff_max_ms": 500,
            "retry_backoff_max_ms": 500,
        }

    async def work(self) -> None:
        """Work with one client object after the other. After an error the next one continues."""
        lives = {"write": self.write, "append": self.append, "transform": self.transform, "count": self.count}
        while not self._job.is_stopping:
            try:
                await lives[self._plan.kind]()
            except ProducerFenced as error:
                raise Fenced(str(error)) from error
            except KafkaError as error:
                self._job.log.warning("a new client, after %s: %s", type(error).__name__, error)
                await asyncio.sleep(0.2)

    # --- producers ---

    def _producer(self, **settings: Any) -> Producer:
        linger_ms = self._job.rng.choice((0, 5))
        return Producer(
            **self._common, linger_ms=linger_ms, delivery_timeout_ms=DELIVERY_TIMEOUT_MS, **settings
        )  # fmt: skip

    def _transactional(self) -> Producer:
        return self._producer(
            transactional_id=self._plan.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )

    async def _send(self, producer: Producer, recorder: Recorder, topic: str, partition: int, **what: Any) -> None:
        value = what.pop("value")
        op = recorder.sending(topic, partition, value=value, **what)
        try:
            future = await producer.send(topic, value.encode(), partition=partition)
        except KafkaError as error:
            recorder.not_stored(op, type(error).__name__)
            raise
        future.add_done_callback(lambda done: _note_delivery(recorder, op, done))

    async def write(self) -> None:
        recorder = self._job.history.recorder(self._job.run.name)
        async with self._producer() as producer:
            for _ in range(LIFE_OPS):
                if self._job.is_stopping:
                    break
                place = self._job.partition()
                await self._send(producer, recorder, self._plan.source, place, value=self._job.value())
                await asyncio.sleep(self._job.pause_s())
            await producer.flush()

    async def append(self) -> None:
        recorder, began_ms = self._job.history.recorder(self._job.run.name), self._job.history.now_ms()
        async with self._transactional() as producer:
            recorder.initialized(self._plan.transactional_id, since_ms=began_ms)
            for _ in range(LIFE_OPS // 4):
                if self._job.is_stopping:
                    break
                txn = recorder.beginning(self._plan.transactional_id)
                await producer.begin_transaction()
                await self._end(producer, recorder, txn, await self._append_some(producer, recorder, txn))
                await asyncio.sleep(self._job.pause_s())

    async def _append_some(self, producer: Producer, recorder: Recorder, txn: int) -> bool:
        """Send a few records to random partitions. Returns whether to commit them."""
        rng = self._job.rng
        try:
            for _ in range(rng.randint(1, 6)):
                topic, place = rng.choice(self._plan.topics), self._job.partition()
                await self._send(producer, recorder, topic, place, value=self._job.value(), txn=txn)
                await asyncio.sleep(self._job.pause_s() if rng.random() > LINGERS else LINGER_S)
        except ProducerFenced:
            raise
        except KafkaError as error:
            self._job.log.warning("abort, after %s: %s", type(error).__name__, error)
            return False
        return rng.random() >= ABORTS

    async def _end(self, producer: Producer, recorder: Recorder, txn: int, commit: bool) -> bool:
        """Commit or abort; if the commit fails, abort. Returns whether it was committed."""
        if commit:
            recorder.committing(txn)
            try:
                await _insist(producer.commit_transaction)
                recorder.committed(txn)
                return True
            except ProducerFenced:
                raise
            except KafkaError as error:
                self._job.log.warning("abort, after %s: %s", type(error).__name__, error)
        try:
            await _insist(producer.abort_transaction)
        except TransactionWasCommitted:
            recorder.committed(txn)
            return True
        recorder.aborted(txn)
        return False

    # --- consumers ---

    def _consumer(self, recorder: Recorder, *, read_committed: bool) -> Consumer:
        listener = HistoryListener(recorder)
        consumer = listener.consumer = Consumer(
            **self._common,
            group_id=self._plan.group,
            isolation_level="read_committed" if read_committed else "read_uncommitted",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=SESSION_MS // 8,
            rebalance_timeout_ms=SESSION_MS * 2,
            default_api_timeout_ms=PATIENCE_MS,
            partition_assignment_strategy=("range",),
        )
        consumer.subscribe([self._plan.source], listener=listener)
        recorder.consuming(self._plan.group, read_committed=read_committed)
        return consumer

    async def transform(self) -> None:
        recorder, began_ms = self._job.history.recorder(self._job.run.name), self._job.history.now_ms()
        consumer = self._consumer(recorder, read_committed=True)
        async with self._transactional() as producer, consumer:
            recorder.initialized(self._plan.transactional_id, since_ms=began_ms)
            for _ in range(LIFE_OPS // 4):
                if self._job.is_stopping:
                    break
                found = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH_RECORDS)
                if not found:
                    continue
                txn = recorder.beginning(self._plan.transactional_id)
                await producer.begin_transaction()
                commit = await self._transform_some(producer, consumer, recorder, txn, found)
                if not await self._end(producer, recorder, txn, commit):
                    await self._rewind(consumer, recorder)

    async def _transform_some(
        self, producer: Producer, consumer: Consumer, recorder: Recorder, txn: int, found: dict[TopicPartition, Any]
    ) -> bool:
        for place, records in found.items():
            _note_polled(recorder, place, records, txn=txn)
        try:
            positions = {}
            for place, records in found.items():
                for record in records:
                    made_from = record.value.decode()
                    value = self._job.value(made_from)
                    await self._send(
                        producer, recorder, self._plan.target, place.partition,
                        value=value, txn=txn, made_from=made_from,
                    )  # fmt: skip
                positions[place] = records[-1].offset + 1
            op = recorder.committing_offsets(self._plan.group, positions, txn=txn)
            await producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            recorder.offsets_committed(op)
        except ProducerFenced:
            raise
        except KafkaError as error:
            self._job.log.warning("abort, after %s: %s", type(error).__name__, error)
            return False
        return self._job.rng.random() >= ABORTS

    async def _rewind(self, consumer: Consumer, recorder: Recorder) -> None:
        """Seek to the committed offsets: the transaction was aborted, so its input must be read again."""
        found = await consumer.seek_to_committed()
        recorder.revoked(found)
        recorder.assigned(found, positions=[-1 if at is None else at for at in found.values()])

    async def count(self) -> None:
        recorder = self._job.history.recorder(self._job.run.name)
        consumer = self._consumer(recorder, read_committed=self._plan.read_committed)
        async with consumer:
            for _ in range(LIFE_OPS // 4):
                if self._job.is_stopping:
                    break
                found = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH_RECORDS * 5)
                for place, records in found.items():
                    _note_polled(recorder, place, records)
                if found:
                    await self._commit(consumer, recorder, {p: rows[-1].offset + 1 for p, rows in found.items()})
                if self._job.rng.random() < 0.05:
                    await self._look(consumer, recorder)

    async def _commit(self, consumer: Consumer, recorder: Recorder, positions: dict[TopicPartition, int]) -> None:
        op = recorder.committing_offsets(self._plan.group, positions)
        try:
            await consumer.commit(positions)
        except (CommitFailedError, KafkaTimeoutError) as error:  # it may be committed: perhaps the error of a retry
            self._job.log.warning("perhaps not committed: %s", error)
        else:
            recorder.offsets_committed(op)

    async def _look(self, consumer: Consumer, recorder: Recorder) -> None:
        asked_ms = self._job.history.now_ms()
        seen = {place: await consumer.committed(place) for place in sorted(consumer.assignment())}
        recorder.offsets_seen(self._plan.group, seen, since_ms=asked_ms)


async def _insist(call: Any) -> None:
    """Repeat a call until its outcome is known."""
    while True:
        try:
            await call()
            return
        except KafkaTimeoutError:
            continue


def _note_delivery(recorder: Recorder, op: int, done: asyncio.Future[RecordMetadata]) -> None:
    if done.cancelled():
        return
    error = done.exception()
    if error is None:
        recorder.stored(op, done.result().partition, done.result().offset)
    else:
        recorder.not_stored(op, f"{type(error).__name__}: {error}")


def _note_polled(recorder: Recorder, place: TopicPartition, records: Any, **more: Any) -> None:
    recorder.polled(place, [r.offset for r in records], [r.value.decode() for r in records], **more)
