"""Runs of records with the same layout give exactly the columns and errors of the record-by-record loop."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_protocol import record_columns
from semel_protocol.batch import HEADER_BYTES, CorruptBatch, read_header
from semel_protocol.record_columns import Columns, decode_columns
from semel_protocol.record_runs import BLOCK_ROWS, RUN_ROWS_MIN, take_run
from semel_protocol.records import Record, build_batch, decode_batch

START = 1_700_000_000_000


def runs_taken(batch: bytes) -> list[int]:
    """The number of rows of each run that the decoder takes, from the first record on."""
    header = read_header(batch)
    at, row, taken = HEADER_BYTES, 0, []
    while row < header.record_count and (run := take_run(batch, at, row, header.record_count)):
        taken.append(len(run.values))
        at, row = run.end, row + len(run.values)
    return taken


def outcome(batch: bytes, decode: Callable[[bytes], Columns]) -> object:
    try:
        columns = decode(batch)
    except CorruptBatch:
        return CorruptBatch
    return [
        list(column) for column in (columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers)
    ]


def by_the_loop(batch: bytes) -> Columns:
    """As `decode_columns`, without runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_columns, "take_run", lambda *_: None)
        return decode_columns(batch)


@st.composite
def uniform_batches(draw: st.DrawFn) -> bytes:
    """Batches of fixed key and value sizes and regular timestamps, with a few different records."""
    count = draw(st.integers(1, 300))
    key_size = draw(st.sampled_from([None, 0, 1, 5, 63]))
    value_size = draw(st.sampled_from([0, 1, 50, 63, 64, 100, 9000]))
    tick = draw(st.sampled_from([0, 1, 3, 40, 200]))
    odd = draw(st.dictionaries(st.integers(0, count - 1), st.integers(0, 4), max_size=3))
    records = []
    for n in range(count):
        key = None if key_size is None else bytes((n % 256,)) * key_size
        record = Record(n, START + n * tick, key, bytes((n % 251,)) * value_size)
        match odd.get(n):
            case 0:
                record = Record(n, record.timestamp - 1000, key, record.value)
            case 1:
                record = Record(n, record.timestamp, key, None)
            case 2:
                record = Record(n, record.timestamp, key, record.value, (("h", None),))
            case 3:
                record = Record(n, record.timestamp, b"another", record.value)
            case 4:
                record = Record(n, record.timestamp, key, (record.value or b"") + b"!")
        records.append(record)
    batch = build_batch(records)
    assert decode_batch(batch) == records
    return batch


@settings(max_examples=60)
@given(uniform_batches())
def test_runs_give_the_same_columns_as_the_loop(batch: bytes) -> None:
    assert outcome(batch, decode_columns) == outcome(batch, by_the_loop)


@settings(max_examples=300)
@given(st.data())
def test_runs_find_the_same_errors_as_the_loop(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([0, 3, 70]))
    key = data.draw(st.sampled_from([None, b"key"]))
    tick = data.draw(st.sampled_from([0, 1, 60]))
    batch = bytearray(build_batch([Record(n, START + n * tick, key, b"v" * size) for n in range(80)]))
    at = data.draw(st.integers(HEADER_BYTES, len(batch) - 1))
    batch[at] = data.draw(st.one_of(st.integers(0, 255), st.just(batch[at] ^ 0x80), st.just((batch[at] + 2) % 256)))
    assert outcome(bytes(batch), decode_columns) == outcome(bytes(batch), by_the_loop)


@settings(max_examples=150)
@given(st.data())
def test_runs_find_errors_that_all_records_share(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from([None, b"key"]))
    first = data.draw(st.sampled_from([0, 64]))
    before = build_batch([Record(n, START, key, b"vvv") for n in range(first or 1)])
    batch = bytearray(build_batch([Record(n, START, key, b"vvv") for n in range(first + 64)]))
    start = len(before) if first else HEADER_BYTES
    size = (len(batch) - start) // 64
    place = data.draw(st.integers(0, size - 1))
    change = data.draw(st.sampled_from([1, 2, 3, 0x80]))
    for at in range(start + place, len(batch), size):
        batch[at] ^= change
    assert outcome(bytes(batch), decode_columns) == outcome(bytes(batch), by_the_loop)


@pytest.mark.parametrize("key", [None, b"UA"])
@pytest.mark.parametrize("size", [0, 10, 100, 10_000])
def test_equal_records_are_taken_in_blocks(key: bytes | None, size: int) -> None:
    batch = build_batch([Record(n, START, key, b"x" * size) for n in range(200)])
    assert runs_taken(batch) == [BLOCK_ROWS, BLOCK_ROWS, BLOCK_ROWS, RUN_ROWS_MIN]


def test_blocks_continue_when_offset_deltas_take_three_bytes() -> None:
    batch = build_batch([Record(n, START, None, b"x") for n in range(17_000)])
    assert sum(runs_taken(batch)) == 17_000


def test_a_run_ends_where_the_timestamp_takes_another_byte() -> None:
    batch = build_batch([Record(n, START + 4 * n, None, b"x") for n in range(64)])
    assert runs_taken(batch) == [16, 48]


@pytest.mark.parametrize(
    "record",
    [
        Record(0, START, None, None),
        Record(0, START, b"k" * 64, b"x"),
        Record(0, START, None, b"x", (("h", b"v"),)),
    ],
)
def test_unsupported_layouts_are_left_to_the_loop(record: Record) -> None:
    assert runs_taken(build_batch([record] * 100)) == []
