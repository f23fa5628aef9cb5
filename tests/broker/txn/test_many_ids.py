"""Many transactional ids: the bytes that a start reads, and the bytes that it skips."""

from __future__ import annotations

import asyncio

import pytest
from broker.txn.transaction_broker import TransactionBroker
from semel_broker.topics.topics import Topics
from semel_broker.txn.model import records, state
from semel_broker.txn.model.metadata import TransactionMetadata
from semel_broker.txn.model.records import row_of
from semel_broker.txn.model.requests import End, Init
from semel_broker.txn.shard import LOADED_AT_ONCE
from semel_protocol import single_records
from semel_protocol.batch import read_header
from semel_protocol.hashes import coordinator_partition
from semel_protocol.records import Record, build_batch
from semel_storage.disk.memory_disk import MemoryDisk, MemoryFile
from semel_storage.internal_topics import TRANSACTION_STATE

IDS = 3_000
TRANSACTIONS = 4
RECOVERY_BYTES = 64 << 10
"""The bytes read to open one log after a clean end: both ends, and those to check its history of leader epochs."""


class TransactionReadsDisk(MemoryDisk):
    """Counts the bytes read of segments of `__transaction_state`."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def open(self, path: str) -> MemoryFile:
        file = super().open(path)
        if TRANSACTION_STATE in path and path.endswith(".log"):
            pread = file.pread

            def counted(n: int, at: int) -> bytes:
                data = pread(n, at)
                self.bytes_read += len(data)
                return data

            file.pread = counted  # type: ignore[method-assign]
        return file

    def size_of_journal(self, topics: Topics) -> int:
        return sum(p.log.size for p in topics.partitions() if p.topic == TRANSACTION_STATE)


def past(name: str, producer_id: int, wall_ms: int) -> list[TransactionMetadata]:
    """All stored records of an id that has had some transactions."""
    step = state.init(None, Init(transactional_id=name, timeout_ms=1000), wall_ms, producer_id)
    assert step.then is not None
    stored = [step.then]
    for _ in range(TRANSACTIONS):
        txn = stored[-1]
        for decide in (
            lambda txn: state.add_partitions(txn, txn.identity, [("out", 0)], wall_ms).then,
            lambda txn: state.end(txn, End(producer=txn.identity, commit=True), wall_ms).then,
            lambda txn: state.complete(txn, wall_ms),
        ):
            txn = decide(txn)
            stored.append(txn)
    return stored


@pytest.fixture
async def crowded() -> TransactionBroker:
    """A closed broker with many ids on its disk, one batch for each record."""
    one = TransactionBroker()
    one.disk = TransactionReadsDisk()
    await one.open()
    await one.init()
    for number in range(IDS):
        name = f"worker-{number}"
        partition = one.topics.partition(TRANSACTION_STATE, coordinator_partition(name, 50))
        for txn in past(name, number + 1000, one.wall_ms):
            data = bytearray(build_batch([Record(0, one.wall_ms, *row_of(txn))]))
            partition.append(data, header=read_header(data))
    await one.close()
    return one


async def test_a_start_reads_the_journal_once_and_decodes_each_id_once(
    crowded: TransactionBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = []
    decode = records.decode_versioned
    monkeypatch.setattr(records, "decode_versioned", lambda cls, data: decoded.append(data) or decode(cls, data))
    monkeypatch.delattr(single_records, "decode_columns")  # every batch is of the kind that is read by the thousand
    records._with_tail.cache_clear()
    disk = crowded.disk
    assert isinstance(disk, TransactionReadsDisk)
    disk.bytes_read = 0
    await crowded.open()
    known = await crowded.listing()
    assert len(known) == IDS + 1
    assert {txn.state.label for txn in known} == {"CompleteCommit", "Empty"}
    assert len(decoded) <= 5, "the ids differ in what is read without decoding"
    size = disk.size_of_journal(crowded.topics)
    assert size > 12 * IDS * 100
    assert disk.bytes_read < size + 50 * RECOVERY_BYTES
    await crowded.close()


async def test_the_event_loop_serves_requests_while_ids_are_loaded(crowded: TransactionBroker) -> None:
    await crowded.open(wait=False)
    turns = 0
    while len(crowded.transactions.shards.here()) < 50:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= IDS // LOADED_AT_ONCE + 50, "a pause per partition, and some between the ids"
    await crowded.close()
