"""One interface over clients that semel did not write, so that each test runs with all of them."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class StrangerRecord(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


Sent = Iterable[tuple[int, bytes | None, bytes | None]]  # partition, key, value


class StrangerMember(threading.Thread):
    """A group member that polls, collects and commits until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.rows: list[StrangerRecord] = []
        self.assigned: frozenset[int] = frozenset()
        self.error: BaseException | None = None
        self._leave = threading.Event()

    def run(self) -> None:
        try:
            self.work(self._leave)
        except BaseException as e:
            self.error = e
            raise

    def work(self, leave: threading.Event) -> None:
        raise AssertionError("a member says how it works")

    def leave(self) -> None:
        self._leave.set()
        self.join(30)
        assert not self.is_alive(), "the member did not leave within 30 s"
        assert self.error is None, self.error


class ConfluentStranger:
    """confluent-kafka: librdkafka with a Python interface."""

    name = "confluent-kafka"

    def __init__(self, address: str) -> None:
        self.config = {"bootstrap.servers": address}

    def create_topic(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient(dict(self.config))
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(20)

    def delete_topic(self, topic: str) -> None:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(dict(self.config))
        admin.delete_topics([topic], operation_timeout=30)[topic].result(30)

    def produce(self, topic: str, rows: Sent, codec: str = "none", idempotent: bool = True) -> None:
        from confluent_kafka import Producer

        config = {"enable.idempotence": idempotent, "compression.type": codec, "linger.ms": 5}
        producer = Producer({**self.config, **config})
        errors: list[Any] = []
        delivered = 0

        def done(error: Any, message: Any) -> None:
            nonlocal delivered
            delivered += 1
            if error is not None:
                errors.append(error)

        count = 0
        for partition, key, value in rows:
            while True:
                try:
                    producer.produce(topic, value, key, partition=partition, on_delivery=done)
                    break
                except BufferError:
                    producer.poll(0.05)
            count += 1
            producer.poll(0)
        assert producer.flush(60) == 0
        assert not errors, errors[:3]
        assert delivered == count

    def consume(
        self, topic: str, count: int, timeout_s: float = 30, isolation: str = "read_uncommitted"
    ) -> list[StrangerRecord]:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {**self.config, "group.id": "unused", "enable.auto.commit": False, "isolation.level": isolation}
        )
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        rows: list[StrangerRecord] = []
        deadline = time.monotonic() + timeout_s
        while len(rows) < count and time.monotonic() < deadline:
            rows += [self._row(m) for m in consumer.consume(1000, 0.2)]
        consumer.close()
        return rows

    def read_to_end(self, topic: str, isolation: str = "read_committed", timeout_s: float = 60) -> list[StrangerRecord]:
        """All records of a topic without concurrent writes."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

        config = {"group.id": "unused", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({**self.config, **config, "isolation.level": isolation})
        at_end = dict.fromkeys(consumer.list_topics(topic, 10).topics[topic].partitions, False)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in at_end])
        rows: list[StrangerRecord] = []
        deadline = time.monotonic() + timeout_s
        while not all(at_end.values()):
            assert time.monotonic() < deadline, f"{len(rows)} records after {timeout_s} s"
            for message in consumer.consume(1000, 0.2):
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    at_end[partition] = True
                else:
                    rows.append(self._row(message))
        consumer.close()
        return rows

    @staticmethod
    def _row(message: Any) -> StrangerRecord:
        assert message.error() is None, message.error()
        return StrangerRecord(message.partition(), message.offset(), message.key(), message.value())

    def member(self, group: str, topic: str, **extra: Any) -> StrangerMember:
        from confluent_kafka import Consumer, KafkaException

        config = {
            **self.config,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **extra,
        }
        if config.get("group.protocol") != "consumer":  # there the broker chooses both
            config = {"session.timeout.ms": 10000, "heartbeat.interval.ms": 300, **config}

        class PollingConfluent(StrangerMember):
            def work(self, leave: threading.Event) -> None:
                consumer = Consumer(config)
                consumer.subscribe([topic])
                while not leave.is_set():
                    rows = [ConfluentStranger._row(m) for m in consumer.consume(500, 0.1)]
                    self.assigned = frozenset(tp.partition for tp in consumer.assignment())
                    self.rows += rows
                    if rows:
                        try:
                            consumer.commit(asynchronous=False)
                        except KafkaException:
                            continue  # a rebalance came between: the rows may come again
                consumer.close()

        return PollingConfluent()


class KafkaPythonStranger:
    """kafka-python: pure Python, threads."""

    name = "kafka-python"

    def __init__(self, address: str) -> None:
        self.address = address

    def create_topic(self, topic: str, partitions: int) -> None:
        from kafka import KafkaAdminClient
        from kafka.admin import NewTopic

        admin = KafkaAdminClient(bootstrap_servers=self.address)
        admin.create_topics([NewTopic(topic, partitions, 1)])
        admin.close()

    def produce(self, topic: str, rows: Sent, codec: str = "none", idempotent: bool = True) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(
            bootstrap_servers=self.address,
            enable_idempotence=idempotent,
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
        )
        futures = [producer.send(topic, value, key, partition=partition) for partition, key, value in rows]
        producer.flush(60)
        for future in futures:
            future.get(60)
        producer.close()

    def consume(
        self, topic: str, count: int, timeout_s: float = 30, isolation: str = "read_uncommitted"
    ) -> list[StrangerRecord]:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(
            bootstrap_servers=self.address, enable_auto_commit=False, group_id=None, isolation_level=isolation
        )
        partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        rows: list[StrangerRecord] = []
        deadline = time.monotonic() + timeout_s
        while len(rows) < count and time.monotonic() < deadline:
            for found in consumer.poll(200).values():
                rows += [StrangerRecord(r.partition, r.offset, r.key, r.value) for r in found]
        consumer.close()
        return rows

    def member(self, group: str, topic: str, **extra: Any) -> StrangerMember:
        from kafka import KafkaConsumer
        from kafka.errors import CommitFailedError

        address = self.address

        class PollingKafkaPython(StrangerMember):
            def work(self, leave: threading.Event) -> None:
                consumer = KafkaConsumer(
                    topic,
                    bootstrap_servers=address,
                    group_id=group,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    session_timeout_ms=10000,
                    heartbeat_interval_ms=300,
                    **extra,
                )
                while not leave.is_set():
                    found = consumer.poll(100)
                    self.assigned = frozenset(tp.partition for tp in consumer.assignment())
                    self.rows += [
                        StrangerRecord(r.partition, r.offset, r.key, r.value) for rows in found.values() for r in rows
                    ]
                    if found:
                        try:
                            consumer.commit()
                        except CommitFailedError:
                            continue  # a rebalance came between: the rows may come again
                consumer.close()

        return PollingKafkaPython()


class AiokafkaStranger:
    """aiokafka, or any module with its names."""

    name = "aiokafka"
    module = "aiokafka"
    errors = "aiokafka.errors"

    def __init__(self, address: str) -> None:
        self.address = address
        self.api = importlib.import_module(self.module)

    def create_topic(self, topic: str, partitions: int) -> None:
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        async def create() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
            await admin.start()
            answer = await admin.create_topics([NewTopic(topic, partitions, 1)])
            assert answer.topic_errors[0][1] == 0, answer
            await admin.close()

        asyncio.run(create())

    def produce(self, topic: str, rows: Sent, codec: str = "none", idempotent: bool = True) -> None:
        async def send() -> None:
            producer = self.api.AIOKafkaProducer(
                bootstrap_servers=self.address,
                enable_idempotence=idempotent,
                compression_type=None if codec == "none" else codec,
                linger_ms=5,
            )
            await producer.start()
            futures = []
            for partition, key, value in rows:
                futures.append(await producer.send(topic, value, key, partition=partition))
            for future in futures:
                await future
            await producer.stop()

        asyncio.run(send())

    def consume(
        self, topic: str, count: int, timeout_s: float = 30, isolation: str = "read_uncommitted"
    ) -> list[StrangerRecord]:
        async def read() -> list[StrangerRecord]:
            consumer = self.api.AIOKafkaConsumer(
                topic,
                bootstrap_servers=self.address,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level=isolation,
            )
            await consumer.start()
            rows: list[StrangerRecord] = []
            deadline = time.monotonic() + timeout_s
            while len(rows) < count and time.monotonic() < deadline:
                for found in (await consumer.getmany(timeout_ms=200)).values():
                    rows += [StrangerRecord(r.partition, r.offset, r.key, r.value) for r in found]
            await consumer.stop()
            return rows

        return asyncio.run(read())

    def member(self, group: str, topic: str, **extra: Any) -> StrangerMember:
        api, address = self.api, self.address
        commit_failed = importlib.import_module(self.errors).CommitFailedError

        class PollingAiokafka(StrangerMember):
            def work(self, leave: threading.Event) -> None:
                asyncio.run(self.poll(leave))

            async def poll(self, leave: threading.Event) -> None:
                consumer = api.AIOKafkaConsumer(
                    topic,
                    bootstrap_servers=address,
                    group_id=group,
                    auto_offset_reset="earliest",
                    enable_auto_commit=False,
                    session_timeout_ms=10000,
                    heartbeat_interval_ms=300,
                    **extra,
                )
                await consumer.start()
                while not leave.is_set():
                    found = await consumer.getmany(timeout_ms=100)
                    self.assigned = frozenset(tp.partition for tp in consumer.assignment())
                    self.rows += [
                        StrangerRecord(r.partition, r.offset, r.key, r.value) for rows in found.values() for r in rows
                    ]
                    if found:
                        try:
                            await consumer.commit()
                        except commit_failed:
                            continue  # a rebalance came between: the rows may come again
                await consumer.stop()

        return PollingAiokafka()


class SemelStranger(AiokafkaStranger):
    """semel's own client under aiokafka's names."""

    name = "semel"
    module = "semel.aiokafka"
    errors = "semel.errors"


STRANGERS: list[Callable[[str], Any]] = [ConfluentStranger, KafkaPythonStranger, AiokafkaStranger]
EVERYONE: list[Callable[[str], Any]] = [*STRANGERS, SemelStranger]
