"""A client of a scenario with semel's client library."""

from __future__ import annotations

import asyncio
from typing import Any

from semel import Consumer, Producer, TopicPartition
from semel.errors import (
    AbortableError,
    CommitFailedError,
    InvalidProducerEpoch,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFenced,
    TransactionWasCommitted,
)

from faults.actor import SESSION_MS, Actor, ActorOptions

OUTCOMES: tuple[tuple[type[KafkaError], str], ...] = (
    (ProducerFenced, "fenced"),
    (InvalidProducerEpoch, "fenced"),
    (TransactionWasCommitted, "committed"),
    (CommitFailedError, "failed"),
    (AbortableError, "failed"),
    (KafkaTimeoutError, "timeout"),
    (KafkaConnectionError, "unavailable"),
)


class SemelActor(Actor):
    errors = (KafkaError,)

    def __init__(self, settings: ActorOptions) -> None:
        super().__init__(settings)
        patience_ms = round(settings.patience_s * 1000)
        self._common: dict[str, Any] = {
            "bootstrap_servers": settings.bootstrap,
            "client_id": settings.name,
            "request_timeout_ms": patience_ms,
            "bootstrap_timeout_ms": patience_ms,
            "retry_backoff_ms": 50,
            "reconnect_backoff_ms": 50,
        }
        self._patience_ms = patience_ms
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    def outcome_of(self, error: Exception) -> str:
        return next((word for kind, word in OUTCOMES if isinstance(error, kind)), "refused")

    async def _start(self) -> None:
        self._producer = Producer(
            **self._common,
            max_block_ms=self._patience_ms,
            delivery_timeout_ms=self._patience_ms * 2,
            transactional_id=self.settings.transactional_id,
            transaction_timeout_ms=self.settings.timeout_ms,
        )
        await self._producer.start()
        if self.settings.group is not None and self.settings.topic is not None:
            self._consumer = Consumer(
                self.settings.topic,
                **self._common,
                group_id=self.settings.group,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                fetch_max_wait_ms=min(500, self._patience_ms // 2),
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=SESSION_MS // 10,
            )
            await self._consumer.start()

    @property
    def producer(self) -> Producer:
        assert self._producer is not None
        return self._producer

    @property
    def consumer(self) -> Consumer:
        assert self._consumer is not None, "a client that reads has a group and a topic"
        return self._consumer

    async def begin(self) -> None:
        await self.producer.begin_transaction()

    async def send(self, topic: str, partition: str, *values: str) -> None:
        sent = [await self.producer.send(topic, value.encode(), partition=int(partition)) for value in values]
        for outcome in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def put(self, topic: str, partition: str, *values: str) -> None:
        for value in values:
            future = await self.producer.send(topic, value.encode(), partition=int(partition))
            future.add_done_callback(lambda done: done.cancelled() or done.exception())  # the commit reports the error

    async def read(self, *values: str) -> None:
        found: list[str] = []
        try:
            async with asyncio.timeout(self.settings.patience_s):
                while len(found) < len(values):
                    found.append(((await self.consumer.getone()).value or b"").decode())
        except TimeoutError:
            pass  # `check_read` reports the missing records
        self.check_read(found, values)

    async def offsets(self, group: str, topic: str, partition: str, offset: str) -> None:
        await self.producer.send_offsets_to_transaction({TopicPartition(topic, int(partition)): int(offset)}, group)

    async def positions(self) -> None:
        places = sorted(self.consumer.assignment())
        positions = {place: await self.consumer.position(place) for place in places}
        await self.producer.send_offsets_to_transaction(positions, self.consumer.group_metadata())

    async def commit(self) -> None:
        await self.producer.commit_transaction()

    async def abort(self) -> None:
        await self.producer.abort_transaction()

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()
        await self.producer.stop()
