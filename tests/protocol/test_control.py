"""Transaction markers, tested with the vectors file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.record_strategies import vectors
from semel_protocol.batch import CorruptBatch, read_header, stamp
from semel_protocol.control import KEY, MARKER_BYTES, VALUE, ControlType, EndTxnMarker, build_marker, read_marker
from semel_protocol.records import Record, build_batch, rebuild_batch

MARKERS = [("commit ", EndTxnMarker(ControlType.COMMIT, 0)), ("abort ", EndTxnMarker(ControlType.ABORT, 3))]


def control_batch(*records: Record) -> bytes:
    return build_batch(records, is_control=True, is_transactional=True, producer_id=1, producer_epoch=0)


@pytest.mark.parametrize(("name", "marker"), MARKERS)
def test_vectors(name: str, marker: EndTxnMarker) -> None:
    expected = bytes.fromhex(vectors(name)[0][1])
    built = bytearray(build_marker(marker, producer_id=1234, producer_epoch=2, timestamp_ms=1_700_000_000_100))
    stamp(built, 7, 0)
    assert built == expected
    assert read_marker(expected) == marker


def test_a_marker_takes_one_offset_and_no_sequence() -> None:
    header = read_header(build_marker(MARKERS[0][1], producer_id=1, producer_epoch=0, timestamp_ms=0, base_offset=9))
    assert (header.base_offset, header.last_offset, header.base_sequence) == (9, 9, -1)
    assert header.is_control
    assert header.is_transactional


def test_other_control_types_end_no_transaction() -> None:
    assert read_marker(control_batch(Record(0, 0, b"\x00\x00\x00\x02", b"leader change"))) is None


def test_newer_versions_are_read_by_the_fields_known_today() -> None:
    newer = control_batch(Record(0, 0, b"\x00\x01\x00\x01more", b"\x00\x01\x00\x00\x00\x05more"))
    assert read_marker(newer) == EndTxnMarker(ControlType.COMMIT, 5)


@pytest.mark.parametrize(
    "records",
    [
        [Record(0, 0, None, b"\x00\x00\x00\x00\x00\x00")],
        [Record(0, 0, b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00")],
        [Record(0, 0, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00")],
        [Record(0, 0, b"\xff\xff\x00\x01", b"\x00\x00\x00\x00\x00\x00")],
        [Record(0, 0, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")] * 2,
    ],
)
def test_a_control_record_of_unknown_layout_is_corrupt(records: list[Record]) -> None:
    with pytest.raises(CorruptBatch):
        read_marker(control_batch(*records))


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_any_control_record_is_a_marker_or_none_or_corrupt(key: bytes, value: bytes) -> None:
    try:
        marker = read_marker(control_batch(Record(0, 0, key, value)))
    except CorruptBatch:
        return
    assert marker is None or isinstance(marker, EndTxnMarker)


@given(st.sampled_from(ControlType), st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**60), st.integers(0, 2**31 - 1))
def test_markers_are_the_bytes_of_the_record_encoder(
    control_type: ControlType, coordinator_epoch: int, timestamp_ms: int, producer_id: int
) -> None:
    marker = EndTxnMarker(control_type, coordinator_epoch)
    built = build_marker(marker, producer_id=producer_id, producer_epoch=3, timestamp_ms=timestamp_ms)
    key, value = KEY.pack(0, control_type), VALUE.pack(0, coordinator_epoch)
    assert built == build_batch(
        [Record(0, timestamp_ms, key, value)],
        is_control=True,
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=3,
    )
    assert len(built) == MARKER_BYTES
    assert read_marker(built) == marker


def test_a_marker_emptied_by_compaction_is_read_as_none() -> None:
    batch = build_marker(MARKERS[0][1], producer_id=1, producer_epoch=0, timestamp_ms=0)
    assert read_marker(rebuild_batch(read_header(batch), [])) is None
