"""Record batch v2: reads and checks the 61-byte header and its CRC-32C, and rewrites single fields in place.

This module never reads records. A broker reads the header, checks the CRC, writes the offset and the leader epoch (the
CRC covers neither) and passes the bytes on. Layout: KIP-98, "message format"; all integers are big-endian.
"""

from collections.abc import Iterator
from struct import Struct as Layout

import msgspec
from crc32c import crc32c

from semel_protocol.errors import ErrorCode, KafkaError

Bytes = bytes | bytearray | memoryview

HEADER_BYTES = 61
PREFIX_BYTES = 12
"""Base offset and batch length: `batch_length` does not count these bytes."""
BATCH_LENGTH_MIN = HEADER_BYTES - PREFIX_BYTES
MAGIC = 2
MAGIC_AT = 16
CRC_AT = 17
CHECKED_AT = 21
"""The CRC covers everything from the attributes to the end of the batch."""

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

ZSTD = 4
ZSTD_PRODUCE_VERSION = 7
"""First Produce version that may carry zstd (KIP-110)."""

HEADER = Layout(">qiibIhiqqqhii")
LENGTH = Layout(">qi")
OFFSET = Layout(">q")
EPOCH = Layout(">i")
CRC = Layout(">I")
CHECKED = Layout(">8xi5xI")
ATTRIBUTES = Layout(">h")
ATTRIBUTES_AT = 21
EPOCH_AT = 12
MAX_TIMESTAMP_AT = 35
assert HEADER.size == HEADER_BYTES


class CorruptBatch(KafkaError):  # noqa: N818 (named for what the bytes are)
    """The bytes are not a record batch, or its CRC or records contradict the header. Code CORRUPT_MESSAGE."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class BatchHeader(msgspec.Struct, frozen=True, gc=False):
    """The 61 bytes at the start of a batch, fields in wire order. Offsets are absolute, timestamps are in ms."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record as produced; compaction may have removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapping from 2147483647 to 0; -1 when the batch carries no sequence."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are not assigned."""
        return self.attributes & CODEC_MASK

    @property
    def log_append_time(self) -> bool:
        """True: the timestamp of every record is `max_timestamp`, which the broker wrote."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove the tombstones of this batch; None if not set. `base_timestamp` holds it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


def read_header(buf: Bytes, at: int = 0) -> BatchHeader:
    """The header of the batch at `at`.

    Raises CorruptBatch if fewer than 61 bytes are left, if the length is below the minimum, or if the magic is not 2.
    The caller checks that the batch is complete and that its CRC matches.
    """
    if len(buf) - at < HEADER_BYTES:
        raise CorruptBatch(f"a record batch has at least {HEADER_BYTES} bytes, {max(0, len(buf) - at)} are left")
    header = BatchHeader(*HEADER.unpack_from(buf, at))
    if header.batch_length < BATCH_LENGTH_MIN:
        raise CorruptBatch(f"batch length {header.batch_length} at byte {at} is below {BATCH_LENGTH_MIN}")
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic {header.magic} at byte {at}; only magic {MAGIC} is supported")
    return header


