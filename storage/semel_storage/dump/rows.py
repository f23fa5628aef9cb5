"""PURE: decodes the files of a partition into rows, for `semel log dump`.

Every function takes bytes and yields `DumpRow`s. Invalid bytes give rows of kind PROBLEM at their place, so that all
readable parts of a damaged file are shown.
"""

from collections.abc import Iterator
from enum import Enum
from struct import Struct as Layout
from typing import Any

import msgspec
from semel_protocol.batch import HEADER_BYTES, BatchHeader, CorruptBatch, crc_ok, read_header
from semel_protocol.compression import CODEC_NAMES
from semel_protocol.control import read_marker
from semel_protocol.errors import KafkaError
from semel_protocol.records import Record, decode_batch

from semel_storage.disk.disk import Buffer
from semel_storage.dump.internal import Decoder, text
from semel_storage.log.snapshot import CorruptSnapshot
from semel_storage.log.snapshot import decode as decode_snapshot
from semel_storage.segments.index import OffsetIndex, TimeIndex

INFLATED_BYTES_MAX = 256 << 20
ZEROS = memoryview(bytes(1 << 16))
ABORTED = Layout(">hqqqq")
"""An entry of `.txnindex`: version, producer id, first offset, last offset, last stable offset."""


class RowKind(Enum):
    """The kind of a row."""

    BATCH = "batch"
    RECORD = "record"
    ENTRY = "entry"
    PROBLEM = "problem"


class DumpRow(msgspec.Struct, frozen=True):
    """One line of a dump; the names are those of Kafka's dump tool if it has one."""

    kind: RowKind
    facts: dict[str, Any]


class DumpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a log to show. `from_offset` skips batches that end before it. `limit` counts records, or batches if
    records are not shown.
    """

    decoder: Decoder
    records: bool = True
    values: bool = True
    from_offset: int = 0
    limit: int | None = None


def problem(message: str, **facts: Any) -> DumpRow:
    return DumpRow(RowKind.PROBLEM, {**facts, "problem": message})


def log_rows(data: Buffer, options: DumpOptions) -> Iterator[DumpRow]:
    """Batches and records of a `.log` file. Ends at the first bytes that are not a batch, with a PROBLEM row."""
    view = memoryview(data)
    left = options.limit
    at, expected = 0, 0
    while at < len(view) and left != 0:
        found = _header_at(view, at)
        if isinstance(found, str):
            yield problem(found, position=at, bytes=len(view) - at, nextOffset=expected)
            return
        header, batch = found, view[at : at + found.size]
        if header.base_offset < expected:
            yield problem(f"offset {header.base_offset}, but at least {expected} is expected", position=at)
        expected = header.next_offset
        if header.last_offset >= options.from_offset:
            is_valid = crc_ok(batch, header)
            yield DumpRow(RowKind.BATCH, _batch_facts(header, at, is_valid))
            if not is_valid:
                yield problem("the CRC does not match; the records are not shown", position=at, bytes=header.size)
            shown = 0
            if is_valid and options.records:
                for row in _record_rows(header, batch, options):
                    if left is not None and shown >= left:
                        break
                    shown += row.kind is RowKind.RECORD
                    yield row
            if left is not None:
                left = max(0, left - (shown if options.records else 1))
        at += header.size


def time_name(header: BatchHeader) -> str:
    """The timestamp type of a batch, by Kafka's name."""
    return "LogAppendTime" if header.log_append_time else "CreateTime"


def _header_at(view: memoryview, at: int) -> BatchHeader | str:
    """The header of a complete batch at `at`, or the reason why there is none."""
    if _is_zero(view[at : at + HEADER_BYTES]):
        if _is_zero(view[at:]):
            return "torn tail: only zeros from here on; recovery truncates them"
        return "corrupt: zeros instead of a batch"
    if len(view) - at < HEADER_BYTES:
        return "torn tail: incomplete batch header; recovery truncates it"
    try:
        header = read_header(view, at)
    except CorruptBatch as e:
        return f"corrupt: {e.message}"
    if header.size > len(view) - at:
        return f"torn tail: incomplete batch of {header.size} bytes; recovery truncates it"
    return header


def _is_zero(view: memoryview) -> bool:
    return all(view[at : at + len(ZEROS)] == ZEROS[: len(view) - at] for at in range(0, len(view), len(ZEROS)))


def _batch_facts(header: BatchHeader, position: int, is_valid: bool) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "position": position,
        time_name(header): header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": CODEC_NAMES.get(header.codec, str(header.codec)),
        "crc": header.crc,
        "isvalid": is_valid,
    }
    if header.delete_horizon_ms is not None:
        facts["deleteHorizonMs"] = header.delete_horizon_ms
    return facts


def _record_rows(header: BatchHeader, batch: memoryview, options: DumpOptions) -> Iterator[DumpRow]:
    try:
        if header.is_control:
            yield from _marker_rows(header, batch)
            return
        records = decode_batch(batch, header, bytes_max=INFLATED_BYTES_MAX)
    except KafkaError as e:
        yield problem(f"the CRC matches, but the records are invalid: {e.message}", baseOffset=header.base_offset)
        return
    for record in records:
        if record.offset >= options.from_offset:
            yield DumpRow(RowKind.RECORD, _record_facts(header, record, options))


