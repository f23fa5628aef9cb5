"""Batches of a single record: the same rows and the same errors as `decode_columns`."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.record_strategies import record_lists
from semel_protocol import single_records
from semel_protocol.batch import CorruptBatch, iterate
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.records import Record, build_batch, decode_columns
from semel_protocol.single_records import build_single, read_rows

Row = tuple[bytes | None, bytes | None]
MARKER = build_marker(EndTxnMarker(ControlType.COMMIT, 1), producer_id=1, producer_epoch=0, timestamp_ms=5)


@st.composite
def journals(draw: st.DrawFn) -> bytes:
    """Consecutive batches: most of one small record, some of other kinds, markers, sometimes a truncated last one."""
    blobs = st.binary(max_size=300)
    simple = st.builds(lambda key, value: [Record(0, 5, key, value)], blobs, st.none() | blobs)
    kinds = st.one_of(
        simple.map(build_batch),
        simple.map(build_batch),
        st.builds(lambda rows, codec: build_batch(rows, codec=codec), record_lists(3), st.sampled_from([0, 1, 4])),
        st.just(MARKER),
    )
    data = b"".join(draw(st.lists(kinds, max_size=6)))
    return data[: len(data) - draw(st.integers(0, 3))]


def by_the_long_way(data: bytes) -> tuple[list[Row], int]:
    rows: list[Row] = []
    next_offset = -1
    for header, batch in iterate(data):
        next_offset = header.next_offset
        if not header.is_control:
            columns = decode_columns(batch, header)
            rows += zip(columns.keys, columns.values, strict=True)
    return rows, next_offset


def by_the_short_cut(data: bytes) -> tuple[list[Row], int]:
    rows = read_rows(data)
    return list(zip(rows.keys, rows.values, strict=True)), rows.next_offset


@given(journals())
def test_rows_equal_those_of_decode_columns(data: bytes) -> None:
    assert by_the_short_cut(data) == by_the_long_way(data)


@given(journals().filter(len), st.data())
def test_damage_raises_the_same_error_as_decode_columns(whole: bytes, draw: st.DataObject) -> None:
    data = bytearray(whole)
    for _ in range(draw.draw(st.integers(1, 3))):
        data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    same_result(bytes(data))


def same_result(data: bytes) -> None:
    assert outcome(by_the_short_cut, data) == outcome(by_the_long_way, data)


def outcome(read: Callable[[bytes], tuple[list[Row], int]], data: bytes) -> tuple[list[Row], int] | ErrorCode:
    """The rows, or the code of the error: CORRUPT_MESSAGE, or UNSUPPORTED_COMPRESSION_TYPE for an unknown codec."""
    try:
        return read(data)
    except KafkaError as error:
        return error.code


def test_an_unknown_codec_raises_the_same_error_as_decode_columns() -> None:
    data = bytearray(build_batch([Record(0, 5, b"k" * 70, b"v" * 90)]))
    data[22] = 5  # the low byte of the attributes
    with pytest.raises(KafkaError, match="codec 5 is unknown"):
        read_rows(bytes(data))
    same_result(bytes(data))


def test_every_damaged_byte_raises_the_same_error_as_decode_columns() -> None:
    whole = build_batch([Record(0, 5, b"k" * 70, b"v" * 90)]) + build_batch([Record(0, 5, b"key", b"value")])
    for at in range(len(whole)):
        for byte in (0, 1, 2, 0x7F, 0x80, 0x81, 0xFF, whole[at] ^ 1, whole[at] ^ 2):
            same_result(whole[:at] + bytes([byte]) + whole[at + 1 :])


def test_batches_with_the_same_head_but_other_layouts_are_read() -> None:
    """Two records of one length: the end of the key of one is in the middle of the other's key."""
    one = build_batch([Record(0, 5, b"kkk", b"vvvvv")])
    other = build_batch([Record(0, 5, b"kkkk", b"vvvv")])
    assert len(one) == len(other)
    damaged = bytearray(one)
    damaged[-1] = 2  # says that a header follows
    for data in (one + other + one, other + one + other):
        assert by_the_short_cut(data) == by_the_long_way(data)
    with pytest.raises(CorruptBatch):
        read_rows(one + bytes(damaged))


def test_a_journal_is_read_without_decode_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches as coordinators store them: one uncompressed record, keys and values of up to some thousand bytes."""
    data = b"".join(build_batch([Record(0, 5, b"k" * size, b"v" * size)]) for size in (1, 63, 64, 127, 128, 4000))
    monkeypatch.delattr(single_records, "decode_columns")
    assert [len(key or b"") for key in read_rows(data).keys] == [1, 63, 64, 127, 128, 4000]


@given(st.binary(max_size=300), st.none() | st.binary(max_size=300), st.integers(0, 2**62))
def test_build_single_gives_the_bytes_of_build_batch(key: bytes, value: bytes | None, timestamp_ms: int) -> None:
    assert build_single(key, value, timestamp_ms) == build_batch([Record(0, timestamp_ms, key, value)])
