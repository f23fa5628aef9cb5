"""The columns of a timeline are equal to the spans of `semel txn timeline`, for any batches."""

from __future__ import annotations

from random import Random

import pytest
from semel.diagnose import Outcome, ScannedBatch
from semel.diagnose.timeline import spans_of
from semel_console.facts.timeline_columns import OUTCOMES, ColumnScan
from semel_protocol.batch import CorruptBatch, iterate, stamp
from semel_protocol.control import ControlType, EndTxnMarker, build_marker, read_marker
from semel_protocol.records import Record, build_batch


def log_of(seed: int, count: int = 300) -> bytes:
    """Batches of transactions, of an idempotent producer and without a producer, in random order."""
    rng, offset, found = Random(seed), 0, bytearray()
    open_ones: set[int] = set()
    for number in range(count):
        producer_id = rng.randrange(5)
        if producer_id in open_ones and rng.random() < 0.4:
            kind = rng.choice((ControlType.COMMIT, ControlType.ABORT))
            marker = EndTxnMarker(kind, 0)
            batch = bytearray(
                build_marker(marker, producer_id=producer_id, producer_epoch=7, timestamp_ms=1_000 + number)
            )
            open_ones.discard(producer_id)
        else:
            is_plain = rng.random() < 0.3
            owner = rng.choice((-1, 90)) if is_plain else producer_id
            records = [Record(at, 1_000 + number, None, b"v" * rng.randrange(40)) for at in range(rng.randint(1, 4))]
            batch = bytearray(
                build_batch(
                    records,
                    producer_id=owner,
                    producer_epoch=-1 if owner < 0 else 7,
                    base_sequence=-1 if owner < 0 else 0,
                    is_transactional=not is_plain,
                )
            )
            open_ones |= set() if is_plain else {owner}
        stamp(batch, offset, 0)
        found += batch
        offset = next(iterate(batch))[0].next_offset
    return bytes(found)


def scanned(log: bytes) -> list[ScannedBatch]:
    found = []
    for header, view in iterate(log):
        marker = read_marker(view, header) if header.is_control else None
        found.append(ScannedBatch(header, None if marker is None else marker.control_type))
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("share", [0.0, 0.37])
def test_transactions_are_those_of_the_spans(seed: int, share: float) -> None:
    log = log_of(seed)
    batches = scanned(log)
    end = batches[-1].header.next_offset
    start = batches[int(len(batches) * share)].header.base_offset
    scan = ColumnScan()
    assert scan.take(log, start, end) == end
    columns, names = scan.columns, list(scan.index_of)
    got = sorted(
        (columns.first[at], names[columns.producer[at]], OUTCOMES[columns.outcome[at]], columns.marker[at],
         columns.records[at], columns.bytes[at], columns.began[at], columns.ended[at])
        for at in range(len(columns.first)) if OUTCOMES[columns.outcome[at]] is not Outcome.PLAIN
    )  # fmt: skip
    spans = spans_of(batch for batch in batches if batch.header.base_offset >= start)
    assert got == sorted(
        (each.first_offset, each.producer_id, each.outcome, -1 if each.marker_offset is None else each.marker_offset,
         each.record_count, each.size_bytes, each.first_timestamp, each.marker_timestamp)
        for each in spans if each.outcome is not Outcome.PLAIN
    )  # fmt: skip
    runs = sorted((columns.first[at], columns.last[at]) for at, kind in enumerate(columns.outcome) if kind == 3)
    pieces = [tuple(piece) for each in spans if each.outcome is Outcome.PLAIN for piece in each.pieces]
    assert runs == sorted(pieces)


def test_a_batch_that_is_cut_is_left_for_the_next_answer() -> None:
    log = log_of(1)
    batches = scanned(log)
    scan = ColumnScan()
    reached = scan.take(log[: len(log) // 2], 0, batches[-1].header.next_offset)
    assert 0 < reached < batches[-1].header.base_offset
    scan.take(log, reached, batches[-1].header.next_offset)
    whole = ColumnScan()
    whole.take(log, 0, batches[-1].header.next_offset)
    assert scan.columns == whole.columns


def test_a_wrong_length_is_corrupt() -> None:
    log = bytearray(log_of(1, 2))
    log[8:12] = bytes(4)
    with pytest.raises(CorruptBatch):
        ColumnScan().take(bytes(log), 0, 10)