def _marker_rows(header: BatchHeader, batch: memoryview) -> Iterator[DumpRow]:
    if header.record_count == 0:
        return
    marker = read_marker(batch, header)
    (record,) = decode_batch(batch, header)
    facts = _common_facts(header, record)
    if marker is None:
        facts["controlType"] = "unknown"
    else:
        facts |= {"endTxnMarker": marker.control_type.name, "coordinatorEpoch": marker.coordinator_epoch}
    yield DumpRow(RowKind.RECORD, facts)


def _record_facts(header: BatchHeader, record: Record, options: DumpOptions) -> dict[str, Any]:
    facts = _common_facts(header, record)
    if options.values:
        facts["key"], facts["payload"] = options.decoder(record.key, record.value)
    return facts


def _common_facts(header: BatchHeader, record: Record) -> dict[str, Any]:
    """The fields that records and markers share, with the producer of the batch in each of them."""
    facts: dict[str, Any] = {
        "offset": record.offset,
        time_name(header): record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
    }
    if header.has_producer_id:
        facts |= {"producerId": header.producer_id, "producerEpoch": header.producer_epoch}
        delta = record.offset - header.base_offset
        facts["sequence"] = (header.base_sequence + delta) & 0x7FFFFFFF if header.base_sequence >= 0 else -1
    facts["headers"] = {name: text(value) for name, value in record.headers}
    return facts


def index_rows(data: Buffer, base_offset: int, log: Buffer | None) -> Iterator[DumpRow]:
    """Entries of a `.index`, each checked against the log if there is one."""
    previous = (-1, -1)
    for relative, position in _entries(OffsetIndex.ENTRY, data):
        if previous >= (0, 0) and (relative, position) == (0, 0):
            return
        offset = base_offset + relative
        yield DumpRow(RowKind.ENTRY, {"offset": offset, "position": position})
        if relative <= previous[0] or position <= previous[1]:
            yield problem("entries must ascend", offset=offset)
        if log is not None:
            found = _header_at(memoryview(log), position) if position < len(log) else "the log is shorter"
            if isinstance(found, str) or found.last_offset != offset:
                stated = found if isinstance(found, str) else f"the batch there ends with offset {found.last_offset}"
                yield problem(f"contradicts the log: {stated}", offset=offset, position=position)
        previous = (relative, position)
    yield from _rest(OffsetIndex.ENTRY, data)


def time_index_rows(data: Buffer, base_offset: int) -> Iterator[DumpRow]:
    """Entries of a `.timeindex`: no record up to `offset` is later than `timestamp`."""
    previous = (-1, -1)
    for timestamp, relative in _entries(TimeIndex.ENTRY, data):
        if previous >= (0, 0) and (timestamp, relative) == (0, 0):
            return
        yield DumpRow(RowKind.ENTRY, {"timestamp": timestamp, "offset": base_offset + relative})
        if timestamp <= previous[0] or relative < previous[1]:
            yield problem("entries must ascend", offset=base_offset + relative)
        previous = (timestamp, relative)
    yield from _rest(TimeIndex.ENTRY, data)


def aborted_rows(data: Buffer) -> Iterator[DumpRow]:
    """Entries of a `.txnindex`: aborted transactions."""
    for version, producer_id, first_offset, last_offset, last_stable_offset in _entries(ABORTED, data):
        yield DumpRow(
            RowKind.ENTRY,
            {
                "version": version,
                "producerId": producer_id,
                "firstOffset": first_offset,
                "lastOffset": last_offset,
                "lastStableOffset": last_stable_offset,
            },
        )
    yield from _rest(ABORTED, data)


def snapshot_rows(data: Buffer) -> Iterator[DumpRow]:
    """Producers of a `.snapshot`, with their last batch and the number of batches in their window."""
    try:
        states = decode_snapshot(data)
    except CorruptSnapshot as e:
        yield problem(f"invalid snapshot: {e}; recovery replays the log instead")
        return
    for state in states:
        facts: dict[str, Any] = {
            "producerId": state.producer_id,
            "producerEpoch": state.epoch,
            "coordinatorEpoch": state.coordinator_epoch,
            "currentTxnFirstOffset": state.txn_first_offset,
            "lastTimestamp": state.last_timestamp,
        }
        if state.batches:
            last = state.batches[-1]
            facts |= {
                "firstSequence": last.base_sequence,
                "lastSequence": last.last_sequence,
                "lastOffset": last.last_offset,
                "offsetDelta": last.offset_delta,
                "timestamp": last.timestamp,
                "batches": len(state.batches),
            }
        yield DumpRow(RowKind.ENTRY, facts)


def epoch_rows(data: Buffer) -> Iterator[DumpRow]:
    """Lines of a `leader-epoch-checkpoint`."""
    lines = bytes(data).decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0].strip() != "0" or lines[1].strip() != str(len(lines) - 2):
        yield problem("expected version 0, the number of entries, and as many lines")
    for line in lines[2:]:
        epoch, _, start_offset = line.partition(" ")
        if epoch.isdecimal() and start_offset.isdecimal():
            yield DumpRow(RowKind.ENTRY, {"leaderEpoch": int(epoch), "startOffset": int(start_offset)})
        else:
            yield problem("not an epoch and a start offset", line=line)


def _entries(layout: Layout, data: Buffer) -> Iterator[tuple[Any, ...]]:
    return layout.iter_unpack(memoryview(data)[: len(data) - len(data) % layout.size])


def _rest(layout: Layout, data: Buffer) -> Iterator[DumpRow]:
    rest = len(data) % layout.size
    if rest:
        yield problem(f"torn tail: {rest} bytes are not an entry of {layout.size} bytes", position=len(data) - rest)
