"""Record batches decode to Arrow: the same records, field by field, as with the protocol's own decoder."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from semel._arrow.decode import COLUMNS, TABLE_BYTES, Slice, arrow_batches
from semel_protocol.batch import BatchHeader, CorruptBatch, iterate, read_header, stamp_log_append_time
from semel_protocol.compression import CODECS
from semel_protocol.records import Record, build_batch, decode_batch, rebuild_batch
from semel_protocol.varint import varint

WHOLE = Slice("t", 3, 0, 1 << 62)
Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

nullable = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=5), nullable), max_size=3).map(tuple)
timestamps = st.integers(0, 1 << 42)
varied = st.builds(lambda t, k, v, h: Record(0, t, k, v, h), timestamps, nullable, nullable, headers)
"""Arbitrary records."""
plain = st.builds(
    lambda t, v: Record(0, 1_700_000_000_000 + t, None, b"x" * v), st.integers(0, 3), st.integers(99, 101)
)
"""Similar records, so that runs of one size start and end."""
batches_of_records = st.lists(st.lists(varied, min_size=1, max_size=8) | st.lists(plain, min_size=1, max_size=90))


def placed(data: bytes) -> list[tuple[BatchHeader, int]]:
    found, at = [], 0
    for header, view in iterate(data):
        found.append((header, at))
        at += len(view)
    assert at == len(data)
    return found


def laid_out(batches: Sequence[Sequence[Record]], codec: int = 0, gap: int = 0) -> bytes:
    """Batches of these records, one after the other, `gap` offsets between them."""
    made, offset = [], 0
    for records in batches:
        numbered = [Record(offset + n, r.timestamp, r.key, r.value, r.headers) for n, r in enumerate(records)]
        made.append(build_batch(numbered, codec=codec, base_offset=offset))
        offset += len(records) + gap
    return b"".join(made)


def expected(data: bytes) -> list[Row]:
    """Decode with the protocol's own decoder."""
    return [
        (r.offset, r.timestamp, int(header.log_append_time), r.key, r.value, r.headers)
        for header, view in iterate(data)
        for r in decode_batch(view, header)
    ]


def decoded(data: bytes, wanted: Slice = WHOLE) -> list[Row]:
    rows: list[Row] = []
    for batch in arrow_batches(data, placed(data), wanted):
        batch.validate(full=True)
        assert batch.schema == wanted.columns
        assert batch["topic"].unique().to_pylist() == ["t"]
        assert batch["partition"].unique().to_pylist() == [3]
        given = batch["headers"].to_pylist() if wanted.headers else [None] * batch.num_rows
        rows += zip(
            batch["offset"].to_pylist(),
            batch["timestamp"].cast(pa.int64()).to_pylist(),
            batch["timestamp_type"].to_pylist(),
            batch["key"].to_pylist(),
            batch["value"].to_pylist(),
            [tuple((h["key"], h["value"]) for h in each or ()) for each in given],
            strict=True,
        )
    return rows


@settings(max_examples=150, deadline=None)
@given(batches_of_records, st.sampled_from(sorted(CODECS.values())), st.integers(0, 3))
def test_any_records_decode_as_with_the_protocols_decoder(batches: list[list[Record]], codec: int, gap: int) -> None:
    data = laid_out(batches, codec, gap)
    assert decoded(data) == expected(data)


@settings(max_examples=50, deadline=None)
@given(st.lists(varied, min_size=1, max_size=40), st.data())
def test_a_compacted_batch_keeps_the_offsets_of_its_records(records: list[Record], data: st.DataObject) -> None:
    whole = laid_out([records])
    kept = data.draw(st.sets(st.integers(0, len(records) - 1), min_size=1))
    thin = rebuild_batch(read_header(whole), [r for r in decode_batch(whole) if r.offset in kept])
    assert decoded(thin) == expected(thin)
    assert [row[0] for row in decoded(thin)] == sorted(kept)


@settings(max_examples=50, deadline=None)
@given(batches_of_records, st.integers(-2, 200), st.integers(0, 200))
def test_records_outside_of_the_range_are_left_out(batches: list[list[Record]], start: int, length: int) -> None:
    data = laid_out(batches)
    wanted = Slice("t", 3, start, start + length)
    assert decoded(data, wanted) == [row for row in expected(data) if start <= row[0] < start + length]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("count", [31, 63, 64, 65, 8191, 8192, 8200])