def iterate(buf: Bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the header and a view of the bytes of each complete batch; a partial batch at the end is skipped.

    Raises CorruptBatch as `read_header` does. Does not check CRCs.
    """
    view = memoryview(buf)
    end = len(view)
    at = 0
    while end - at >= HEADER_BYTES:
        header = read_header(view, at)
        after = at + header.size
        if after > end:
            return
        yield header, view[at:after]
        at = after


def check_crcs(buf: Bytes, where: str) -> None:
    """Check the CRC of every complete batch of `buf`. Raises CorruptBatch; its message begins with `where`."""
    view = memoryview(buf)
    end = len(view)
    at = 0
    while end - at >= HEADER_BYTES:
        length, crc = CHECKED.unpack_from(view, at)
        after = at + PREFIX_BYTES + length
        if length < BATCH_LENGTH_MIN or (after <= end and crc32c(view[at + CHECKED_AT : after]) != crc):
            (offset,) = OFFSET.unpack_from(view, at)
            raise CorruptBatch(
                f"{where}: the batch at offset {offset} does not match its CRC; restore the log from a copy"
            )
        at = after


def crc_of(buf: Bytes, size: int) -> int:
    """CRC-32C of the batch of `size` bytes at the start of `buf`; the header should state the same value."""
    return crc32c(memoryview(buf)[CHECKED_AT:size])


def crc_ok(buf: Bytes, header: BatchHeader) -> bool:
    """Whether the batch at the start of `buf` is complete and matches its CRC."""
    return len(buf) >= header.size and crc_of(buf, header.size) == header.crc


def check_produced(
    records: Bytes | None,
    *,
    produce_version: int,
    bytes_max: int | None = None,
    transactional: bool = False,
) -> BatchHeader:
    """Check the one batch that a client may send per partition, except its records, and return its header.

    `bytes_max` is the topic's max.message.bytes. `transactional`: the request names a transactional id. Raises
    KafkaError: INVALID_RECORD unless `records` is exactly one well-formed client batch, INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE for an unknown codec or zstd before Produce v7; CorruptBatch for a
    wrong length or CRC.
    """
    header = _one_batch(records)
    assert records is not None
    if bytes_max is not None and header.size > bytes_max:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {header.size} bytes, the topic's max.message.bytes is {bytes_max}; send smaller batches",
        )
    crc = crc_of(records, header.size)
    if crc != header.crc:
        raise CorruptBatch(f"the batch states CRC {header.crc:08x}, its bytes have CRC {crc:08x}; send it again")
    _check_attributes(header, produce_version)
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise _refused(f"{header.record_count} records cannot end at offset delta {header.last_offset_delta}")
    _check_timestamps(header)
    _check_producer(header, transactional)
    return header


def _one_batch(records: Bytes | None) -> BatchHeader:
    if not records:
        raise _refused("a Produce request must have exactly one record batch per partition, this one has none")
    if len(records) > MAGIC_AT and records[MAGIC_AT] < MAGIC:
        raise _refused(
            f"message format v{records[MAGIC_AT]} is not supported (KIP-724); use a client with Produce v3 or above"
        )
    header = read_header(records)
    if header.size > len(records):
        raise CorruptBatch(f"the batch states {header.size} bytes, {len(records)} were sent")
    if header.size < len(records):
        raise _refused(
            f"a partition takes exactly one record batch: {len(records) - header.size} bytes follow the first, "
            f"which has {header.size} bytes; send one batch"
        )
    return header


def _check_attributes(header: BatchHeader, produce_version: int) -> None:
    codec = header.codec
    if codec > ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"codec {codec} is unknown; use none, gzip, snappy, lz4 or zstd",
        )
    if codec == ZSTD and produce_version < ZSTD_PRODUCE_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce v{ZSTD_PRODUCE_VERSION} or above, this request is v{produce_version}",
        )
    if header.attributes & CONTROL:
        raise _refused("only brokers write control batches")
    if header.attributes & DELETE_HORIZON:
        raise _refused("only compaction sets a delete horizon")


def _check_timestamps(header: BatchHeader) -> None:
    """A missing maximum timestamp (-1) passes; the broker computes it. sarama below 1.45.1 does not set it."""
    if header.attributes & LOG_APPEND_TIME:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            "the batch has timestamp type LogAppendTime; only brokers set that",
        )
    if NO_TIMESTAMP != header.max_timestamp < header.base_timestamp:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"the maximum timestamp {header.max_timestamp} is below the base timestamp {header.base_timestamp}",
        )


def _check_producer(header: BatchHeader, transactional: bool) -> None:
    idempotent = header.producer_id >= 0
    if header.producer_id < NO_PRODUCER_ID:
        raise _refused(
            f"producer id {header.producer_id} is invalid: it is 0 or above, or {NO_PRODUCER_ID} for no producer id"
        )
    # Without a producer id, epoch and sequence have no meaning: franz-go, sarama, kafkajs and Kafka write sequence 0.
    if idempotent and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise _refused(
            f"producer id {header.producer_id} needs an epoch and a base sequence of 0 or above; "
            f"they are {header.producer_epoch} and {header.base_sequence}"
        )
    if not header.attributes & TRANSACTIONAL:
        return
    if not idempotent:
        raise _refused("a transactional batch needs a producer id; call InitProducerId first")
    if not transactional:
        raise _refused("the batch is transactional, but the request names no transactional id")


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def stamp(buf: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch at the start of `buf`; the CRC covers neither field."""
    OFFSET.pack_into(buf, 0, base_offset)
    EPOCH.pack_into(buf, EPOCH_AT, leader_epoch)


def stamp_log_append_time(buf: bytearray | memoryview, now_ms: int) -> None:
    """Give every record of the one batch in `buf` the broker's time (message.timestamp.type=LogAppendTime).

    Writes the timestamp type, the maximum timestamp and the new CRC.
    """
    (attributes,) = ATTRIBUTES.unpack_from(buf, ATTRIBUTES_AT)
    ATTRIBUTES.pack_into(buf, ATTRIBUTES_AT, attributes | LOG_APPEND_TIME)
    OFFSET.pack_into(buf, MAX_TIMESTAMP_AT, now_ms)
    seal(buf)


def state_max_timestamp(buf: bytearray | memoryview, timestamp_ms: int) -> None:
    """Write the maximum timestamp of its records and the new CRC into the header of the one batch in `buf`."""
    OFFSET.pack_into(buf, MAX_TIMESTAMP_AT, timestamp_ms)
    seal(buf)


def seal(buf: bytearray | memoryview) -> None:
    """Write the CRC of the one batch in `buf` into its header."""
    _, batch_length = LENGTH.unpack_from(buf, 0)
    CRC.pack_into(buf, CRC_AT, crc_of(buf, PREFIX_BYTES + batch_length))


def pack_batch(header: BatchHeader, body: bytes) -> bytes:
    """The batch of this header and these encoded and compressed records; computes length and CRC."""
    head = HEADER.pack(
        header.base_offset,
        BATCH_LENGTH_MIN + len(body),
        header.partition_leader_epoch,
        header.magic,
        0,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    checked = head[CHECKED_AT:]
    return b"".join((head[:CRC_AT], CRC.pack(crc32c(body, crc32c(checked))), checked, body))
