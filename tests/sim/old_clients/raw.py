"""A producer that sends raw requests as clients of transaction version 1 do (or, for comparison, of version 2).

After a request's timeout it closes the connection, opens another one, and sends again or gives up. The bytes on the
closed connection may still arrive.
"""

from __future__ import annotations

import asyncio
from typing import Any

from broker.transactional import TransactionalProducer
from broker.wire import Wire
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k00_produce import ProduceRequest
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest
from semel_protocol.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
from semel_protocol.schema import Message

from sim.history import Recorder
from sim.old_clients.cases import ADD, ADD_OFFSETS, END, OFFSETS, PRODUCE, LateRequestCase, OldTransaction
from sim.old_clients.slots import REQUEST_MS, TimeSlots

OUTPUT, INPUT, GROUP, ID = "out", "in", "g", "old"
TIMEOUT_MS = 8_000
AGAIN_S = 0.01
BUSY = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS)
LOST = (TimeoutError, ConnectionError, asyncio.IncompleteReadError)


class GaveUp(Exception):  # noqa: N818 (the name says the event)
    """No answer came in time and the client does not repeat the request, or the request was refused."""


class Connections:
    """The connections of a client, with the interface of the single connection that `TransactionalProducer` expects.

    `insists`: a request without an answer is sent again.
    """

    def __init__(self, address: tuple[str, int], *, by_role: bool) -> None:
        self.insists = True
        self._address, self._by_role = address, by_role
        self._open: dict[str, Wire] = {}

    async def call(self, request: Message, version: int | None = None) -> Any:
        """Raise GaveUp."""
        role = _role_of(request) if self._by_role else ""
        while True:
            try:
                async with asyncio.timeout(REQUEST_MS / 1000):
                    if role not in self._open:
                        self._open[role] = Wire(*await asyncio.open_connection(*self._address))
                    return await self._open[role].call(request, version)
            except LOST:
                if role in self._open:
                    self._open.pop(role).writer.close()
                if not self.insists:
                    raise GaveUp("no answer") from None

    def close(self) -> None:
        for wire in self._open.values():
            wire.writer.close()


def _role_of(request: Message) -> str:
    if isinstance(request, ProduceRequest):
        return "partitions"
    return "group" if isinstance(request, TxnOffsetCommitRequest) else "transactions"


class RawProducer:
    """Runs a case step by step and records the answers. `refused`: the requests that failed."""

    def __init__(self, case: LateRequestCase, address: tuple[str, int], slots: TimeSlots, recorder: Recorder) -> None:
        self.refused: list[str] = []
        self._case, self._slots, self._recorder = case, slots, recorder
        self._address = address
        self._connections = Connections(address, by_role=case.by_role)
        self._version = 2 if case.client == "version 2" else 1
        self._count = 0
        self._must_bump = False
        self._wire: TransactionalProducer = TransactionalProducer(self._connections, self._version, ID)  # type: ignore[arg-type]

    async def run(self) -> None:
        try:
            await self._initialize()
            for number, transaction in enumerate(self._case.transactions):
                await self._transaction(transaction, is_first=number == 0)
                await self._slots.look(f"{self._address[0]}:{self._address[1]}", GROUP, self._recorder)
        except GaveUp as error:
            self.refused.append(f"{error}: ends")
        self._connections.close()

    async def _initialize(self) -> None:
        """Get a new epoch; of the same producer id (KIP-360) if it has one."""
        wire, since_ms = self._wire, self._recorder.history.now_ms()
        request = InitProducerIdRequest(
            transactional_id=ID,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=wire.producer_id,
            producer_epoch=wire.epoch,
        )
        response = await self._connections.call(request, 4)
        self._check("InitProducerId", response.error_code)
        wire.producer_id, wire.epoch = response.producer_id, response.producer_epoch
        wire._sequences.clear()
        self._must_bump = False
        self._recorder.initialized(
            ID, since_ms=since_ms, producer_id=response.producer_id, producer_epoch=response.producer_epoch
        )

    async def _transaction(self, transaction: OldTransaction, *, is_first: bool) -> None:
        """Raise GaveUp when the producer is useless."""
        if self._must_bump:
            await self._initialize()
        txn = self._recorder.beginning(ID)
        commits = transaction.commits
        failed = False
        for step in transaction.steps:
            await self._slots.next()
            if failed and step != END:
                continue
            is_held = is_first and step == self._case.held
            if is_held:
                self._slots.hold(step, self._case.arrives)
            self._connections.insists = not (is_held and self._case.gives_up)
            try:
                if step == END:
                    await self._end(txn, commit=commits and not failed)
                else:
                    await self._step(step, transaction, txn)
            except GaveUp as error:
                if step == END:
                    raise
                self.refused.append(f"{step}: {error}")
                failed = True
                self._must_bump = self._case.client == "bumps its epoch"
            finally:
                self._connections.insists = True

    async def _step(self, step: str, transaction: OldTransaction, txn: int) -> None:
        wire = self._wire
        if step == PRODUCE:
            for partition in transaction.partitions:
                await self._produce(partition, txn)
        elif step == OFFSETS:
            self._count += 1
            offsets = dict.fromkeys(transaction.inputs, self._count)
            asked = self._recorder.committing_offsets(
                GROUP, {(INPUT, partition): offset for partition, offset in offsets.items()}, txn=txn
            )
            version = 5 if self._version == 2 else 3
            codes = await self._again(lambda: wire.commit_offsets(offsets, version=version, topic=INPUT))
            self._check(step, codes)
            self._recorder.offsets_committed(asked)
        elif self._version == 1:
            if step == ADD:
                self._check(step, await self._again(lambda: wire.add(OUTPUT, *transaction.partitions)))
            elif step == ADD_OFFSETS:
                self._check(step, await self._again(lambda: wire.add_group(GROUP)))

    async def _produce(self, partition: int, txn: int) -> None:
        self._count += 1
        value = f"{self._recorder.client}:{self._count}"
        op = self._recorder.sending(OUTPUT, partition, value=value, txn=txn)
        before = dict(self._wire._sequences)
        request = self._wire.produce_request(OUTPUT, value.encode(), partition=partition)
        try:
            row = await self._again(lambda: self._wire.send(request))
            self._check(PRODUCE, row.error_code)
        except GaveUp as error:
            self._recorder.not_stored(op, str(error))
            if self._case.reuses:
                self._wire._sequences = before
            raise
        self._recorder.stored(op, partition, row.base_offset)

    async def _end(self, txn: int, *, commit: bool) -> None:
        if commit:
            self._recorder.committing(txn)
        self._check(END, await self._again(lambda: self._wire.end(commit)))
        if commit:
            self._recorder.committed(txn)
        else:
            self._recorder.aborted(txn)

    async def _again(self, ask: Any) -> Any:
        """The first answer without a retriable error; the request is repeated until then."""
        while True:
            answer = await ask()
            code = answer if isinstance(answer, int) else getattr(answer, "error_code", None)
            if (max(answer) if isinstance(answer, list) else code) not in BUSY:
                return answer
            await asyncio.sleep(AGAIN_S)

    def _check(self, what: str, codes: int | list[int]) -> None:
        code = max(codes) if isinstance(codes, list) else codes
        if code:
            raise GaveUp(f"{what} was refused with {ErrorCode(code).name}")
