"""PURE: which records of a batch survive compaction.

A batch keeps its place and its producer's story whatever it loses: base offset, last offset delta, producer id, epoch,
base sequence and leader epoch stay, so that offsets never move and a retry is still recognised.
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
"""What one key costs in the map: its digest, an integer and their slot (64-bit CPython)."""
RECORD_COST_BYTES = 64
BATCH_COST_BYTES = 1024
"""What one record and one batch cost beside their bytes, in the measure of `Pace`."""
ROWS_PER_STEP = 1024
"""Records of one batch looked at in one go."""
INFLATED_BYTES_MAX = 256 << 20
RECORDS_MAX = 1_000_000
"""Cap on the records of one batch once decompressed."""


class OffsetMap:
    """The offset of the last record of each key, for every record below `end_offset`.

    Holds a 128-bit digest instead of the key, so that its memory is bounded by their number. BLAKE2, because a client
    that could craft two keys of one digest could make compaction drop somebody's value.
    """

    __slots__ = ("_offsets", "end_offset", "keys_max")

    def __init__(self, keys_max: int) -> None:
        assert keys_max > 0, "an offset map without room would never make progress"
        self.keys_max = keys_max
        self.end_offset = 0
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room(self, count: int) -> bool:
        """Whether `count` more keys surely fit. An empty map takes any one batch, so that each round moves on."""
        return not self._offsets or len(self._offsets) + count <= self.keys_max

    def put(self, key: bytes, offset: int) -> None:
        """Note a record; records come in the order of their offsets."""
        self._offsets[blake2b(key, digest_size=DIGEST_BYTES).digest()] = offset

    def is_latest(self, key: bytes, offset: int) -> bool:
        """Whether no later record of this key is known."""
        return offset >= self._offsets.get(blake2b(key, digest_size=DIGEST_BYTES).digest(), -1)


class TransactionFates:
    """Walks the log beside the cleaner and tells which transactional data and which markers can go.

    Data of an aborted transaction can always go. A marker has to stay while any batch of its transaction was met on
    this walk: without it, data would look undecided. `expect` tells the aborted transactions of each part of the walk
    before that begins.
    """

    def __init__(self) -> None:
        self._coming: list[AbortedTransaction] = []
        self.known_below = -1
        """Up to where the walk has been told what was aborted."""
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """Producer id of an open aborted transaction -> that, and whether a batch of it was met."""
        self._committed: dict[int, None] = {}
        """Producer ids of open transactions that commit, of which a batch was met."""
        self.just_aborted: AbortedTransaction | None = None
        """The transaction that ended with the batch just met, if it must stay in the index of aborted ones."""

    def expect(self, aborted: Sequence[AbortedTransaction], below: int) -> None:
        """The walk goes on up to offset `below`; `aborted` are all aborted transactions that overlap this part."""
        new = [each for each in aborted if each.first_offset >= self.known_below]
        self._coming = sorted([*self._coming, *new], key=lambda each: each.first_offset, reverse=True)
        self.known_below = below

    def can_discard(self, header: BatchHeader, data: memoryview) -> bool:
        """Meet the next batch: is it aborted data, or a marker of which nothing is left? Raises CorruptBatch."""
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
    """Everything that decides about a batch during one round over a log."""

    latest: OffsetMap
    now_ms: int
    delete_retention_ms: int
    held_by_all: int
    """Tombstones and markers at or above this offset stay, whatever their age: a replica that has not got one would
    keep what it ended."""
    first_uncleanable_offset: int
    """Where this round of cleaning ends: its last batch stays, if empty, so that the offsets' end stays known."""
    producers: Mapping[int, ProducerState]
    """The active producers: the last batches of each carry the sequences, or the epoch, against which its next are
    held. Kafka keeps one of them. Here all stay whose retries are to be recognised: a power cut may take every
    snapshot, and then the log has to tell."""
    transactions: TransactionFates
    pace: Pace

    async def retained(self, header: BatchHeader, data: memoryview) -> bytes | memoryview | None:
        """What is left of a batch: itself (the same object), a smaller one, an empty one, or None.

        Tombstones stay until the delete horizon that their first compaction writes into the batch (KIP-534); so do
        markers of which no data is left. Raises CorruptBatch.
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
        """The rows that stay."""
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
        if not self._is_among_producers_last(header) and header.next_offset != self.first_uncleanable_offset:
            return None
        return rebuild_batch(header, []) if header.record_count else data

    def _is_among_producers_last(self, header: BatchHeader) -> bool:
        state = self.producers.get(header.producer_id) if header.has_producer_id else None
        if state is None:
            return False
        if state.batches:
            return any(header.last_offset == place.last_offset for place in state.batches)
        return header.is_control and header.producer_epoch == state.epoch


def decode(header: BatchHeader, data: memoryview) -> Columns:
    """The records of a batch whose CRC holds, as compaction would seal wrong bytes anew. Raises CorruptBatch, also for
    one of more records than can be held in memory while everybody waits."""
    if not crc_ok(data, header):
        raise CorruptBatch(f"the batch at offset {header.base_offset} fails its CRC")
    if header.record_count > RECORDS_MAX:
        raise CorruptBatch(f"the batch at offset {header.base_offset} has {header.record_count} records")
    return decode_columns(data, header, bytes_max=INFLATED_BYTES_MAX)


def cost(header: BatchHeader) -> int:
    """What looking at a batch costs, in bytes for `Pace`."""
    return header.size + BATCH_COST_BYTES + RECORD_COST_BYTES * header.record_count


def _record(columns: Columns, row: int) -> Record:
    return Record(
        columns.offsets[row], columns.timestamps[row], columns.keys[row], columns.values[row], columns.headers[row]
    )