def test_long_runs_of_one_size_are_read_past_where_their_varints_grow(count: int, codec: int) -> None:
    records = [Record(n, 1_700_000_000_000 + n // 3, b"%06d" % n, b"x" * 100) for n in range(count)]
    data = laid_out([records, records], codec)
    assert decoded(data) == expected(data)


def test_a_run_continues_after_a_record_of_another_size() -> None:
    sizes = [100] * 50 + [101] + [100] * 50 + [20_000] + [100] * 50
    data = laid_out([[Record(0, 5, None, b"x" * size) for size in sizes]])
    assert decoded(data) == expected(data)


def test_log_append_time_applies_to_all_records_of_a_batch() -> None:
    records = [Record(n, 1000 + n, None, b"v") for n in range(3)]
    stamped = bytearray(build_batch(records, base_offset=0))
    stamp_log_append_time(stamped, 2000)
    data = bytes(stamped) + build_batch([Record(3, 77, None, b"v")], base_offset=3)
    assert [(row[1], row[2]) for row in decoded(data)] == [(2000, 1), (2000, 1), (2000, 1), (77, 0)]
    assert decoded(data) == expected(data)


def test_null_and_empty_are_not_the_same() -> None:
    records = [Record(0, 0, None, b""), Record(0, 0, b"", None), Record(0, 0, b"k", b"v", (("h", None), ("", b"")))]
    assert [row[3:] for row in decoded(laid_out([records]))] == [
        (None, b"", ()),
        (b"", None, ()),
        (b"k", b"v", (("h", None), ("", b""))),
    ]


def test_headers_are_empty_without_headers_and_can_be_left_out() -> None:
    data = laid_out([[Record(0, 0, None, b"v"), Record(0, 0, None, b"v", (("h", b"1"),))]])
    (batch,) = arrow_batches(data, placed(data), WHOLE)
    assert batch["headers"].to_pylist() == [[], [{"key": "h", "value": b"1"}]]
    (batch,) = arrow_batches(data, placed(data), Slice("t", 3, 0, 9, headers=False))
    assert batch.schema == COLUMNS
    assert batch["value"].to_pylist() == [b"v", b"v"]


def test_a_header_key_that_is_not_utf_8_has_replacement_characters() -> None:
    data = laid_out([[Record(0, 0, None, b"v", (("caf\udce9", b"1"), ("ok", b"2")))]])
    (batch,) = arrow_batches(data, placed(data), WHOLE)
    assert [h["key"] for h in batch["headers"].to_pylist()[0]] == ["caf\ufffd", "ok"]


def test_large_decompressed_batches_become_several_tables() -> None:
    half = [Record(n, 0, None, bytes(1000)) for n in range(TABLE_BYTES // 1700)]
    data = laid_out([half] * 3, CODECS["zstd"])
    assert len(data) < TABLE_BYTES // 10
    found = [batch.num_rows for batch in arrow_batches(data, placed(data), WHOLE)]
    assert found == [len(half)] * 3


def test_no_batches_give_no_tables() -> None:
    assert list(arrow_batches(b"", [], WHOLE)) == []
    data = laid_out([[Record(0, 0, None, b"v")]])
    assert list(arrow_batches(data, placed(data), Slice("t", 3, 1, 9))) == []


def spoiled(data: bytes, **fields: int) -> list[tuple[BatchHeader, int]]:
    return [(replace(read_header(data), **fields), 0)]


BODY = varint(7) + b"\x00" + varint(0) + varint(0) + varint(-1) + varint(1) + b"v" + varint(0)
"""One record: its length, attributes, times, offsets, key, value, headers."""


def of_body(body: bytes, count: int = 1) -> tuple[bytes, list[tuple[BatchHeader, int]]]:
    good = build_batch([Record(0, 0, None, b"v")] * count)
    data = good[:61] + body
    return data, spoiled(data, batch_length=len(data) - 12)


@pytest.mark.parametrize(
    "body",
    {
        "a length beyond the batch": varint(60) + BODY[1:],
        "a length short of the record": varint(6) + BODY[1:],
        "a negative length": varint(-7) + BODY[1:],
        "a key beyond the record": BODY[:4] + varint(40) + BODY[5:],
        "a negative key": BODY[:4] + varint(-2) + BODY[5:],
        "a value beyond the record": BODY[:5] + varint(9) + BODY[6:],
        "headers that are not there": BODY[:-1] + varint(2),
        "fewer than no headers": BODY[:-1] + varint(-1),
        "an offset beyond the batch": BODY[:3] + varint(3) + BODY[4:],
        "an offset before the batch": BODY[:3] + varint(-1) + BODY[4:],
        "bytes behind the last record": BODY + b"\x00",
        "no byte at all": b"",
        "a varint without an end": b"\xff" * 12,
        "half of a record": BODY[:4],
    }.items(),
    ids=lambda named: named[0],
)
def test_a_corrupt_record_is_refused_with_the_offset_of_its_batch(body: tuple[str, bytes]) -> None:
    data, places = of_body(body[1])
    with pytest.raises(CorruptBatch, match="the batch at offset 0"):
        list(arrow_batches(data, places, WHOLE))


def test_descending_offsets_are_refused() -> None:
    data, places = of_body(BODY[:3] + varint(1) + BODY[4:] + BODY, count=2)
    with pytest.raises(CorruptBatch, match="the batch at offset 0"):
        list(arrow_batches(data, places, WHOLE))


@settings(max_examples=200, deadline=None)
@given(st.lists(varied, min_size=1, max_size=6), st.data())
def test_damage_is_refused_like_in_the_protocols_decoder(records: list[Record], data: st.DataObject) -> None:
    good = bytearray(laid_out([records]))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(61, len(good) - 1))] = data.draw(st.integers(0, 255))
    spoilt = bytes(good)
    try:
        want = readable(expected(spoilt))
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            decoded(spoilt)
        return
    assert decoded(spoilt) == want


def readable(rows: list[Row]) -> list[Row]:
    """Header keys as text, whatever bytes they are."""
    return [(*row[:5], tuple((_text(key), value) for key, value in row[5])) for row in rows]


def _text(key: str) -> str:
    return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
