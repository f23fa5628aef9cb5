"""The same cases with semel's own client, which sends, asks again and gives up as it does for everybody."""

from __future__ import annotations

import asyncio
from typing import Any

from semel import Producer, TopicPartition
from semel.errors import KafkaError, TransactionWasCommitted

from sim.old_clients.cases import ADD, ADD_OFFSETS, END, OFFSETS, PRODUCE, Case, Transaction
from sim.old_clients.raw import GROUP, ID, INPUT, OUTPUT, TIMEOUT_MS, GaveUp
from sim.old_clients.slots import REQUEST_MS, Slots
from sim.workloads.base import Desk, stop
from sim.workloads.pen import Pen

SENT_BY = {ADD: PRODUCE, ADD_OFFSETS: OFFSETS}
"""Requests that the client sends by itself, with the call that leads to them."""


class OurProducer:
    """As `RawProducer`. A transaction whose call failed is aborted; a producer that cannot is made anew."""

    def __init__(self, case: Case, desk: Desk, slots: Slots) -> None:
        self.refused: list[str] = []
        self._case, self._desk, self._slots = case, desk, slots
        self._witness = desk.history.witness("looker")
        self._pen: Pen | None = None
        self._count = 0

    async def run(self) -> None:
        for number, transaction in enumerate(self._case.transactions):
            await self._transaction(transaction, is_first=number == 0)
            await self._slots.look(self._desk.bootstrap_servers, GROUP, self._witness)
        if self._pen is not None:
            await stop(self._pen.producer)

    async def _opened(self) -> Pen:
        """In a case where it gives up, it does so as soon as one request has had no answer."""
        if self._pen is None:
            patience: dict[str, Any] = {}
            if self._case.gives_up:
                patience = {"delivery_timeout_ms": REQUEST_MS + 20, "max_block_ms": REQUEST_MS + 20}
            self._pen = Pen(
                self._desk,
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
            await self._pen.start()
        return self._pen

    async def _transaction(self, transaction: Transaction, *, is_first: bool) -> None:
        pen = await self._opened()
        txn = pen.witness.beginning(ID)
        failed = False
        try:
            await pen.producer.begin_transaction()
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
                    await self._end(pen, txn, commit=transaction.commits and not failed)
                else:
                    await self._step(pen, step, transaction, txn)
            except (KafkaError, GaveUp) as error:
                self.refused.append(f"{step}: {error}")
                failed = True
                if step == END:
                    await stop(pen.producer)
                    self._pen = None

    async def _step(self, pen: Pen, step: str, transaction: Transaction, txn: int) -> None:
        if step == PRODUCE:
            sent = [await pen.send(OUTPUT, partition, txn=txn) for partition in transaction.partitions]
            for future in sent:
                await asyncio.wait([future])
                future.result()
        elif step == OFFSETS:
            self._count += 1
            offsets = {TopicPartition(INPUT, partition): self._count for partition in transaction.inputs}
            asked = pen.witness.committing_offsets(GROUP, offsets, txn=txn)
            await pen.producer.send_offsets_to_transaction(offsets, GROUP)
            pen.witness.offsets_committed(asked)

    async def _end(self, pen: Pen, txn: int, *, commit: bool) -> None:
        producer: Producer = pen.producer
        if commit:
            pen.witness.committing(txn)
            await producer.commit_transaction()
            pen.witness.committed(txn)
            return
        try:
            await producer.abort_transaction()
            pen.witness.aborted(txn)
        except TransactionWasCommitted:
            pen.witness.committed(txn)
