"""One partition of an internal topic that this broker leads: appends records, applies them once stored, reads them.

The records of one id (a group, a transactional id) all lie in one partition of the topic. Java's hash of the id chooses
the partition, so the leader of the partition coordinates the id (`shards`).

A record takes effect once it is stored: below the high watermark. There are two ways to wait for that:

- `append` returns a `JournalAppend`, and the caller awaits `JournalAppend.durable`. Transactional ids and transaction
  groups do this: one id has at most one record under way, and the order among ids does not matter.
- `write` takes callbacks, and the journal calls them in the order of the log, which is what a replay does. Consumer
  groups do this: many commits of one group are under way at once. With a producer the records are part of its
  transaction (KIP-98). The coordinator numbers them, because the producer itself writes nothing to this partition.
"""

from __future__ import annotations

from asyncio import Future, Task, get_running_loop, sleep, wait
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec
from semel_protocol.batch import check_crcs, read_header
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.records import Record, build_batch
from semel_protocol.single_records import build_single
from semel_storage.internal_topics import Row

from semel_broker.partitions.partition import Partition
from semel_broker.world import World

READ_BYTES = 256 << 10
BATCH_BYTES = 512 << 10
"""`write` puts rows beyond this into the next batch."""
ROW_OVERHEAD_BYTES = 32
SEQUENCE_MASK = 0x7FFFFFFF

