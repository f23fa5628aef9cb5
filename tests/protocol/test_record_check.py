"""A produced batch is accepted if and only if a reader can read it, whatever its codec and its records' layout."""

import os
from collections.abc import Generator
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from protocol.record_strategies import record_lists
from semel_protocol.batch import HEADER_BYTES, NO_TIMESTAMP, CorruptBatch, pack_batch, read_header
from semel_protocol.compression import CODEC_NAMES, compress, decompress, inflating
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.record_check import ROW_COST, STRETCH_ROWS_MAX, CheckedRecords, check_records
from semel_protocol.records import Record, build_batch, decode_columns

START = 1_700_000_000_000
BYTES_MAX = 32 << 20
T = TypeVar("T")

codecs = pytest.mark.parametrize("codec", CODEC_NAMES, ids=CODEC_NAMES.values())


def finish(steps: Generator[int, None, T], costs: list[int] | None = None) -> T:
    while True:
        try:
            cost = next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        if costs is not None:
            costs.append(cost)


def check(batch: bytes, *, bytes_max: int = BYTES_MAX, costs: list[int] | None = None) -> CheckedRecords:
    header = read_header(batch)
    return finish(check_records(batch, header, bytes_max=bytes_max, wants_keyless=True), costs)


def refusal(batch: bytes, **settings: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        check(batch, **settings)
    return caught.value.code


def with_body(body: bytes, codec: int = 0, count: int = 1) -> bytes:
    header = read_header(build_batch([Record(0, START)], codec=codec))
    return pack_batch(replace(header, record_count=count, last_offset_delta=count - 1), body)


def agree(batch: bytes) -> None:
    """Check that `check_records` and the decoder agree."""
    try:
        columns = decode_columns(batch)
    except CorruptBatch:
        assert refusal(batch) is ErrorCode.INVALID_RECORD
        return
    checked = check(batch)
    assert checked.keyless == [row for row, key in enumerate(columns.keys) if key is None]
    assert (checked.min_timestamp, checked.max_timestamp) == (min(columns.timestamps), max(columns.timestamps))


@codecs
@given(record_lists(max_size=80))
@settings(max_examples=30)
def test_readable_batches_are_accepted(codec: int, records: list[Record]) -> None:
    agree(build_batch(records, codec=codec))


@pytest.mark.proves("unreadable-batch")
@given(
    count=st.integers(1, 400),
    key_size=st.sampled_from([None, 0, 5, 63, 70]),
    value_size=st.sampled_from([0, 1, 55, 63, 100, 9000]),
    tick=st.sampled_from([0, 1, 3, 200, -1]),
    odd=st.sets(st.integers(0, 399), max_size=3),
    flip=st.one_of(st.none(), st.tuples(st.integers(0, 1 << 30), st.integers(1, 255))),
)
@settings(max_examples=150, deadline=None)
def test_the_check_of_a_run_agrees_with_the_decoder(
    count: int, key_size: int | None, value_size: int, tick: int, odd: set[int], flip: tuple[int, int] | None
) -> None:
    """For any changed byte of the records."""
    records = [
        Record(
            n,
            START + n * tick - (500 if n in odd else 0),
            None if key_size is None else b"k" * key_size,
            b"v" * value_size,
        )
        for n in range(count)
    ]
    batch = bytearray(build_batch(records))
    if flip is not None:
        batch[HEADER_BYTES + flip[0] % (len(batch) - HEADER_BYTES)] ^= flip[1]
    agree(bytes(batch))


@pytest.mark.proves("unreadable-batch")
@pytest.mark.thorough
def test_any_changed_framing_byte_of_a_long_run_is_refused() -> None:
    """In rows with offset deltas of one, two and three bytes."""
    whole = build_batch([Record(n, START + n // 40, None, b"v" * 4) for n in range(20_000)])
    assert check(whole).max_timestamp == START + 19_999 // 40
    random = Random(5)
    for _ in range(300):
        batch = bytearray(whole)
        batch[random.randrange(HEADER_BYTES, len(batch))] ^= random.randrange(1, 256)
        agree(bytes(batch))


@codecs
def test_random_bytes_are_refused(codec: int) -> None:
    for _ in range(200):
        junk = os.urandom(50)
        assert refusal(with_body(junk, codec)) is ErrorCode.INVALID_RECORD
        assert refusal(with_body(compress(codec, junk), codec)) is ErrorCode.INVALID_RECORD


@codecs
def test_a_count_above_the_bytes_is_refused_before_any_record(codec: int) -> None:
    costs: list[int] = []
    batch = with_body(compress(codec, b"\x0c\0\0\0\1\1\0\0"), codec, (1 << 31) - 1)
    with pytest.raises(KafkaError, match="8 bytes cannot hold 2147483647 records"):
        check(batch, costs=costs)
    assert sum(costs) <= 64


@codecs
def test_bytes_after_the_last_record_are_refused(codec: int) -> None:
    body = build_batch([Record(0, START, b"k", b"v")])[HEADER_BYTES:]
    assert refusal(with_body(compress(codec, body + b"\0"), codec)) is ErrorCode.INVALID_RECORD


@codecs
def test_records_that_decompress_above_the_limit_are_too_large(codec: int) -> None:
    batch = build_batch([Record(0, START, b"k", bytes(5 << 20))], codec=codec)
    if codec:
        assert refusal(batch, bytes_max=1 << 20) is ErrorCode.MESSAGE_TOO_LARGE
    assert check(batch, bytes_max=6 << 20).keyless == []


@pytest.mark.proves("checks-block")
@codecs
def test_the_cost_of_each_step_is_bounded(codec: int) -> None:
    """Other requests are served between two steps. Not so for lz4 and zstd, which cannot be interrupted."""
    costs: list[int] = []
    rows = [Record(n, START, None, b"v" * (n % 50)) for n in range(50_000)]
    check(build_batch([*rows, Record(50_000, START, None, bytes(20 << 20))], codec=codec), costs=costs)
    assert len(costs) > 40
    assert max(costs) <= (32 << 20 if codec in (3, 4) else 9 << 20)
    assert STRETCH_ROWS_MAX * ROW_COST <= 1 << 20


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 255))
@settings(max_examples=60)
def test_decompression_in_steps_gives_the_same_bytes(codec: int, data: bytes, at: int, flip: int) -> None:
    blob = bytearray(compress(codec, data))
    blob[at % len(blob)] ^= flip
    try:
        whole = decompress(codec, blob, 1 << 20)
    except CorruptBatch:
        whole = None
    try:
        stepped: bytes | None = bytes(finish(inflating(codec, blob, 1 << 20)))
    except CorruptBatch:
        stepped = None
    if codec != 1:  # of a damaged gzip member one library sees more than the other
        assert stepped == whole
    elif not flip:
        assert stepped == data


def test_a_batch_without_base_timestamp_gives_no_timestamps() -> None:
    batch = build_batch([Record(0, NO_TIMESTAMP, None, b"v")])
    assert (check(batch).min_timestamp, check(batch).max_timestamp) == (NO_TIMESTAMP, NO_TIMESTAMP)
