"""A client of a scenario with confluent-kafka: librdkafka, which uses transaction version 1."""

from __future__ import annotations

import asyncio
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from faults.actor import SESSION_MS, Actor, ActorOptions

FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
TIMEOUT = ("_TIMED_OUT", "_MSG_TIMED_OUT", "_TIMED_OUT_QUEUE")


class ConfluentActor(Actor):
    """An actor with confluent-kafka. Blocking calls run in a thread, because they would block the event loop."""

    errors = (KafkaException,)

    def __init__(self, settings: ActorOptions) -> None:
        super().__init__(settings)
        self._producer: Any = None
        self._consumer: Any = None

    def outcome_of(self, error: Exception) -> str:
        cause = error.args[0]
        if cause.name() in FENCED:
            return "fenced"
        if cause.txn_requires_abort():
            return "failed"
        if cause.name() in TIMEOUT:
            return "timeout"
        return "unavailable" if cause.name() == "_TRANSPORT" else "refused"

    async def _start(self) -> None:
        await asyncio.to_thread(self._start_now)

    def _start_now(self) -> None:
        settings = self.settings
        patience_ms = round(settings.patience_s * 1000)
        common = {
            "bootstrap.servers": settings.bootstrap,
            "client.id": settings.name,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            # Otherwise librdkafka 2.16 drops its only broker when the connection breaks, and a TxnOffsetCommit waits
            # for the dropped broker handle until the call times out.
            "metadata.recovery.strategy": "none",
        }
        transactional: dict[str, Any] = {"enable.idempotence": True, "message.timeout.ms": patience_ms * 2}
        if settings.transactional_id is not None:
            transactional = {
                "transactional.id": settings.transactional_id,
                "transaction.timeout.ms": settings.timeout_ms,
                "message.timeout.ms": min(settings.timeout_ms, patience_ms * 2),
            }
        self._producer = Producer({**common, **transactional, "linger.ms": 1, "socket.timeout.ms": patience_ms})
        if settings.transactional_id is not None:
            self._producer.init_transactions(settings.patience_s)
        if settings.group is not None:
            self._consumer = Consumer(
                {
                    **common,
                    "group.id": settings.group,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "session.timeout.ms": SESSION_MS,
                    "heartbeat.interval.ms": SESSION_MS // 10,
                }
            )
            self._consumer.subscribe([settings.topic])

    async def begin(self) -> None:
        self._producer.begin_transaction()

    async def send(self, topic: str, partition: str, *values: str) -> None:
        await asyncio.to_thread(self._send, topic, int(partition), values)

    def _send(self, topic: str, partition: int, values: tuple[str, ...]) -> None:
        failed: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)

        for value in values:
            self._producer.produce(topic, value.encode(), partition=partition, on_delivery=delivered)
        self._producer.flush(self.settings.patience_s * 3)
        if failed:
            raise KafkaException(failed[0])

    async def put(self, topic: str, partition: str, *values: str) -> None:
        for value in values:
            self._producer.produce(topic, value.encode(), partition=int(partition))

    async def read(self, *values: str) -> None:
        await asyncio.to_thread(self._read, values)

    def _read(self, values: tuple[str, ...]) -> None:
        found: list[str] = []
        while len(found) < len(values):
            message = self._consumer.poll(self.settings.patience_s)
            if message is None:
                break
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append((message.value() or b"").decode())
        self.check_read(found, values)

    async def offsets(self, group: str, topic: str, partition: str, offset: str) -> None:
        outsider = Consumer({"bootstrap.servers": self.settings.bootstrap, "group.id": group})
        place = TopicPartition(topic, int(partition), int(offset))
        try:
            await asyncio.to_thread(
                self._producer.send_offsets_to_transaction,
                [place],
                outsider.consumer_group_metadata(),
                self.settings.patience_s,
            )
        finally:
            outsider.close()

    async def positions(self) -> None:
        places = self._consumer.position(self._consumer.assignment())
        await asyncio.to_thread(
            self._producer.send_offsets_to_transaction,
            places,
            self._consumer.consumer_group_metadata(),
            self.settings.patience_s,
        )

    async def commit(self) -> None:
        await asyncio.to_thread(self._producer.commit_transaction, self.settings.patience_s)

    async def abort(self) -> None:
        await asyncio.to_thread(self._producer.abort_transaction, self.settings.patience_s)

    async def close(self) -> None:
        if self._consumer is not None:
            await asyncio.to_thread(self._consumer.close)
        await asyncio.to_thread(self._producer.flush, self.settings.patience_s)
