"""Builds and decodes record batches, and rebuilds them without some of their records (compaction).

Appending a record takes a few table look-ups; its bytes are copied once, when the batch is built.
Layout: KIP-98, "record"; every integer is a zigzag varint.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from semel_protocol.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Bytes,
    pack_batch,
)
from semel_protocol.compression import BYTES_MAX, NONE, compress
from semel_protocol.record_columns import Columns, Headers, decode_columns
from semel_protocol.varint import TABLE_LIMIT, VARINTS, varint

__all__ = [
    "BatchBuilder",
    "Columns",
    "Headers",
    "Record",
    "build_batch",
    "decode_batch",
    "decode_columns",
    "rebuild_batch",
    "record_bytes_max",
]

NO_LEADER_EPOCH = -1
"""The value that a producer writes; the broker replaces it."""

RECORD_OVERHEAD_BYTES_MAX = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""Maximum size of length, attributes, timestamp delta, offset delta, key length, value length, header count."""
RECORD_HEADER_OVERHEAD_BYTES_MAX = 5 + 5

ATTRIBUTES_AND_DELTA = tuple(b"\x00" + encoded for encoded in VARINTS)
"""By timestamp delta: the bytes of attributes and timestamp delta."""
NULL_KEY_AND_LENGTH = tuple(b"\x01" + encoded for encoded in VARINTS)
"""By value length: the bytes of a null key and the value length."""
NULL = b"\x01"
NO_HEADERS = b"\x00"


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record. `offset` is absolute, `timestamp` in ms. Header keys keep bytes that are not UTF-8 as surrogates."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()


def decode_batch(buf: Bytes, header: BatchHeader | None = None, *, bytes_max: int = BYTES_MAX) -> list[Record]:
    """Decode the records of the batch at the start of `buf`; as `decode_columns`, but as a list of Record."""
    columns = decode_columns(buf, header, bytes_max=bytes_max)
    return list(map(Record, columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers))


