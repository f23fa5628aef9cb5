"""PURE: which records of a batch survive compaction, and the batch rewritten without the others.

A batch keeps its place and its producer's story whatever it loses: base offset, last offset delta, producer id, epoch,
base sequence and leader epoch stay, so that offsets never move and a retry is still recognised. Records are copied as
the bytes they are; only the header is new, and the timestamp deltas where a delete horizon is set (KIP-534).
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from struct import Struct as Layout

import msgspec
from semel_protocol.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    crc_ok,
    seal,
)
from semel_protocol.compression import compress, decompress
from semel_protocol.varint import VARLONG_BYTES_MAX, read_varint, varint

from semel_storage.pace import Pace

DIGEST_BYTES = 16
BYTES_PER_KEY = 160
"""What one key costs in the map: its digest, an integer and their slot (measured on 64-bit CPython)."""
INFLATED_BYTES_MAX = 256 << 20
"""Cap on the records of one batch once decompressed."""

MARKER_KEY = Layout(">hh")
COMMIT = 1


class RawRecord(msgspec.Struct, frozen=True, gc=False):
    """One record as a slice of its batch's decompressed blob, and what compaction asks of it."""

    start: int
    end: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool


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
        """Whether `count` more keys surely fit. An empty map takes any one batch, so that each pass moves on."""
        return not self._offsets or len(self._offsets) + count <= self.keys_max

    def put(self, key: bytes, offset: int) -> None:
        self._offsets[blake2b(key, digest_size=DIGEST_BYTES).digest()] = offset

    def is_latest(self, key: bytes, offset: int) -> bool:
        """Whether no later record of this key is known."""
        return offset >= self._offsets.get(blake2b(key, digest_size=DIGEST_BYTES).digest(), -1)


class AbortedTransaction(msgspec.Struct, frozen=True, gc=False):
    """A transaction whose records nobody may see: offsets of its first record and of its abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class TransactionFates:
    """Walks the log beside the cleaner and tells which transactional data and which markers can go.

    Data of an aborted transaction can always go. A marker has to stay while any batch of its transaction was met on
    this walk: without it, data would look undecided. `aborted` are all aborted transactions that overlap the walk.
    """

    def __init__(self, aborted: Sequence[AbortedTransaction] = ()) -> None:
        self._coming = sorted(aborted, key=lambda a: a.first_offset, reverse=True)
        self._aborted: dict[int, bool] = {}
        """Producer id of an open aborted transaction -> whether a batch of it was met."""
        self._committed: dict[int, None] = {}
        """Producer ids of open transactions that commit, of which a batch was met."""

    def can_discard(self, header: BatchHeader, blob: bytes) -> bool:
        """Meet the next batch. `blob` holds the decompressed records of a control batch; others need none."""
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            self._aborted[self._coming.pop().producer_id] = False
        if header.is_control:
            return self._marker(header, blob)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted[header.producer_id] = True
            return True
        self._committed[header.producer_id] = None
        return False

    def _marker(self, header: BatchHeader, blob: bytes) -> bool:
        if header.record_count == 0:
            return True
        (record,) = walk(blob, header.record_count)
        if record.key is None or len(record.key) < MARKER_KEY.size:
            raise CorruptBatch(f"the control record at offset {header.base_offset} has no type")
        _, kind = MARKER_KEY.unpack_from(record.key)
        if kind == COMMIT:
            return self._committed.pop(header.producer_id, self) is self
        return not self._aborted.pop(header.producer_id, False)


class Cleaning(msgspec.Struct, kw_only=True):
    """Everything that decides about one record during one pass over a log."""

    latest: OffsetMap
    now_ms: int
    delete_retention_ms: int
    first_uncleanable_offset: int
    """Where this round of cleaning ends: its last batch stays, if empty, so that the offsets' end stays known."""
    last_offsets: Mapping[int, int]
    """Producer id -> last offset of its last data batch, which carries the sequence that its next one must follow."""
    transactions: TransactionFates
    pace: Pace

    async def retained(self, header: BatchHeader, data: memoryview) -> bytes | memoryview | None:
        """What is left of a batch: itself, a smaller one, an empty one, or None. Raises CorruptBatch."""
        blob = inflate(header, data)
        await self.pace.spend(len(data))
        gone = self.transactions.can_discard(header, blob)
        horizon_ms = header.delete_horizon_ms
        expired = horizon_ms is not None and horizon_ms <= self.now_ms
        if (gone and not header.is_control) or (gone and expired):
            return self._emptied(header, data)
        kept: list[RawRecord] = []
        has_tombstone = False
        for record in walk(blob, header.record_count):
            if header.is_control or self._keeps(header, record, expired):
                kept.append(record)
                has_tombstone = has_tombstone or record.is_tombstone
            await self.pace.spend(record.end - record.start)
        if not kept:
            return self._emptied(header, data)
        needs_horizon = horizon_ms is None and (gone or has_tombstone)
        if len(kept) == header.record_count and not needs_horizon:
            return data
        return rewritten(header, blob, kept, self.now_ms + self.delete_retention_ms if needs_horizon else None)

    def _keeps(self, header: BatchHeader, record: RawRecord, expired: bool) -> bool:
        offset = header.base_offset + record.offset_delta
        if offset >= self.latest.end_offset:
            return True
        if record.key is None:
            return False
        return not (record.is_tombstone and expired) and self.latest.is_latest(record.key, offset)

    def _emptied(self, header: BatchHeader, data: memoryview) -> bytes | memoryview | None:
        is_producers_last = header.has_producer_id and self.last_offsets.get(header.producer_id) == header.last_offset
        if is_producers_last or header.next_offset == self.first_uncleanable_offset:
            return empty(header) if header.record_count else data
        return None


