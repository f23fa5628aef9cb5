"""Control batches: build and read the marker that ends a transaction in a partition (KIP-98, "control messages")."""

import struct
from enum import IntEnum

import msgspec

from semel_protocol.batch import (
    CONTROL,
    HEADER_BYTES,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    Bytes,
    CorruptBatch,
    pack_batch,
)
from semel_protocol.records import decode_batch

VERSION = 0
KEY = struct.Struct(">hh")
VALUE = struct.Struct(">hi")


RECORD = struct.Struct(">bbbbbhhbhib")
"""The record of a marker as semel writes it. All lengths and deltas are varints of one byte."""
MARKER_BYTES = HEADER_BYTES + RECORD.size


class ControlType(IntEnum):
    """The type of a control record. The types from 2 on belong to KRaft; partitions of semel never contain them."""

    ABORT = 0
    COMMIT = 1


_KEY = (2 * (RECORD.size - 1), 0, 0, 0, 2 * KEY.size, VERSION)
_VALUE = (2 * VALUE.size, VERSION)
_KINDS = {int(kind): kind for kind in ControlType}


class EndTxnMarker(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a transaction and the epoch of its coordinator."""

    control_type: ControlType
    coordinator_epoch: int


def build_marker(
    marker: EndTxnMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int, base_offset: int = 0
) -> bytes:
    """The control batch of one marker, `MARKER_BYTES` long. It takes one offset and no sequence."""
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,  # `pack_batch` computes length and CRC
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )
    return pack_batch(header, RECORD.pack(*_KEY, marker.control_type, *_VALUE, marker.coordinator_epoch, 0))


def read_marker(buf: Bytes, header: BatchHeader | None = None) -> EndTxnMarker | None:
    """The marker in the control batch at the start of `buf`.

    None for a control type other than COMMIT and ABORT, and for a batch that compaction has emptied. Raises
    CorruptBatch unless the batch has one control record of a known layout.
    """
    if len(buf) == MARKER_BYTES:  # the size of the markers that semel writes
        fields = RECORD.unpack_from(buf, HEADER_BYTES)
        kind, coordinator_epoch = fields[6], fields[9]
        if fields[:6] == _KEY and fields[7:9] == _VALUE and fields[10] == 0 and kind in _KINDS:
            return EndTxnMarker(_KINDS[kind], coordinator_epoch)
    records = decode_batch(buf, header)
    if not records:
        return None
    if len(records) != 1:
        raise CorruptBatch(f"a control batch has one record, this one has {len(records)}")
    key, value = records[0].key or b"", records[0].value or b""
    try:
        version, kind = KEY.unpack_from(key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        value_version, coordinator_epoch = VALUE.unpack_from(value)
    except struct.error:
        raise CorruptBatch(f"a control record of {len(key)} + {len(value)} bytes is too short") from None
    if version < VERSION or value_version < VERSION:
        raise CorruptBatch(f"control record versions {version} and {value_version} are below {VERSION}")
    return EndTxnMarker(ControlType(kind), coordinator_epoch)