class BatchBuilder:
    """Collects records up to `bytes_max` uncompressed bytes and builds their batch, also several times.

    `size_bytes` is the size of the batch with its header: uncompressed before the first `build`, actual after it.
    `record_count` is the number of records.
    """

    __slots__ = (
        "_base_timestamp",
        "_body",
        "_bytes_max",
        "_codec",
        "_level",
        "_max_timestamp",
        "_parts",
        "record_count",
        "size_bytes",
    )

    def __init__(self, codec: int = NONE, bytes_max: int = 16384, *, level: int | None = None) -> None:
        self._codec = codec
        self._level = level
        self._bytes_max = bytes_max
        self._parts: list[Bytes] = []
        self._body: bytes | None = None
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self.record_count = 0
        self.size_bytes = HEADER_BYTES

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> int | None:
        """Add one record and return its offset delta; None if it does not fit or the batch has been built.

        The first record always fits. `bytes_max` counts uncompressed bytes.
        """
        row = self.record_count
        if row == 0:
            self._base_timestamp = self._max_timestamp = timestamp_ms
        delta = timestamp_ms - self._base_timestamp
        if headers or value is None or row >= TABLE_LIMIT or not 0 <= delta < TABLE_LIMIT:
            return self._take(timestamp_ms, encode_record(delta, row, key, value, headers))
        width = len(value)
        if key is None:
            lead = NULL_KEY_AND_LENGTH[width] if width < TABLE_LIMIT else NULL + varint(width)
        elif (key_width := len(key)) < TABLE_LIMIT and width < TABLE_LIMIT:
            lead = VARINTS[key_width] + key + VARINTS[width]
        else:
            lead = varint(key_width) + key + varint(width)
        attributes = ATTRIBUTES_AND_DELTA[delta]
        offset = VARINTS[row]
        width += len(attributes) + len(offset) + len(lead) + 1
        length = VARINTS[width] if width < TABLE_LIMIT else varint(width)
        size = self.size_bytes + width + len(length)
        if size > self._bytes_max and row:
            return None
        self.size_bytes = size
        self.record_count = row + 1
        if timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms
        self._parts += (length, attributes, offset, lead, value, NO_HEADERS)
        return row

    def _take(self, timestamp_ms: int, record: bytes) -> int | None:
        """Add an encoded record."""
        row = self.record_count
        size = self.size_bytes + len(record)
        if size > self._bytes_max and row:
            return None
        self.size_bytes = size
        self.record_count = row + 1
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self._parts.append(record)
        return row

    def fill(self, records: Bytes, record_count: int, first_timestamp_ms: int, max_timestamp_ms: int) -> None:
        """Add encoded records with offset deltas from 0 on; the batch takes no others.

        The records are not checked. The first `build` copies them; do not change them before.
        """
        assert not self.record_count, "the batch has records already"
        assert record_count > 0, "an empty batch is never sent"
        self._parts.append(records)
        self._base_timestamp, self._max_timestamp = first_timestamp_ms, max_timestamp_ms
        self._bytes_max = 0
        self.record_count = record_count
        self.size_bytes += len(records)

    def build(self, producer_id: int, producer_epoch: int, base_sequence: int, is_transactional: bool = False) -> bytes:
        """Build the batch with this producer id, epoch and base sequence (-1, -1, -1 for none).

        Records are encoded and compressed once. A second build with another epoch or sequence computes only header
        and CRC.
        """
        assert self.record_count, "an empty batch is never sent"
        if self._body is None:
            self._body = compress(self._codec, b"".join(self._parts), self._level)
            self._parts.clear()
            self._bytes_max = 0
            self.size_bytes = HEADER_BYTES + len(self._body)
        return pack_batch(
            BatchHeader(
                base_offset=0,
                batch_length=0,
                partition_leader_epoch=NO_LEADER_EPOCH,
                magic=MAGIC,
                crc=0,
                attributes=self._codec | (TRANSACTIONAL if is_transactional else 0),
                last_offset_delta=self.record_count - 1,
                base_timestamp=self._base_timestamp,
                max_timestamp=self._max_timestamp,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=base_sequence,
                record_count=self.record_count,
            ),
            self._body,
        )


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Build one batch of these records with consecutive offsets from `base_offset`; ignores `Record.offset`."""
    parts = []
    timestamps = []
    for row, record in enumerate(records):
        timestamps.append(record.timestamp)
        parts.append(encode_record(record.timestamp - timestamps[0], row, record.key, record.value, record.headers))
    assert parts, "an empty batch is never written"
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec | (TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0),
        last_offset_delta=len(parts) - 1,
        base_timestamp=timestamps[0],
        max_timestamp=max(timestamps),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(parts),
    )
    return pack_batch(header, compress(codec, b"".join(parts)))


def rebuild_batch(header: BatchHeader, records: Sequence[Record], *, delete_horizon_ms: int | None = None) -> bytes:
    """Build the batch that compaction writes in place of that of `header`, with only these records left.

    Offsets, last offset delta, codec, timestamp type and producer fields stay, so that sequences survive even without
    records. A delete horizon replaces the base timestamp and is never replaced itself (KIP-534).
    """
    if not records:
        emptied = replace(
            header,
            attributes=header.attributes & ~(DELETE_HORIZON | CODEC_MASK),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        )
        return pack_batch(emptied, b"")
    horizon = header.delete_horizon_ms if delete_horizon_ms is None else delete_horizon_ms
    base_timestamp = records[0].timestamp if horizon is None else horizon
    body = b"".join(
        encode_record(
            record.timestamp - base_timestamp,
            record.offset - header.base_offset,
            record.key,
            record.value,
            record.headers,
        )
        for record in records
    )
    thinned = replace(
        header,
        attributes=header.attributes if horizon is None else header.attributes | DELETE_HORIZON,
        base_timestamp=base_timestamp,
        max_timestamp=header.max_timestamp
        if header.log_append_time
        else max(NO_TIMESTAMP, *(r.timestamp for r in records)),
        record_count=len(records),
    )
    return pack_batch(thinned, compress(header.codec, body))


def encode_record(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> bytes:
    """Encode one record as in a batch, with its length first."""
    body = b"".join(
        (
            b"\x00",
            varint(timestamp_delta),
            varint(offset_delta),
            NULL if key is None else varint(len(key)) + key,
            NULL if value is None else varint(len(value)) + value,
            _encode_headers(headers) if headers else NO_HEADERS,
        )
    )
    return varint(len(body)) + body


def _encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        key = name.encode("utf-8", "surrogateescape")
        parts += (varint(len(key)), key, NULL if value is None else varint(len(value)) + value)
    return b"".join(parts)


def record_bytes_max(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()) -> int:
    """Upper bound of the uncompressed batch with this one record; compared with max_request_size."""
    size = HEADER_BYTES + RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += RECORD_HEADER_OVERHEAD_BYTES_MAX + len(name.encode("utf-8", "surrogateescape")) + len(content or b"")
    return size
