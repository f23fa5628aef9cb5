"""The work of a worker with confluent-kafka: librdkafka, which uses transaction version 1."""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from sim.history import Recorder
from support.librdkafka import insist

from demo.client_settings import of_librdkafka
from faults.worker import (
    DELIVERY_TIMEOUT_MS,
    LIFE_OPS,
    PATIENCE_MS,
    REQUEST_TIMEOUT_MS,
    SESSION_MS,
    TRANSACTION_TIMEOUT_MS,
    CallStuckError,
    Fenced,
    WorkerJob,
)

POLL_S = 0.2
BATCH_RECORDS = 20
ABORTS = 0.2
"""The share of transactions that are aborted although they could be committed."""
LINGERS = 0.02
LINGER_S = 0.7
"""With probability LINGERS a transaction pauses this long, so that readers reach its records while it is open."""
PATIENCE_S = PATIENCE_MS / 1000
STUCK_S = 15.0
FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")


class ConfluentWorker:
    def __init__(self, job: WorkerJob) -> None:
        self._job, self._plan = job, job.plan
        self._common = {
            **of_librdkafka(job.run.bootstrap),
            "client.id": job.plan.name,
            "socket.timeout.ms": REQUEST_TIMEOUT_MS,
            "reconnect.backoff.max.ms": 500,
            # Otherwise librdkafka 2.16 drops its only broker when the connection breaks, and a TxnOffsetCommit waits
            # for the dropped broker handle until the call times out.
            "metadata.recovery.strategy": "none",
        }

    def work(self) -> None:
        """Work with one client object after the other. After an error the next one continues."""
        lives = {"write": self.write, "append": self.append, "transform": self.transform, "count": self.count}
        while not self._job.is_stopping:
            try:
                lives[self._plan.kind]()
            except KafkaException as error:
                if error.args[0].name() in FENCED:
                    raise Fenced(str(error)) from error
                self._job.log.warning("a new client, after %s", error)
                time.sleep(0.2)

    # --- producers ---

    def _producer(self, **settings: Any) -> Any:
        config = {"enable.idempotence": True, "message.timeout.ms": DELIVERY_TIMEOUT_MS}
        config |= {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({**self._common, **config, "linger.ms": self._job.rng.choice((0, 5))})

    def _transactional(self, recorder: Recorder) -> Any:
        producer = self._producer(
            transactional_id=self._plan.transactional_id,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            message_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        began_ms = self._job.history.now_ms()
        insist(lambda: producer.init_transactions(PATIENCE_S))
        recorder.initialized(self._plan.transactional_id, since_ms=began_ms)
        return producer

    def _send(self, producer: Any, recorder: Recorder, topic: str, partition: int, **what: Any) -> None:
        value = what.pop("value")
        op = recorder.sending(topic, partition, value=value, **what)

        def told(error: Any, message: Any) -> None:
            if error is None:
                offset = message.offset()  # None: acknowledged together with a later batch
                recorder.stored(op, message.partition(), -1 if offset is None else offset)
            else:
                recorder.not_stored(op, error.name())

        producer.produce(topic, value.encode(), partition=partition, on_delivery=told)
        producer.poll(0)

    def write(self) -> None:
        recorder = self._job.history.recorder(self._job.run.name)
        producer = self._producer()
        for _ in range(LIFE_OPS):
            if self._job.is_stopping:
                break
            self._send(producer, recorder, self._plan.source, self._job.partition(), value=self._job.value())
            producer.poll(self._job.pause_s())
        producer.flush(DELIVERY_TIMEOUT_MS / 1000)

    def append(self) -> None:
        recorder = self._job.history.recorder(self._job.run.name)
        producer = self._transactional(recorder)
        for _ in range(LIFE_OPS // 4):
            if self._job.is_stopping:
                break
            txn = recorder.beginning(self._plan.transactional_id)
            producer.begin_transaction()
            self._end(producer, recorder, txn, self._append_some(producer, recorder, txn))
            time.sleep(self._job.pause_s())

    def _append_some(self, producer: Any, recorder: Recorder, txn: int) -> bool:
        """Send a few records to random partitions. Returns whether to commit them."""
        rng = self._job.rng
        for _ in range(rng.randint(1, 6)):
            topic, place = rng.choice(self._plan.topics), self._job.partition()
            try:
                self._send(producer, recorder, topic, place, value=self._job.value(), txn=txn)
            except KafkaException as error:
                return self._is_lost(error)
            time.sleep(self._job.pause_s() if rng.random() > LINGERS else LINGER_S)
        return rng.random() >= ABORTS

    def _is_lost(self, error: KafkaException) -> bool:
        """Log an error after which the transaction must be aborted, and return False. Raises a fatal error."""
        if error.args[0].fatal() or error.args[0].name() in FENCED:
            raise error
        self._job.log.warning("abort, after %s", error)
        return False

    def _end(self, producer: Any, recorder: Recorder, txn: int, commit: bool) -> bool:
        """Commit or abort; if the commit fails, abort. Returns whether it was committed."""
        if commit:
            recorder.committing(txn)
            try:
                insist(lambda: producer.commit_transaction(PATIENCE_S))
                recorder.committed(txn)
                return True
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._is_lost(error)
        insist(lambda: producer.abort_transaction(PATIENCE_S))
        recorder.aborted(txn)
        return False

    # --- consumers ---

    def _consumer(self, recorder: Recorder, *, read_committed: bool) -> Any:
        consumer = Consumer(
            {
                **self._common,
                "group.id": self._plan.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if read_committed else "read_uncommitted",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": SESSION_MS // 8,
                "max.poll.interval.ms": SESSION_MS * 20,
                "partition.assignment.strategy": "range",
                "fetch.wait.max.ms": 200,
            }
        )
        consumer.subscribe(
            [self._plan.source],
            on_assign=lambda _, places: recorder.assigned(_pairs(places)),
            on_revoke=lambda _, places: recorder.revoked(_pairs(places)),
            on_lost=lambda _, places: recorder.revoked(_pairs(places), lost=True),
        )
        recorder.consuming(self._plan.group, read_committed=read_committed)
        return consumer

    def transform(self) -> None:
        recorder = self._job.history.recorder(self._job.run.name)
        consumer = self._consumer(recorder, read_committed=True)
        try:
            producer = self._transactional(recorder)
            for _ in range(LIFE_OPS // 4):
                if self._job.is_stopping:
                    break
                found = _records(consumer, BATCH_RECORDS)
                if not found:
                    continue
                txn = recorder.beginning(self._plan.transactional_id)
                producer.begin_transaction()
                commit = self._transform_some(producer, consumer, recorder, txn, found)
                if not self._end(producer, recorder, txn, commit):
                    self._rewind(consumer, recorder)
        finally:
            consumer.close()

    def _transform_some(
        self, producer: Any, consumer: Any, recorder: Recorder, txn: int, found: dict[tuple[str, int], list[Any]]
    ) -> bool:
        _note_polled(recorder, found, txn=txn)
        try:
            positions = {}
            for place, records in found.items():
                for record in records:
                    made_from = record.value().decode()
                    value = self._job.value(made_from)
                    self._send(
                        producer, recorder, self._plan.target, place[1], value=value, txn=txn, made_from=made_from
                    )
                positions[place] = records[-1].offset() + 1
            op = recorder.committing_offsets(self._plan.group, positions, txn=txn)
            places = [TopicPartition(*place, offset) for place, offset in positions.items()]
            self._send_offsets(producer, consumer, places)
            recorder.offsets_committed(op)
        except KafkaException as error:
            return self._is_lost(error)
        return self._job.rng.random() >= ABORTS

    def _send_offsets(self, producer: Any, consumer: Any, places: list[TopicPartition]) -> None:
        """Send the offsets in a thread, and raise CallStuckError if the call does not return.

        When Metadata no longer names a group's coordinator, librdkafka 2.16 ends the handle of that broker. A
        TxnOffsetCommit that waits for this handle does not return, not even after its timeout.
        """
        errors: list[KafkaException] = []

        def call() -> None:
            try:
                insist(
                    lambda: producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), PATIENCE_S)
                )
            except KafkaException as error:
                errors.append(error)

        calling = threading.Thread(target=call, daemon=True)
        calling.start()
        calling.join(STUCK_S)
        if calling.is_alive():
            raise CallStuckError(f"send_offsets_to_transaction has not returned for {STUCK_S:g} s")
        if errors:
            raise errors[0]

    def _rewind(self, consumer: Any, recorder: Recorder) -> None:
        """Seek to the committed offsets: the transaction was aborted, so its input must be read again."""
        found = consumer.committed(consumer.assignment(), PATIENCE_S)
        recorder.revoked(_pairs(found))
        for place in found:
            place.offset = max(place.offset, 0)
            consumer.seek(place)
        recorder.assigned(_pairs(found), positions=[place.offset for place in found])

    def count(self) -> None:
        recorder = self._job.history.recorder(self._job.run.name)
        consumer = self._consumer(recorder, read_committed=self._plan.read_committed)
        try:
            for _ in range(LIFE_OPS // 4):
                if self._job.is_stopping:
                    break
                found = _records(consumer, BATCH_RECORDS * 5)
                _note_polled(recorder, found)
                if found:
                    self._commit(consumer, recorder, {place: rows[-1].offset() + 1 for place, rows in found.items()})
                if self._job.rng.random() < 0.05:
                    self._look(consumer, recorder)
        finally:
            consumer.close()

    def _commit(self, consumer: Any, recorder: Recorder, positions: dict[tuple[str, int], int]) -> None:
        op = recorder.committing_offsets(self._plan.group, positions)
        places = [TopicPartition(*place, offset) for place, offset in positions.items()]
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:  # it may be committed: the error may be that of a repeated request
            self._job.log.warning("perhaps not committed: %s", error)
        else:
            recorder.offsets_committed(op)

    def _look(self, consumer: Any, recorder: Recorder) -> None:
        asked_ms = self._job.history.now_ms()
        found = consumer.committed(consumer.assignment(), PATIENCE_S)
        seen = {(each.topic, each.partition): each.offset if each.offset >= 0 else None for each in found}
        recorder.offsets_seen(self._plan.group, seen, since_ms=asked_ms)


def _records(consumer: Any, count: int) -> dict[tuple[str, int], list[Any]]:
    """The records of one poll by partition. librdkafka itself retries after temporary errors."""
    found: dict[tuple[str, int], list[Any]] = {}
    for message in consumer.consume(count, POLL_S):
        if message.error() is None:
            found.setdefault((message.topic(), message.partition()), []).append(message)
        elif message.error().fatal():
            raise KafkaException(message.error())
    return found


def _note_polled(recorder: Recorder, found: dict[tuple[str, int], list[Any]], **more: Any) -> None:
    for place, records in found.items():
        recorder.polled(place, [r.offset() for r in records], [r.value().decode() for r in records], **more)


def _pairs(places: list[Any]) -> list[tuple[str, int]]:
    return [(place.topic, place.partition) for place in places]