REFUSALS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""The partition's error -> the coordinator's error. Any other one becomes UNKNOWN_SERVER_ERROR."""


class RecordProducer(msgspec.Struct, frozen=True, gc=False):
    """The producer whose transaction a record is part of."""

    producer_id: int
    producer_epoch: int


class JournalAppend(msgspec.Struct, frozen=True):
    """An append: durable once everything below `end_offset` is."""

    partition: Partition
    end_offset: int

    @property
    def is_durable(self) -> bool:
        return self.partition.high_watermark >= self.end_offset

    async def durable(self) -> None:
        """Return once the append is durable.

        Raises COORDINATOR_NOT_AVAILABLE or NOT_COORDINATOR if this broker stops leading the partition before.
        """
        try:
            await self.partition.committed(self.end_offset)
        except KafkaError as error:
            raise _coordinator_error(error) from error


class AppendedEntry(msgspec.Struct, frozen=True):
    """Rows that `write` has appended. The journal calls `apply` once everything below `end_offset` is durable, or
    `refuse` if that cannot be."""

    end_offset: int
    apply: Callable[[], None]
    refuse: Callable[[Exception], None]
    rows: Sequence[Row] = ()


class Journal:
    """The records of one shard. `passed`: the partition's error that reaches the client unchanged."""

    def __init__(self, world: World, partition: Partition, *, passed: ErrorCode) -> None:
        self.index = partition.index
        self._world = world
        self._partition = partition
        self._passed = passed
        self._pending: deque[AppendedEntry] = deque()
        self._settling: Task[None] | None = None

    def check_room(self) -> None:
        """Raise NOT_COORDINATOR while the disk has no room even for small records: call it before an `append` of
        records that free nothing. `write` checks it itself."""
        try:
            self._partition.check_room()
        except KafkaError as error:
            raise _coordinator_error(error, self._passed) from error

    # --- one append, awaited by its caller ---

    def append(self, rows: Sequence[Row], *, lazily: bool = False) -> JournalAppend:
        """Append `rows` as one batch: the next leader finds all of them or none. `lazily`: no caller waits for it.

        Raises COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, UNKNOWN_SERVER_ERROR or the error `passed`: then the journal
        has appended nothing.
        """
        now_ms = self._world.now_ms()
        if len(rows) == 1:
            batch = build_single(*rows[0], now_ms)
        else:
            batch = build_batch([Record(at, now_ms, key, value) for at, (key, value) in enumerate(rows)])
        try:
            result = self._partition.append(batch, header=read_header(batch), lazily=lazily)
        except KafkaError as error:
            raise _coordinator_error(error, self._passed) from error
        return JournalAppend(self._partition, result.last_offset + 1)

    # --- appends that take effect in the order of the log ---

    @property
    def end_offset(self) -> int:
        """The offset of the next record, if it is written before the next await."""
        return self._partition.end_offset

    def write(
        self,
        rows: Sequence[Row],
        apply: Callable[[], None],
        refuse: Callable[[Exception], None],
        producer: RecordProducer | None = None,
        *,
        in_one_batch: bool = False,
        frees: bool = False,
    ) -> None:
        """Append `rows` now. Call `apply` once they and all rows before them are durable, or `refuse` if that fails.

        Neither is called before this returns, unless the rows are refused or durable at once. With `producer` the rows
        are part of its transaction, which must be open and include the partition. `in_one_batch`: whatever their size,
        the next leader finds all of them or none. `frees`: the rows remove something, so they are written also where
        the disk has no room for small records; rows without any value always are.
        """
        partition, pending = self._partition, self._pending
        try:
            if not frees and any(value is not None for _, value in rows):
                partition.check_room()
            for records in self._portions(rows, (1 << 31) if in_one_batch else BATCH_BYTES):
                batch = bytearray(_batch(records, partition, producer))
                partition.append(batch, header=read_header(batch))
        except KafkaError as error:
            refuse(_coordinator_error(error, self._passed))
            return
        if not pending and partition.high_watermark >= partition.end_offset:
            apply()
            return
        pending.append(AppendedEntry(partition.end_offset, apply, refuse, rows))
        if self._settling is None:
            self._settling = get_running_loop().create_task(self._settle())

    def store(
        self,
        rows: Sequence[Row],
        apply: Callable[[], None],
        producer: RecordProducer | None = None,
        *,
        in_one_batch: bool = False,
        frees: bool = False,
    ) -> Future[None]:
        """`write`, with a future that is done once `apply` was called, or that has the KafkaError of a refusal."""
        done: Future[None] = get_running_loop().create_future()

        def applied() -> None:
            apply()
            _resolve(done)

        self.write(rows, applied, partial(_resolve, done), producer, in_one_batch=in_one_batch, frees=frees)
        return done

    def unsettled_keys(self) -> frozenset[bytes]:
        """The keys of rows that are written and not yet applied: each will have a newer value."""
        return frozenset(key for entry in self._pending for key, _ in entry.rows)

    def settle(self) -> None:
        """Apply the rows that are durable, without waiting for the settling task."""
        _apply_durable(self._pending, self._partition.high_watermark)

    async def flushed(self) -> None:
        """Return once everything written so far is applied or refused."""
        pending = self._pending
        if pending:
            done: Future[None] = get_running_loop().create_future()
            pending.append(AppendedEntry(pending[-1].end_offset, partial(_resolve, done), partial(_release, done)))
            await done

    async def close(self) -> None:
        """Return once everything written is applied or refused."""
        while self._settling is not None:
            await wait((self._settling,))

    # --- reading ---

    async def replay(self, take: Callable[[bytes], int]) -> None:
        """Read everything that is committed now, in portions, with a pause of the event loop after each.

        `take(whole batches)` returns the offset behind them. Raises CorruptBatch, NOT_LEADER_OR_FOLLOWER once this
        broker no longer leads the partition, and what `take` raises.
        """
        partition = self._partition
        offset = partition.log_start_offset
        end = partition.high_watermark
        while offset < end:
            partition.check_leading()
            data = partition.read(offset, bytes_max=READ_BYTES)
            if not data:
                break
            check_crcs(data, f"{partition.topic}-{partition.index}")
            offset = take(data)
            await sleep(0)

    # --- inside ---

    def _portions(self, rows: Sequence[Row], bytes_max: int) -> Iterator[list[Record]]:
        """The rows as records, in portions of one batch each."""
        now_ms = self._world.now_ms()
        records: list[Record] = []
        size = 0
        for key, value in rows:
            row_bytes = len(key) + len(value or b"") + ROW_OVERHEAD_BYTES
            if records and size + row_bytes > bytes_max:
                yield records
                records, size = [], 0
            records.append(Record(len(records), now_ms, key, value))
            size += row_bytes
        yield records

    async def _settle(self) -> None:
        """Apply rows as they become durable, in the order in which they were written. Ends when none is left."""
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
                entry.refuse(_coordinator_error(error, self._passed) if isinstance(error, KafkaError) else error)
            if not isinstance(error, KafkaError):
                raise  # a bug of ours: the loop's exception handler has it logged
        else:
            self._settling = None  # no await since the last look at `pending`: no write was missed


def _apply_durable(pending: deque[AppendedEntry], high_watermark: int) -> None:
    while pending and pending[0].end_offset <= high_watermark:
        pending[0].apply()
        pending.popleft()


def _batch(records: Sequence[Record], partition: Partition, producer: RecordProducer | None) -> bytes:
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
    if done.done():  # the caller is gone
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _release(done: Future[None], _error: Exception) -> None:
    """Resolve a future that waits for an end, not for success."""
    _resolve(done)


def _coordinator_error(error: KafkaError, passed: ErrorCode | None = None) -> KafkaError:
    """The partition's error as a client of the coordinator gets it."""
    code = error.code if error.code is passed else REFUSALS.get(error.code, ErrorCode.UNKNOWN_SERVER_ERROR)
    return KafkaError(code, f"could not store: {error}")
