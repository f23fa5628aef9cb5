"""The same cases with semel's own client, with its usual retries and timeouts."""

from __future__ import annotations

import asyncio
from typing import Any

from semel import Producer, TopicPartition
from semel.errors import KafkaError, TransactionWasCommitted

from sim.old_clients.cases import ADD, ADD_OFFSETS, END, OFFSETS, PRODUCE, LateRequestCase, OldTransaction
from sim.old_clients.raw import GROUP, ID, INPUT, OUTPUT, TIMEOUT_MS, GaveUp
from sim.old_clients.slots import REQUEST_MS, TimeSlots
from sim.workloads.base import ClientContext, stop
from sim.workloads.recording_producer import RecordingProducer

SENT_BY = {ADD: PRODUCE, ADD_OFFSETS: OFFSETS}
"""Requests that the client sends by itself, and the call that causes them."""


class OurProducer:
    """As `RawProducer`. It aborts a transaction after a failed call, and replaces the producer if the abort fails."""

    def __init__(self, case: LateRequestCase, context: ClientContext, slots: TimeSlots) -> None:
        self.refused: list[str] = []
        self._case, self._context, self._slots = case, context, slots
        self._recorder = context.history.recorder("looker")
        self._writer: RecordingProducer | None = None
        self._count = 0

    async def run(self) -> None:
        for number, transaction in enumerate(self._case.transactions):
            await self._transaction(transaction, is_first=number == 0)
            await self._slots.look(self._context.bootstrap_servers, GROUP, self._recorder)
        if self._writer is not None:
            await stop(self._writer.producer)

    async def _opened(self) -> RecordingProducer:
        """If the case gives up, the timeouts end the call as soon as one request has had no answer."""
        if self._writer is None:
            patience: dict[str, Any] = {}
            if self._case.gives_up:
                patience = {"delivery_timeout_ms": REQUEST_MS + 20, "max_block_ms": REQUEST_MS + 20}
            self._writer = RecordingProducer(
                self._context,
                ID,
                {
                    "transactional_id": ID,
                    "transaction_timeout_ms": TIMEOUT_MS,
                    "request_timeout_ms": REQUEST_MS,
                    "retry_backoff_ms": 5,
                    "linger_ms": 0,
                    **patience,
                },
            )
            await self._writer.start()
        return self._writer

    async def _transaction(self, transaction: OldTransaction, *, is_first: bool) -> None:
        writer = await self._opened()
        txn = writer.recorder.beginning(ID)
        failed = False
        try:
            await writer.producer.begin_transaction()
        except KafkaError as error:
            self.refused.append(f"begin: {error}")
            failed = True
        for step in transaction.steps:
            await self._slots.next()
            if failed and step != END:
                continue
            held = self._case.held
            if is_first and SENT_BY.get(held, held) == step:
                self._slots.hold(held, self._case.arrives)
            try:
                if step == END:
                    await self._end(writer, txn, commit=transaction.commits and not failed)
                else:
                    await self._step(writer, step, transaction, txn)
            except (KafkaError, GaveUp) as error:
                self.refused.append(f"{step}: {error}")
                failed = True
                if step == END:
                    await stop(writer.producer)
                    self._writer = None

    async def _step(self, writer: RecordingProducer, step: str, transaction: OldTransaction, txn: int) -> None:
        if step == PRODUCE:
            sent = [await writer.send(OUTPUT, partition, txn=txn) for partition in transaction.partitions]
            for future in sent:
                await asyncio.wait([future])
                future.result()
        elif step == OFFSETS:
            self._count += 1
            offsets = {TopicPartition(INPUT, partition): self._count for partition in transaction.inputs}
            asked = writer.recorder.committing_offsets(GROUP, offsets, txn=txn)
            await writer.producer.send_offsets_to_transaction(offsets, GROUP)
            writer.recorder.offsets_committed(asked)

    async def _end(self, writer: RecordingProducer, txn: int, *, commit: bool) -> None:
        producer: Producer = writer.producer
        if commit:
            writer.recorder.committing(txn)
            await producer.commit_transaction()
            writer.recorder.committed(txn)
            return
        try:
            await producer.abort_transaction()
            writer.recorder.aborted(txn)
        except TransactionWasCommitted:
            writer.recorder.committed(txn)
