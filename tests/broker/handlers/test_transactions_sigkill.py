"""A broker process killed at random moments during transactions: none is torn, lost or done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

import pytest
from broker.transactional import TransactionalProducer
from broker.wire import Wire, fetch_request, headers_of, records_of
from semel_protocol.control import ControlType, read_marker
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k01_fetch import FetchResponsePartition
from support.processes import BrokerProcess

pytestmark = pytest.mark.real_time

KILLS = 4
LOST = (ConnectionError, asyncio.IncompleteReadError)


@pytest.mark.parametrize(("version", "durability"), [(1, "os"), (2, "fsync")])
def test_sigkill_leaves_every_transaction_whole_and_once(tmp_path: Path, version: int, durability: str) -> None:
    broker = BrokerProcess(tmp_path / "data", durability=durability).start()
    try:
        asyncio.run(run(broker, Random(f"{version} {durability}"), version))
    finally:
        broker.kill()


class TransactionWriter:
    """Writes consecutive numbers to both partitions of `out`, each in a transaction. Every third is aborted."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.number = 0
        self.committed: list[bytes] = []
        self.producer: TransactionalProducer | None = None
        self.ending: bool | None = None  # the unanswered EndTxn: commit or abort

    async def connect(self, wire: Wire) -> None:
        """Reconnect the producer and repeat an unanswered EndTxn."""
        if self.producer is not None and self.ending is not None:
            self.producer.wire = wire
            assert await self.producer.end(self.ending) == ErrorCode.NONE, "the decision, or the question, survived"
            self.ended()
        else:  # abort the open transaction
            self.producer = await TransactionalProducer(wire, self.version).init()

    def ended(self) -> None:
        if self.ending:
            self.committed.append(b"%d" % self.number)
        self.ending = None

    async def work(self, rounds: int, then: Callable[[], object]) -> None:
        """Run until the broker is killed. Calls `then` after `count` transactions."""
        producer = self.producer
        assert producer is not None
        for done in count():
            if done == rounds:
                then()
            self.number += 1
            for partition in (0, 1):
                row = await producer.produce("out", b"%d" % self.number, partition=partition)
                assert row.error_code == ErrorCode.NONE, row
            self.ending = self.number % 3 != 0
            assert await producer.end(self.ending) == ErrorCode.NONE
            self.ended()


async def run(broker: BrokerProcess, rng: Random, version: int) -> None:
    worker = TransactionWriter(version)
    wire = await Wire.connect(broker.port)
    await wire.create_topic("out", 2)
    loop = asyncio.get_running_loop()
    for kill in range(KILLS):
        killing: list[asyncio.TimerHandle] = []

        def soon(killing: list[asyncio.TimerHandle] = killing) -> None:
            killing.append(loop.call_later(rng.uniform(0, 0.03), broker.kill))

        if kill % 2:  # at any point, perhaps at the start
            killing.append(loop.call_later(rng.uniform(0.02, 0.25), broker.kill))
        try:
            await worker.connect(wire)
            await worker.work(rng.randrange(6, 14), soon)
        except LOST:
            for timer in killing:
                timer.cancel()
        await wire.close()
        broker.kill()
        broker.start()
        wire = await Wire.connect(broker.port)
    await worker.connect(wire)
    assert len(worker.committed) > KILLS
    for partition in (0, 1):
        assert await read_committed(wire, partition) == worker.committed
    await wire.close()


async def read_committed(wire: Wire, partition: int) -> list[bytes | None]:
    """Every committed value, filtered as a client does. No transaction may be undecided."""
    values: list[bytes | None] = []
    offset = 0
    while True:
        request = fetch_request("out", offset, partition=partition, isolation_level=1, max_wait_ms=0)
        row: FetchResponsePartition = (await wire.call(request)).responses[0].partitions[0]
        assert row.error_code == 0
        assert row.last_stable_offset == row.high_watermark
        if not row.records:
            return values
        values += committed_values(row)
        offset = headers_of(row.records)[-1].next_offset


def committed_values(row: FetchResponsePartition) -> list[bytes | None]:
    assert row.records is not None
    starts = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ())
    aborting: dict[int, None] = {}
    values: list[bytes | None] = []
    at = 0
    for header in headers_of(row.records):
        data = row.records[at : at + header.size]
        at += header.size
        while starts and starts[0][0] <= header.last_offset:
            aborting[starts.pop(0)[1]] = None
        if header.is_control:
            marker = read_marker(data, header)
            if marker is not None and marker.control_type is ControlType.ABORT:
                aborting.pop(header.producer_id, None)
        elif header.producer_id not in aborting:
            values += [record.value for record in records_of(data)]
    return values
