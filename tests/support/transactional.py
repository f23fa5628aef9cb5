"""Consume-transform-produce with third-party clients: each input gets `done-<input>` in one transaction."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

BATCH = 25
PATIENCE_S = 60


class TransactionalClient(Protocol):
    """A consumer and a transactional producer of one client, used as a context."""

    name: str
    aborted: int

    def __enter__(self) -> Any: ...
    def __exit__(self, *error: object) -> None: ...

    def step(self, abort: bool) -> int:
        """Run one batch as one transaction. Returns the number of committed inputs. Aborted ones are read again."""


class TransactionalClientBase:
    """The shared part of all pipelines: the loop, and the reaction to a dead broker."""

    name = ""

    def __init__(self, address: str, source: str, target: str, group: str, transactional_id: str) -> None:
        self.address, self.source, self.target, self.group, self.id = address, source, target, group, transactional_id
        self.aborted = 0
        self.left = False

    def run(self, count: int, abort_every: int = 0) -> None:
        """Run until `count` inputs are committed. Every `abort_every`-th transaction is aborted."""
        done = transactions = 0
        deadline = time.monotonic() + PATIENCE_S
        while done < count:
            assert time.monotonic() < deadline, f"{done} of {count} inputs after {PATIENCE_S} s"
            transactions += 1
            done += self.step(abort=bool(abort_every) and transactions % abort_every == 0)

    def keep_alive(self, count: int, between: Callable[[int], None]) -> None:
        """As `run`, but any error that ends a pipeline starts a new one, as a supervisor would."""
        deadline = time.monotonic() + 2 * PATIENCE_S
        while self.committed() < count:
            assert time.monotonic() < deadline, f"{self.committed()} of {count} inputs after {2 * PATIENCE_S} s"
            try:
                with self:
                    while self.committed() < count and time.monotonic() < deadline:
                        between(self.committed())
                        self.step(abort=False)
            except self.errors():
                continue

    def committed(self) -> int:
        """The inputs below the group's committed offsets, read from the broker."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.address, "group.id": self.group})
        places = [TopicPartition(self.source, p) for p in range(3)]
        while True:
            try:
                found = consumer.committed(places, 10)
                break
            except KafkaException:
                continue  # the broker is down: its restart ends this
        consumer.close()
        return sum(max(place.offset, 0) for place in found)

    def errors(self) -> tuple[type[BaseException], ...]:
        raise AssertionError("a pipeline says what its client raises")

    def step(self, abort: bool) -> int:
        raise AssertionError("a pipeline says how it works")

    def __enter__(self) -> TransactionalClientBase:
        raise AssertionError("a pipeline says how it starts")

    def __exit__(self, *error: object) -> None:
        raise AssertionError("a pipeline says how it ends")


