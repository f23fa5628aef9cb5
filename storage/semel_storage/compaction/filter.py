"""PURE: decides which records of a batch compaction keeps.

A batch keeps its base offset, last offset delta, producer id, epoch, base sequence and leader epoch, whatever records
it loses. So offsets never change, and retries are still recognised.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec
from semel_protocol.batch import BatchHeader, CorruptBatch, crc_ok
from semel_protocol.control import ControlType, read_marker
from semel_protocol.record_columns import Columns, decode_columns
from semel_protocol.records import Record, rebuild_batch

from semel_storage.compaction.pace import Pace
from semel_storage.producers.producers import ProducerState
from semel_storage.producers.transactions import AbortedTransaction

DIGEST_BYTES = 16
BYTES_PER_KEY = 160
"""Memory of one key in the map: its digest, an integer and their slot (64-bit CPython)."""
RECORD_COST_BYTES = 64
BATCH_COST_BYTES = 1024
"""The cost of one record and one batch besides their bytes, in the unit of `Pace`."""
ROWS_PER_STEP = 1024
"""Records of one batch that are processed without a pause."""
INFLATED_BYTES_MAX = 256 << 20
RECORDS_MAX = 1_000_000
"""Limit on the records of one batch."""


class OffsetMap:
    """The offset of the last record of each key, for all records below `end_offset`.

    Stores a 128-bit digest instead of the key, so that the number of keys bounds its memory. BLAKE2, because a client
    that can create two keys of one digest could make compaction remove another client's value.
    """

    __slots__ = ("_offsets", "end_offset", "keys_max")

    def __init__(self, keys_max: int) -> None:
        assert keys_max > 0, "an offset map without room cannot make progress"
        self.keys_max = keys_max
        self.end_offset = 0
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room(self, count: int) -> bool:
        """Whether `count` more keys certainly fit. An empty map takes any batch, so that each round makes progress."""
        return not self._offsets or len(self._offsets) + count <= self.keys_max

    def put(self, key: bytes, offset: int) -> None:
        """Add a record. Records are added in offset order."""
        self._offsets[blake2b(key, digest_size=DIGEST_BYTES).digest()] = offset

    def is_latest(self, key: bytes, offset: int) -> bool:
        """Whether no later record of this key is known."""
        return offset >= self._offsets.get(blake2b(key, digest_size=DIGEST_BYTES).digest(), -1)


class TransactionFates:
    """Follows compaction through the log and decides which transactional batches and which markers can be removed.

    Batches of an aborted transaction can always be removed. A marker must stay while a batch of its transaction is in
    the log: without the marker, the transaction would look open. `expect` gets the aborted transactions of each range
    before its batches.
    """

    def __init__(self) -> None:
        self._coming: list[AbortedTransaction] = []
        self.known_below = -1
        """`expect` has covered the offsets below this one."""
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """Producer id -> its aborted transaction that is open here, and whether a batch of it was seen."""
        self._committed: dict[int, None] = {}
        """Producer ids of transactions that are open here and commit, and have a batch that was seen."""
        self.just_aborted: AbortedTransaction | None = None
        """The transaction that the last batch aborted, if it must stay in the transaction index."""

    def expect(self, aborted: Sequence[AbortedTransaction], below: int) -> None:
        """The next batches are below offset `below`; `aborted`: all aborted transactions that overlap this range."""
        new = [each for each in aborted if each.first_offset >= self.known_below]
        self._coming = sorted([*self._coming, *new], key=lambda each: each.first_offset, reverse=True)
        self.known_below = below

    def can_discard(self, header: BatchHeader, data: memoryview) -> bool:
        """Whether the next batch is aborted data, or a marker without remaining batches. Raises CorruptBatch."""
        self.just_aborted = None
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            aborted = self._coming.pop()
            self._aborted[aborted.producer_id] = (aborted, False)
        producer_id = header.producer_id
        if header.is_control:
            return self._can_discard_marker(header, data)
        if not header.is_transactional:
            return False
        if producer_id in self._aborted:
            self._aborted[producer_id] = (self._aborted[producer_id][0], True)
            return True
        self._committed[producer_id] = None
        return False

    def _can_discard_marker(self, header: BatchHeader, data: memoryview) -> bool:
        if header.record_count == 0:
            return True
        marker = read_marker(data, header)
        if marker is None:
            return False
        if marker.control_type is ControlType.ABORT:
            aborted, had_data = self._aborted.pop(header.producer_id, (None, False))
            self.just_aborted = aborted if had_data else None
            return not had_data
        had_data = header.producer_id in self._committed
        self._committed.pop(header.producer_id, None)
        return not had_data


class Cleaning(msgspec.Struct, kw_only=True):
    """The parameters of one round over a log, and the decision about each batch."""

    latest: OffsetMap
    now_ms: int
    delete_retention_ms: int
    held_by_all: int
    """Tombstones and markers at or above this offset stay at any age: a replica without them would keep the old value
    or the open transaction."""
    first_uncleanable_offset: int
    """The end of this round. Its last batch stays, if necessary empty, so that the end offset stays known."""
    producers: Mapping[int, ProducerState]
    """The active producers as of `first_uncleanable_offset`. The next batch of each is checked against the sequences,
    or the epoch, of its last batches. Kafka keeps one of these batches. semel keeps all batches of the window: a power
    loss may remove every snapshot, and then the log is the only source of producer state."""
    transactions: TransactionFates
    pace: Pace

    async def retained(self, header: BatchHeader, data: memoryview) -> bytes | memoryview | None:
        """The batch after compaction: the same object if unchanged, a smaller batch, an empty batch, or None.

        Tombstones stay until the delete horizon, which their first compaction writes into the batch (KIP-534); so do
        markers without remaining batches. Raises CorruptBatch.
        """
        await self.pace.spend(cost(header))
        gone = self.transactions.can_discard(header, data)
        horizon_ms = header.delete_horizon_ms
        is_over = horizon_ms is not None and horizon_ms <= self.now_ms
        is_expired = is_over and header.next_offset <= self.held_by_all
        if gone and (is_expired or not header.is_control):
            return self._emptied(header, data)
        columns = decode(header, data)
        kept = await self._rows(columns, is_expired) if not header.is_control else list(range(header.record_count))
        if not kept:
            return self._emptied(header, data)
        needs_horizon = horizon_ms is None and (gone or any(columns.values[row] is None for row in kept))
        if len(kept) == header.record_count and not needs_horizon:
            return data
        await self.pace.spend(cost(header))
        return rebuild_batch(
            header,
            [_record(columns, row) for row in kept],
            delete_horizon_ms=self.now_ms + self.delete_retention_ms if needs_horizon else None,
        )

    async def _rows(self, columns: Columns, is_expired: bool) -> list[int]:
        """The rows to keep."""
        kept: list[int] = []
        count = len(columns.keys)
        for start in range(0, count, ROWS_PER_STEP):
            rows = range(start, min(start + ROWS_PER_STEP, count))
            kept += [row for row in rows if self._keeps(columns, row, is_expired)]
            await self.pace.spend(RECORD_COST_BYTES * len(rows))
        return kept

    def _keeps(self, columns: Columns, row: int, is_expired: bool) -> bool:
        offset, key = columns.offsets[row], columns.keys[row]
        if offset >= self.latest.end_offset:
            return True
        if key is None or (is_expired and columns.values[row] is None):
            return False
        return self.latest.is_latest(key, offset)

    def _emptied(self, header: BatchHeader, data: memoryview) -> bytes | memoryview | None:
        """The batch without records if it must stay, else None. A marker that must stay keeps its record."""
        if not self._is_in_producer_window(header) and header.next_offset != self.first_uncleanable_offset:
            return None
        if header.is_control or not header.record_count:
            return data  # aiokafka cannot read a marker's batch without its record, which is 17 bytes long
        return rebuild_batch(header, [])

    def _is_in_producer_window(self, header: BatchHeader) -> bool:
        state = self.producers.get(header.producer_id) if header.has_producer_id else None
        if state is None:
            return False
        if state.batches:
            return any(header.last_offset == place.last_offset for place in state.batches)
        return header.is_control and header.producer_epoch == state.epoch


def decode(header: BatchHeader, data: memoryview) -> Columns:
    """Decode the records of a batch after a check of its CRC, because compaction writes a new CRC.

    Raises CorruptBatch, also for more than RECORDS_MAX records.
    """
    if not crc_ok(data, header):
        raise CorruptBatch(f"the batch at offset {header.base_offset} fails its CRC")
    if header.record_count > RECORDS_MAX:
        raise CorruptBatch(f"the batch at offset {header.base_offset} has {header.record_count} records")
    return decode_columns(data, header, bytes_max=INFLATED_BYTES_MAX)


def cost(header: BatchHeader) -> int:
    """The cost of processing a batch, in the unit of `Pace`."""
    return header.size + BATCH_COST_BYTES + RECORD_COST_BYTES * header.record_count


def _record(columns: Columns, row: int) -> Record:
    return Record(
        columns.offsets[row], columns.timestamps[row], columns.keys[row], columns.values[row], columns.headers[row]
    )
