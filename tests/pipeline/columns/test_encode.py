"""Encoded columns decode to the same records with semel_protocol."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_semel.columns.encode import batch_starts, encode, header_tails, size_bounds
from semel_protocol.records import BatchBuilder, Record, decode_batch

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
some_bytes = st.none() | st.binary(max_size=20) | st.integers(60, 9000).map(lambda size: b"x" * size)
some_headers = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
rows = st.lists(st.tuples(some_bytes, some_bytes, some_headers), min_size=1, max_size=40)


def as_lists(headers: list[list[tuple[str, bytes | None]] | None]) -> pa.Array:
    return pa.array(
        [None if row is None else [{"key": name, "value": value} for name, value in row] for row in headers], HEADERS
    )


def read_back(parts: list[memoryview], starts: list[int], count: int) -> list[list[Record]]:
    batches = []
    for part, first, last in zip(parts, starts, [*starts[1:], count], strict=True):
        builder = BatchBuilder()
        builder.fill(part, last - first, 1_000, 1_000)
        batches.append(decode_batch(builder.build(7, 0, 0)))
    return batches


@given(rows, st.sets(st.integers(0, 39)), st.booleans(), st.booleans(), st.integers(0, 3))
def test_encoded_columns_decode_to_the_same_records(
    given_rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]],
    cuts: set[int],
    with_keys: bool,
    with_headers: bool,
    skipped: int,
) -> None:
    skipped = min(skipped, len(given_rows) - 1)
    keys, values, headers = (list(column) for column in zip(*given_rows, strict=True))
    key_column = pa.array(keys, pa.binary())[skipped:] if with_keys else None
    tails = header_tails(as_lists(headers)[skipped:]) if with_headers else None
    count = len(given_rows) - skipped
    starts = sorted({0, *(cut for cut in cuts if cut < count)})
    parts = encode(key_column, pa.array(values, pa.binary())[skipped:], tails, np.asarray(starts))
    read = [record for batch in read_back(parts, starts, count) for record in batch]
    assert [record.key for record in read] == (keys[skipped:] if with_keys else [None] * count)
    assert [record.value for record in read] == values[skipped:]
    assert [list(record.headers) for record in read] == [
        list(row or ()) if with_headers else [] for row in headers[skipped:]
    ]
    assert {record.timestamp for record in read} == {1_000}


def test_offset_deltas_of_every_width_begin_at_zero_in_each_batch() -> None:
    count = 2**20 + 20  # deltas of one to four bytes
    values = pa.array([b"v"] * count, pa.binary())
    starts = [0, 3, 67, 9_000]
    read = read_back(encode(None, values, None, np.asarray(starts)), starts, count)
    assert [len(batch) for batch in read] == [3, 64, 8_933, count - 9_000]
    assert all([record.offset for record in batch] == list(range(len(batch))) for batch in read)


@given(rows, st.integers(1, 20_000))
def test_a_batch_of_several_records_is_within_its_size_limit(
    given_rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]], bytes_max: int
) -> None:
    keys, values, headers = (list(column) for column in zip(*given_rows, strict=True))
    columns = pa.array(keys, pa.binary()), pa.array(values, pa.binary()), header_tails(as_lists(headers))
    groups = np.asarray(sorted({0, len(given_rows) // 2}))
    starts = batch_starts(size_bounds(*columns), groups, bytes_max)
    parts = encode(*columns, starts)
    counts = np.diff([*starts, len(given_rows)])
    assert counts.min() >= 1
    assert set(groups.tolist()) <= set(starts.tolist())
    assert all(len(part) <= bytes_max for part, count in zip(parts, counts, strict=True) if count > 1)


def test_batches_are_filled_up_to_their_size_limit() -> None:
    starts = batch_starts(np.full(10, 30), np.asarray([0, 7]), 100)
    assert starts.tolist() == [0, 3, 6, 7]


def test_a_header_without_a_key_is_refused() -> None:
    with pytest.raises(ValueError, match="no key"):
        header_tails(pa.array([[{"key": None, "value": b"x"}]], HEADERS))


def test_rows_without_headers_have_header_count_zero() -> None:
    assert header_tails(pa.array([None, []], HEADERS)).to_pylist() == [b"\0", b"\0"]