class ConfluentPipeline(TransactionalClientBase):
    name = "confluent-kafka"
    group_settings: ClassVar[dict[str, Any]] = {"session.timeout.ms": 6000}

    def __enter__(self) -> ConfluentPipeline:
        self.left = False
        from confluent_kafka import Consumer, Producer

        self.consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                **self.group_settings,
            }
        )
        self.consumer.subscribe([self.source])
        self.producer = Producer(
            {
                "bootstrap.servers": self.address,
                "transactional.id": self.id,
                "linger.ms": 1,
                # Without it librdkafka 2.16 drops its only broker when the connection breaks, and a TxnOffsetCommit
                # waits for the dropped handle until the call's time is over.
                "metadata.recovery.strategy": "none",
            }
        )
        self.producer.init_transactions(30)
        return self

    def __exit__(self, *error: object) -> None:
        self._leave()

    def errors(self) -> tuple[type[BaseException], ...]:
        from confluent_kafka import KafkaException

        return (KafkaException,)

    def step(self, abort: bool) -> int:
        from confluent_kafka import KafkaException

        messages = [m for m in self.consumer.consume(BATCH, 0.3) if m.error() is None]
        if not messages:
            return 0
        self.producer.begin_transaction()
        for message in messages:
            value, partition = message.value(), message.partition()
            assert value is not None
            assert partition is not None
            self.producer.produce(self.target, b"done-" + value, partition=partition)
        if abort:
            self.producer.abort_transaction(30)
            self.aborted += 1
            self._rewind()
            return 0
        positions = self.consumer.position(self.consumer.assignment())
        self.producer.send_offsets_to_transaction(positions, self.consumer.consumer_group_metadata(), 30)
        try:
            self.producer.commit_transaction(30)
        except KafkaException as e:
            if not e.args[0].txn_requires_abort():
                raise
            self.producer.abort_transaction(30)
            self._rewind()
            return 0
        return len(messages)

    def _rewind(self) -> None:
        for place in self.consumer.committed(self.consumer.assignment(), 10):
            place.offset = max(place.offset, 0)
            self.consumer.seek(place)

    def write_and_leave_open(self, value: bytes) -> None:
        self.producer.begin_transaction()
        self.producer.produce(self.target, value, partition=0)
        self.producer.flush(10)
        self._leave()

    def _leave(self) -> None:
        if not self.left:
            self.left = True
            self.consumer.close()

    def is_fenced_when_it_commits(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            self.producer.commit_transaction(10)
        except KafkaException as e:
            return bool(
                e.args[0].fatal() or e.args[0].name() in ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
            )
        return False


class ConfluentOfTheConsumerProtocol(ConfluentPipeline):
    """A pipeline whose consumer uses the consumer protocol (KIP-848)."""

    name = "confluent-kafka-consumer-protocol"
    group_settings: ClassVar[dict[str, Any]] = {"group.protocol": "consumer"}  # the broker decides on the session


class KafkaPythonPipeline(TransactionalClientBase):
    name = "kafka-python"

    def __enter__(self) -> KafkaPythonPipeline:
        from kafka import KafkaConsumer, KafkaProducer

        self.consumer = KafkaConsumer(
            self.source,
            bootstrap_servers=self.address,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )
        self.producer = KafkaProducer(bootstrap_servers=self.address, transactional_id=self.id, linger_ms=1)
        self.producer.init_transactions()
        return self

    def __exit__(self, *error: object) -> None:
        self.consumer.close(autocommit=False)
        self.producer.close(timeout=1)

    def errors(self) -> tuple[type[BaseException], ...]:
        from kafka.errors import KafkaError

        return (KafkaError,)

    def step(self, abort: bool) -> int:
        from kafka.structs import OffsetAndMetadata

        found = self.consumer.poll(300, max_records=BATCH)
        if not found:
            return 0
        self.producer.begin_transaction()
        offsets = {}
        for tp, records in found.items():
            for record in records:
                self.producer.send(self.target, b"done-" + record.value, partition=record.partition)
            offsets[tp] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
        if abort:
            self.producer.abort_transaction()
            self.aborted += 1
            for tp in self.consumer.assignment():
                self.consumer.seek(tp, self.consumer.committed(tp) or 0)
            return 0
        self.producer.send_offsets_to_transaction(offsets, self.consumer.group_metadata())
        self.producer.commit_transaction()
        return sum(map(len, found.values()))

    def write_and_leave_open(self, value: bytes) -> None:
        self.producer.begin_transaction()
        self.producer.send(self.target, value, partition=0)
        self.producer.flush(10)
        self.consumer.unsubscribe()

    def is_fenced_when_it_commits(self) -> bool:
        from kafka.errors import KafkaError

        try:
            self.producer.commit_transaction()
        except KafkaError as e:
            return "Fenced" in type(e).__name__ or "ProducerEpoch" in type(e).__name__
        return False


class AiokafkaPipeline(TransactionalClientBase):
    """aiokafka, or semel under its names: an asyncio client that runs one step at a time."""

    name = "aiokafka"
    module = "aiokafka"
    error_base = "aiokafka.errors"

    def __enter__(self) -> AiokafkaPipeline:
        self.runner = asyncio.Runner()
        self.runner.run(self._start())
        return self

    async def _start(self) -> None:
        api = importlib.import_module(self.module)
        self.consumer = api.AIOKafkaConsumer(
            self.source,
            bootstrap_servers=self.address,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )
        self.producer = api.AIOKafkaProducer(bootstrap_servers=self.address, transactional_id=self.id)
        await self.producer.start()
        await self.consumer.start()

    def __exit__(self, *error: object) -> None:
        try:
            self.runner.run(self._stop())
        finally:
            self.runner.close()

    async def _stop(self) -> None:
        await self.consumer.stop()
        try:
            await asyncio.wait_for(self.producer.stop(), 10)
        except self.errors():
            return  # its transaction cannot end: that is what the test is about

    def errors(self) -> tuple[type[BaseException], ...]:
        return (importlib.import_module(self.error_base).KafkaError, TimeoutError)

    def step(self, abort: bool) -> int:
        return self.runner.run(self._step(abort))

    async def _step(self, abort: bool) -> int:
        found = await self.consumer.getmany(timeout_ms=300, max_records=BATCH)
        if not found:
            return 0
        await self.producer.begin_transaction()
        offsets = {}
        for tp, records in found.items():
            for record in records:
                await self.producer.send(self.target, b"done-" + record.value, partition=record.partition)
            offsets[tp] = records[-1].offset + 1
        if abort:
            await self.producer.abort_transaction()
            self.aborted += 1
            for tp in self.consumer.assignment():
                self.consumer.seek(tp, await self.consumer.committed(tp) or 0)
            return 0
        await self.producer.send_offsets_to_transaction(offsets, self.group)
        await self.producer.commit_transaction()
        return sum(map(len, found.values()))

    def write_and_leave_open(self, value: bytes) -> None:
        async def write() -> None:
            await self.producer.begin_transaction()
            await self.producer.send_and_wait(self.target, value, partition=0)
            self.consumer.unsubscribe()

        self.runner.run(write())

    def is_fenced_when_it_commits(self) -> bool:
        async def commit() -> bool:
            try:
                await self.producer.commit_transaction()
            except self.errors() as e:
                return "Fenced" in type(e).__name__
            return False

        return self.runner.run(commit())


class SemelPipeline(AiokafkaPipeline):
    name = "semel"
    module = "semel.aiokafka"
    error_base = "semel.errors"


TRANSACTIONAL: list[Any] = [ConfluentPipeline, KafkaPythonPipeline, AiokafkaPipeline, SemelPipeline]