def checked(header: BatchHeader, data: memoryview) -> memoryview:
    """The batch, once its CRC holds: compaction would seal wrong bytes under a right CRC. Raises CorruptBatch."""
    if not crc_ok(data, header):
        raise CorruptBatch(f"the batch at offset {header.base_offset} fails its CRC; it is left as it is")
    return data


def inflate(header: BatchHeader, data: memoryview) -> bytes:
    """The decompressed records of a batch. Raises CorruptBatch."""
    if header.record_count == 0:
        return b""
    return decompress(header.codec, data[HEADER_BYTES:], INFLATED_BYTES_MAX)


def walk(blob: bytes, count: int) -> Iterator[RawRecord]:
    """The records of a decompressed blob. Raises CorruptBatch when they are not `count` whole ones."""
    at = 0
    try:
        for _ in range(count):
            start = at
            length, at = _read(blob, at)
            end = at + length
            if length < 0 or end > len(blob):
                raise CorruptBatch(f"a record of {length} bytes at byte {start} of {len(blob)}")
            _, at = _read(blob, at + 1, VARLONG_BYTES_MAX)
            offset_delta, at = _read(blob, at)
            key_length, at = _read(blob, at)
            key = None if key_length < 0 else blob[at : at + key_length]
            value_length, at = _read(blob, at + max(0, key_length))
            if at > end:
                raise CorruptBatch(f"the record at byte {start} is longer than it states")
            yield RawRecord(start, end, offset_delta, key, value_length < 0)
            at = end
    except IndexError as e:
        raise CorruptBatch(f"the records end in the middle of one at byte {at}") from e
    if at != len(blob):
        raise CorruptBatch(f"{len(blob) - at} bytes follow the {count} records")


def _read(blob: bytes, at: int, bytes_max: int = 5) -> tuple[int, int]:
    byte = blob[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    return read_varint(blob, at, bytes_max)


def rewritten(header: BatchHeader, blob: bytes, kept: list[RawRecord], new_horizon_ms: int | None) -> bytes:
    """The batch with only the `kept` records, sealed anew.

    With a delete horizon that takes the place of the base timestamp, and every record's delta is counted from it.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if new_horizon_ms is not None:
        shift = base_timestamp - new_horizon_ms
        pieces = [_with_timestamp(blob, record, shift) for record in kept]
        attributes, base_timestamp = attributes | DELETE_HORIZON, new_horizon_ms
    else:
        pieces = [blob[record.start : record.end] for record in kept]
    max_timestamp = header.max_timestamp
    if not header.log_append_time:
        max_timestamp = header.base_timestamp + max(_timestamp_delta(blob, record) for record in kept)
    payload = compress(header.codec, b"".join(pieces))
    return _sealed(
        header, attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, count=len(kept), payload=payload
    )


def empty(header: BatchHeader) -> bytes:
    """The batch without any record: what remains of a producer's last one."""
    attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
    return _sealed(
        header, attributes, base_timestamp=NO_TIMESTAMP, max_timestamp=header.max_timestamp, count=0, payload=b""
    )


def _sealed(
    header: BatchHeader, attributes: int, *, base_timestamp: int, max_timestamp: int, count: int, payload: bytes
) -> bytes:
    out = bytearray(HEADER_BYTES + len(payload))
    HEADER.pack_into(
        out,
        0,
        header.base_offset,
        len(out) - PREFIX_BYTES,
        header.partition_leader_epoch,
        header.magic,
        0,
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    out[HEADER_BYTES:] = payload
    seal(out)
    return bytes(out)


def _timestamp_delta(blob: bytes, record: RawRecord) -> int:
    _, at = _read(blob, record.start)
    return _read(blob, at + 1, VARLONG_BYTES_MAX)[0]


def _with_timestamp(blob: bytes, record: RawRecord, shift: int) -> bytes:
    """The record with its timestamp delta moved by `shift` ms."""
    _, at = _read(blob, record.start)
    delta, after = _read(blob, at + 1, VARLONG_BYTES_MAX)
    body = blob[at : at + 1] + varint(delta + shift) + blob[after : record.end]
    return varint(len(body)) + body
