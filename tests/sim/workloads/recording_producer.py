"""A Producer that records its actions in the history."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from semel import Producer
from semel.errors import KafkaError, KafkaTimeoutError
from semel.structs import GroupStep, RecordMetadata

from sim.events import NO_TXN
from sim.workloads.base import ClientContext, raise_unexpected

PAUSE_S = 0.2
PADDING = b"padding " * 512


class RecordingProducer:
    """One producer from its start to its end. Its values are its name and a number, so each is unique.

    It has one more setting: `pad_bytes`, the bytes of a header that makes each record larger.
    """

    def __init__(self, context: ClientContext, name: str, settings: dict[str, Any]) -> None:
        self.recorder = context.history.recorder(name)
        settings = dict(settings)
        pad_bytes: int = settings.pop("pad_bytes", 0)
        self._headers = [("pad", PADDING[:pad_bytes])] if pad_bytes else []
        self.producer = Producer(**context.settings(client_id=name, **settings))
        self._acks: int = -1 if settings.get("acks", "all") == "all" else settings["acks"]
        self._idempotent: bool = settings.get("enable_idempotence", True)
        self._transactional_id: str | None = settings.get("transactional_id")
        self._count = 0
        self._now_ms = context.history.now_ms

    async def start(self) -> None:
        """Raise KafkaError."""
        since_ms = self._now_ms()
        await self.producer.start()
        if self._transactional_id is not None:
            producer_id, epoch = identity_of(self.producer)
            self.recorder.initialized(
                self._transactional_id, since_ms=since_ms, producer_id=producer_id, producer_epoch=epoch
            )

    async def join(self, step: GroupStep) -> None:
        """As `start`, in another step of the transaction group. Raises KafkaError."""
        assert self._transactional_id is not None
        since_ms = self._now_ms()
        await self.producer.join(step)
        producer_id, epoch = identity_of(self.producer)
        self.recorder.initialized(
            self._transactional_id, since_ms=since_ms, producer_id=producer_id, producer_epoch=epoch
        )

    def drop_padding(self) -> None:
        """Send records without padding from now on, so that they fit into all limits."""
        self._headers.clear()

    def new_value(self) -> str:
        self._count += 1
        return f"{self.recorder.client}:{self._count}"

    async def send(
        self,
        topic: str,
        partition: int,
        *,
        key: str | None = None,
        value: str | None = "",
        txn: int = NO_TXN,
        made_from: str | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Send a record with a unique value (or None: a tombstone) to a partition; -1: the partition of its key.

        Raises KafkaError.
        """
        if value == "":
            value = self.new_value()
        op = self.recorder.sending(
            topic, partition, value=value, key=key, txn=txn, acks=self._acks, idempotent=self._idempotent,
            made_from=made_from,
        )  # fmt: skip
        try:
            future = await self.producer.send(
                topic,
                None if value is None else value.encode(),
                None if key is None else key.encode(),
                None if partition < 0 else partition,
                headers=self._headers,
            )
        except KafkaError as error:
            self.recorder.not_stored(op, str(error), is_certain=True)
            raise
        future.add_done_callback(partial(self._outcome, op))
        return future

    def _outcome(self, op: int, future: asyncio.Future[RecordMetadata]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            place = future.result()
            self.recorder.stored(op, place.partition, place.offset)
        else:
            is_certain = isinstance(error, KafkaTimeoutError) and "(not stored)" in str(error)
            self.recorder.not_stored(op, str(error), is_certain=is_certain)


async def opened(context: ClientContext, name: str, settings: dict[str, Any]) -> RecordingProducer:
    """A started producer, after as many attempts as needed."""
    while True:
        writer = RecordingProducer(context, name, settings)
        try:
            await writer.start()
            return writer
        except KafkaError as error:
            raise_unexpected(error)
            await asyncio.sleep(PAUSE_S)


def identity_of(producer: Producer) -> tuple[int, int]:
    """The producer id and epoch of a transactional producer, from its private state."""
    assert producer._started is not None
    assert producer._started.manager is not None
    return producer._started.manager.producer_id, producer._started.manager.producer_epoch
