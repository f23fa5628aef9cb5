"""A program: members of a group with confluent-kafka (librdkafka). `python -m support.group_librdkafka JOB`."""

from __future__ import annotations

import os
import sys
import threading
import time

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from support.group_program import ProgramJob, ProgramMember, run
from support.librdkafka import insist

BATCH = 20
POLL_S = 0.1
CALL_S = 30
"""The timeout of one call of a producer."""
STUCK_S = 45
"""Longer than CALL_S. A call that takes so long does not return."""
COMMIT_S = 60
LOST = ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "_STATE")
"""Errors of a commit that a retry cannot solve."""


class LibrdkafkaMember(ProgramMember):
    def __init__(self, name: str, job: ProgramJob) -> None:
        super().__init__(name, job)
        # Kept until the program ends: a destructor waits for a broker's handle that does not end; see `_send_offsets`.
        self._producers: list[Producer] = []

    def _consumer(self) -> Consumer:
        # With callbacks a partition is revoked inside poll() alone: after what was read of it is committed. consume()
        # may collect records, and then serve a revocation, before it returns: they could no longer be committed.
        consumer = Consumer(
            {
                "bootstrap.servers": self.job.bootstrap,
                "group.id": self.job.group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if self.job.target else "read_uncommitted",
                **self.job.config,
            }
        )
        consumer.subscribe(
            [self.job.subscription], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        self._batch: list[Message] = []
        return consumer

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.say("assigned", *_pairs(partitions))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._give_up("revoked", partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._give_up("lost", partitions)

    def _give_up(self, what: str, partitions: list[TopicPartition]) -> None:
        gone = _pairs(partitions)
        self._batch = [each for each in self._batch if (each.topic(), each.partition()) not in gone]
        self.say(what, *gone)

    def read(self) -> None:
        consumer = self._consumer()
        while not self.is_leaving.is_set():
            message = consumer.poll(POLL_S)
            if message is not None and not self._is_error(message):
                self.say("value", _text(message))
                self._commit(consumer)
                self.say("committed", 1)
        consumer.close()

    def _is_error(self, message: Message) -> bool:
        """Print an error. librdkafka itself retries it if it is not fatal."""
        error = message.error()
        if error is None:
            return False
        assert not error.fatal(), error
        self.say("error", error.name())
        return True

    def _commit(self, consumer: Consumer) -> None:
        """Repeat a commit until it succeeds: while the coordinator moves, or until the member knows its next epoch."""
        deadline = time.monotonic() + COMMIT_S
        while True:
            try:
                consumer.commit(asynchronous=False)
                return
            except KafkaException as error:
                name = error.args[0].name()
                if name in LOST or time.monotonic() > deadline:
                    raise
                self.say("error", name)
                time.sleep(0.05)

    # --- transactions ---

    def transform(self) -> None:
        """Transform with new clients after each error that ends a producer, as a supervisor would start a new
        process.
        """
        while not self.is_leaving.is_set():
            consumer = self._consumer()
            try:
                self._transactions(consumer)
            except KafkaException as error:
                self.say("error", error.args[0].name())
                time.sleep(0.1)
            consumer.close()

    def _transactions(self, consumer: Consumer) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.job.bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": self.job.transaction_timeout_ms,
                "linger.ms": 1,
                # Without it librdkafka 2.16 drops its only broker when the connection breaks, and a TxnOffsetCommit
                # waits for the dropped handle until the call's time is over.
                "metadata.recovery.strategy": "none",
            }
        )
        self._producers.append(producer)
        insist(lambda: producer.init_transactions(CALL_S))
        while not self.is_leaving.is_set():
            self._collect(consumer)
            if self._batch:
                self._transaction(consumer, producer)

    def _collect(self, consumer: Consumer) -> None:
        """Up to BATCH records. Those of partitions that are revoked meanwhile are dropped."""
        self._batch = []
        wait_s = POLL_S
        while len(self._batch) < BATCH:
            message = consumer.poll(wait_s)
            if message is None:
                return
            if not self._is_error(message):
                self._batch.append(message)
            wait_s = 0

    def _transaction(self, consumer: Consumer, producer: Producer) -> None:
        producer.begin_transaction()
        try:
            for message in self._batch:
                partition = message.partition()
                assert partition is not None
                producer.produce(self.job.target, f"done-{_text(message)}", partition=partition)
            producer.flush(CALL_S)
            self.reach("sent")
            positions = [TopicPartition(topic, partition, last + 1) for topic, partition, last in self._places(-1)]
            self._send_offsets(consumer, producer, positions)
            self.reach("offsets")
            insist(lambda: producer.commit_transaction(CALL_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            insist(lambda: producer.abort_transaction(CALL_S))
            self.say("aborted", error.args[0].name())
            for topic, partition, first in self._places(0):
                consumer.seek(TopicPartition(topic, partition, first))
        else:
            self.say("committed", len(self._batch))

    def _send_offsets(self, consumer: Consumer, producer: Producer, positions: list[TopicPartition]) -> None:
        """Send the offsets in a thread. If the call does not return, this program becomes a new one.

        With several brokers librdkafka 2.16 may end the handle of a coordinator's broker. A TxnOffsetCommit that waits
        for this handle does not return, not even after its timeout.
        """
        errors: list[KafkaException] = []

        def call() -> None:
            metadata = consumer.consumer_group_metadata()
            try:
                insist(lambda: producer.send_offsets_to_transaction(positions, metadata, CALL_S))
            except KafkaException as error:
                errors.append(error)

        calling = threading.Thread(target=call, daemon=True)
        calling.start()
        calling.join(STUCK_S)
        if calling.is_alive():
            self.say("stuck")
            self.say("closed")
            os.execv(sys.executable, [sys.executable, "-m", "support.group_librdkafka", sys.argv[1]])
        if errors:
            raise errors[0]

    def _places(self, index: int) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of the batch's first (0) or last (-1) record of each partition."""
        offsets: dict[tuple[str, int], list[int]] = {}
        for message in self._batch:
            offset = message.offset()
            assert offset is not None
            offsets.setdefault(_place(message), []).append(offset)
        return [(*place, found[index]) for place, found in offsets.items()]


def _place(message: Message) -> tuple[str, int]:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def _text(message: Message) -> str:
    value = message.value()
    assert value is not None
    return value.decode()


def _pairs(partitions: list[TopicPartition]) -> list[tuple[str, int]]:
    return [(each.topic, each.partition) for each in partitions]


if __name__ == "__main__":
    run(LibrdkafkaMember)
    os._exit(0)  # without destructors; the consumers are closed
