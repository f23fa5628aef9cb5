"""The memory of groups on disk: records of `__consumer_offsets`, written in order, applied once durable.

A group's records all lie in one partition of the topic, and a journal is that of one partition. Records are appended at
once (many share a sync), and what they mean takes effect in the order of the log as it becomes durable: exactly what a
replay of the log would do. Offsets that are part of a transaction are written as transactional batches of its producer
(KIP-98), and numbered as it would number them: the producer itself writes nothing here.
"""

from __future__ import annotations

from asyncio import Future, Task, get_running_loop, wait
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec
from semel_protocol.batch import BatchHeader, iterate, read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.records import Record, build_batch

from semel_broker.coordination.coordinator_topic import as_seen_by_clients, replay
from semel_broker.groups.records import Row
from semel_broker.partitions.partition import Partition
from semel_broker.world import World

BATCH_BYTES = 512 << 10
"""Rows beyond this go into the next batch."""
ROW_OVERHEAD_BYTES = 32
SEQUENCE_MASK = 0x7FFFFFFF


class Producer(msgspec.Struct, frozen=True, gc=False):
    """Whose transaction it is."""

    producer_id: int
    producer_epoch: int


class Entry(msgspec.Struct, frozen=True):
    """Rows of one group, written and not yet durable: `apply` once everything below `end_offset` is, or `refuse`."""

    end_offset: int
    apply: Callable[[], None]
    refuse: Callable[[Exception], None]
    rows: Sequence[Row] = ()


class Journal:
    """One partition of `__consumer_offsets`, which this broker leads."""

    def __init__(self, world: World, partition: Partition) -> None:
        self.index = partition.index
        self._world = world
        self._partition = partition
        self._pending: deque[Entry] = deque()
        self._settling: Task[None] | None = None

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets, if it is written in this turn of the loop."""
        return self._partition.end_offset

    def open_producer(self, producer_id: int) -> Producer | None:
        """The producer, if its transaction has written to the partition and has no marker there yet."""
        state = self._partition.log.producers.get(producer_id)
        return Producer(producer_id, state.epoch) if state is not None and state.txn_first_offset >= 0 else None

    def write(
        self,
        rows: Sequence[Row],
        apply: Callable[[], None],
        refuse: Callable[[Exception], None],
        producer: Producer | None = None,
    ) -> None:
        """Append `rows` now; once they and all before them are durable `apply` is called, or `refuse` if they cannot.

        Neither is called before this returns, unless the rows are refused or durable at once. With `producer` they are
        part of its transaction, which must be open and include the partition.
        """
        partition, pending = self._partition, self._pending
        try:
            for records in self._bites(rows):
                batch = bytearray(_batch(records, partition, producer))
                partition.append(batch, header=read_header(batch))
        except KafkaError as error:
            refuse(_as_seen_by_members(error))
            return
        if not pending and partition.high_watermark >= partition.end_offset:
            apply()
            return
        pending.append(Entry(partition.end_offset, apply, refuse, rows))
        if self._settling is None:
            self._settling = get_running_loop().create_task(self._settle())

    def store(self, rows: Sequence[Row], apply: Callable[[], None], producer: Producer | None = None) -> Future[None]:
        """`write`, and a future that is done once it is applied, with the KafkaError of a refusal if it is refused."""
        done: Future[None] = get_running_loop().create_future()

        def applied() -> None:
            apply()
            _resolve(done)

        self.write(rows, applied, partial(_resolve, done), producer)
        return done

    def unsettled_keys(self) -> frozenset[bytes]:
        """The keys of what is written and not yet applied: a newer value is coming."""
        return frozenset(key for entry in self._pending for key, _ in entry.rows)

    def settle(self) -> None:
        """Apply what has become durable, without waiting for the task that is about to."""
        _apply_durable(self._pending, self._partition.high_watermark)

    async def flushed(self) -> None:
        """Return once everything written so far is applied (or refused)."""
        pending = self._pending
        if pending:
            done: Future[None] = get_running_loop().create_future()
            pending.append(Entry(pending[-1].end_offset, partial(_resolve, done), partial(_release, done)))
            await done

    async def replay(self, feed: Callable[[BatchHeader, memoryview], None]) -> None:
        """Hand over all batches, markers included: (header, batch). Raises as `coordinator_topic.replay`."""

        def take(data: bytes) -> int:
            offset = -1
            for header, batch in iterate(data):
                offset = header.next_offset
                feed(header, batch)
            return offset

        await replay(self._partition, take)

    async def close(self) -> None:
        """Return once everything written is applied (or refused)."""
        while self._settling is not None:
            await wait((self._settling,))

    def _bites(self, rows: Sequence[Row]) -> Iterator[list[Record]]:
        """The rows as records, in portions that make a batch each."""
        now_ms = self._world.now_ms()
        records: list[Record] = []
        size = 0
        for key, value in rows:
            row_bytes = len(key) + len(value or b"") + ROW_OVERHEAD_BYTES
            if records and size + row_bytes > BATCH_BYTES:
                yield records
                records, size = [], 0
            records.append(Record(len(records), now_ms, key, value))
            size += row_bytes
        yield records

    async def _settle(self) -> None:
        """Apply what becomes durable, in the order in which it was written. Ends when nothing is left."""
        partition, pending = self._partition, self._pending
        try:
            while pending:
                await partition.committed(pending[-1].end_offset)
                _apply_durable(pending, partition.high_watermark)
        except Exception as error:
            refused = list(pending)
            pending.clear()
            self._settling = None
            for entry in refused:
                entry.refuse(_as_seen_by_members(error))
            if not isinstance(error, KafkaError):
                raise  # a bug of ours: the loop's exception handler has it logged
        else:
            self._settling = None  # in the same turn as the last look at what is pending: no write falls in between


def _apply_durable(pending: deque[Entry], high_watermark: int) -> None:
    while pending and pending[0].end_offset <= high_watermark:
        pending[0].apply()
        pending.popleft()


def _batch(records: Sequence[Record], partition: Partition, producer: Producer | None) -> bytes:
    if producer is None:
        return build_batch(records)
    state = partition.log.producers.get(producer.producer_id)
    goes_on = state is not None and state.epoch == producer.producer_epoch
    return build_batch(
        records,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=(state.last_sequence + 1) & SEQUENCE_MASK if state is not None and goes_on else 0,
        is_transactional=True,
    )


def _resolve(done: Future[None], error: Exception | None = None) -> None:
    if done.done():  # whoever waited has gone
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _release(done: Future[None], _error: Exception) -> None:
    """For those who wait for an end, not for success."""
    _resolve(done)


def _as_seen_by_members(error: Exception) -> Exception:
    return as_seen_by_clients(error, ErrorCode.INVALID_PRODUCER_EPOCH) if isinstance(error, KafkaError) else error
