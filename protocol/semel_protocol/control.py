"""Control batches: the marker that ends a transaction in a partition (KIP-98, "control messages")."""

import struct
from enum import IntEnum

import msgspec

from semel_protocol.batch import BatchHeader, Bytes, CorruptBatch
from semel_protocol.records import Record, build_batch, decode_batch

VERSION = 0
KEY = struct.Struct(">hh")
VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """What a control record says; the types from 2 on belong to KRaft and never reach a partition of ours."""

    ABORT = 0
    COMMIT = 1


class EndTxnMarker(msgspec.Struct, frozen=True, gc=False):
    """How a transaction ended, and the epoch of the coordinator that decided so."""

    control_type: ControlType
    coordinator_epoch: int


def build_marker(
    marker: EndTxnMarker, *, producer_id: int, producer_epoch: int, timestamp_ms: int, base_offset: int = 0
) -> bytes:
    """The control batch of one marker; it takes one offset and no sequence."""
    key = KEY.pack(VERSION, marker.control_type)
    value = VALUE.pack(VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(0, timestamp_ms, key, value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


MARKER_BYTES = len(
    build_marker(EndTxnMarker(ControlType.ABORT, 0), producer_id=0, producer_epoch=0, timestamp_ms=0),
)
"""Every marker's control batch is as long as every other."""


def read_marker(buf: Bytes, header: BatchHeader | None = None) -> EndTxnMarker | None:
    """The marker in the control batch at the start of `buf`; None for a control type that ends no transaction.

    None also for a batch that compaction has emptied. Raises CorruptBatch when it holds no control record of a known
    layout.
    """
    records = decode_batch(buf, header)
    if not records:
        return None
    if len(records) != 1:
        raise CorruptBatch(f"a control batch holds one record, this one {len(records)}")
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
