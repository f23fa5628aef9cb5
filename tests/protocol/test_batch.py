"""Batch headers: fields, CRC, the checks of Produce, and fields rewritten in place."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from protocol.record_strategies import vectors
from semel_protocol.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    check_produced,
    crc_ok,
    iterate,
    pack_batch,
    read_header,
    stamp,
    stamp_log_append_time,
)
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.records import Record, build_batch, decode_batch

RECORDS = [Record(0, 1_000, None, b"a"), Record(1, 1_005, b"k", b"b"), Record(2, 1_003, None, None)]
PLAIN = build_batch(RECORDS)
IDEMPOTENT = build_batch(RECORDS, producer_id=7, producer_epoch=1, base_sequence=4)


def vector(name: str) -> bytes:
    return bytes.fromhex(vectors(name)[0][1])


def altered(batch: bytes, **fields: int) -> bytes:
    """The batch with header fields replaced and a matching CRC."""
    return pack_batch(replace(read_header(batch), **fields), batch[HEADER_BYTES:])


def refusal(records: bytes | None, *, produce_version: int = 7, **kwargs: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        check_produced(records, produce_version=produce_version, **kwargs)
    assert caught.value.message
    return caught.value.code


def test_crc_is_castagnoli() -> None:
    assert crc32c(b"123456789") == int(vectors('crc32c("123456789") =')[0][0], 16)


@pytest.mark.parametrize("name", ["batch ", "commit ", "abort ", "empty "])
def test_header_of_each_vector_is_read_and_packed_to_the_same_bytes(name: str) -> None:
    batch = vector(name)
    header = read_header(batch)
    assert header.size == len(batch) == int(vectors(name)[0][0])
    assert crc_ok(batch, header)
    assert pack_batch(header, batch[HEADER_BYTES:]) == batch


def test_vector_header_fields() -> None:
    header = read_header(vector("batch "))
    assert (header.base_offset, header.last_offset, header.next_offset) == (5, 6, 7)
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_000_000_007)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (1234, 2, 0, 1)
    assert header.is_transactional
    assert not header.is_control
    assert header.codec == 0
    marker = read_header(vector("commit "))
    assert marker.is_control
    assert marker.last_sequence == -1
    empty = read_header(vector("empty "))
    assert (empty.record_count, empty.last_offset, empty.base_sequence, empty.last_sequence) == (0, 11, 5, 7)


@pytest.mark.parametrize(
    ("base", "delta", "last"), [(2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 5, 2), (-1, 5, -1)]
)
def test_last_sequence_wraps_to_zero(base: int, delta: int, last: int) -> None:
    header = read_header(altered(IDEMPOTENT, base_sequence=base, last_offset_delta=delta))
    assert header.last_sequence == last


def test_delete_horizon_is_in_the_base_timestamp() -> None:
    assert read_header(PLAIN).delete_horizon_ms is None
    assert read_header(altered(PLAIN, attributes=DELETE_HORIZON, base_timestamp=99)).delete_horizon_ms == 99


@given(st.integers(0, HEADER_BYTES - 1))
def test_header_needs_61_bytes(size: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(PLAIN[:size])


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_a_batch_length_below_the_minimum_is_refused(length: int) -> None:
    with pytest.raises(CorruptBatch, match="batch length"):
        read_header(PLAIN[:8] + length.to_bytes(4, "big", signed=True) + PLAIN[12:])


@pytest.mark.parametrize("magic", [0, 1, 3, 255])
def test_other_magic_than_2_is_refused(magic: int) -> None:
    with pytest.raises(CorruptBatch, match="magic"):
        read_header(PLAIN[:16] + bytes((magic,)) + PLAIN[17:])


def test_iterate_stops_at_every_cut_of_the_last_batch() -> None:
    for cut in range(len(IDEMPOTENT)):
        found = list(iterate(PLAIN + IDEMPOTENT[:cut]))
        assert [(header, bytes(view)) for header, view in found] == [(read_header(PLAIN), PLAIN)]
    assert [bytes(view) for _, view in iterate(PLAIN + IDEMPOTENT)] == [PLAIN, IDEMPOTENT]
    assert list(iterate(b"")) == []


def test_any_flipped_bit_under_the_crc_is_detected() -> None:
    header = read_header(PLAIN)
    assert crc_ok(PLAIN, header)
    for at in range(21, len(PLAIN)):
        damaged = bytearray(PLAIN)
        damaged[at] ^= 0x10
        assert not crc_ok(damaged, header)
    assert not crc_ok(PLAIN[:-1], header)


@given(st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1))
def test_stamp_does_not_change_the_crc(base_offset: int, leader_epoch: int) -> None:
    batch = bytearray(PLAIN)
    stamp(batch, base_offset, leader_epoch)
    header = read_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (base_offset, leader_epoch)
    assert crc_ok(batch, header)
    assert batch[16:] == PLAIN[16:]


def test_log_append_time_is_every_records_timestamp() -> None:
    batch = bytearray(IDEMPOTENT)
    stamp_log_append_time(batch, 5_000)
    header = read_header(batch)
    assert crc_ok(batch, header)
    assert header.log_append_time
    assert [record.timestamp for record in decode_batch(batch)] == [5_000] * 3
    assert [record.value for record in decode_batch(batch)] == [record.value for record in RECORDS]


def test_valid_produced_batches_are_accepted() -> None:
    assert check_produced(PLAIN, produce_version=3) == read_header(PLAIN)
    assert check_produced(memoryview(IDEMPOTENT), produce_version=7, bytes_max=len(IDEMPOTENT)).base_sequence == 4
    transactional = altered(IDEMPOTENT, attributes=TRANSACTIONAL)
    assert check_produced(transactional, produce_version=7, transactional=True).is_transactional


def test_other_than_exactly_one_batch_is_refused() -> None:
    assert refusal(None) == ErrorCode.INVALID_RECORD
    assert refusal(b"") == ErrorCode.INVALID_RECORD
    assert refusal(PLAIN + IDEMPOTENT) == ErrorCode.INVALID_RECORD
    assert refusal(PLAIN + b"\x00") == ErrorCode.INVALID_RECORD


@pytest.mark.proves("old-message-formats")
@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_with_a_reason(magic: int) -> None:
    old = bytes(8) + (22).to_bytes(4, "big") + bytes(4) + bytes((magic,)) + bytes(17)
    with pytest.raises(KafkaError, match=f"format v{magic}") as caught:
        check_produced(old, produce_version=3)
    assert caught.value.code == ErrorCode.INVALID_RECORD


def test_every_cut_of_a_produced_batch_is_refused() -> None:
    for cut in range(1, len(PLAIN)):
        assert refusal(PLAIN[:cut]) == ErrorCode.CORRUPT_MESSAGE


def test_a_wrong_crc_is_corrupt() -> None:
    assert refusal(PLAIN[:-1] + b"\x7f") == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.proves("invalid-batch")
@pytest.mark.parametrize("fields", [{"record_count": 2}, {"record_count": 0, "last_offset_delta": -1}])
def test_a_wrong_record_count_is_refused(fields: dict[str, int]) -> None:
    assert refusal(altered(PLAIN, **fields)) == ErrorCode.INVALID_RECORD


@pytest.mark.proves("client-writes-control-batches")
@pytest.mark.parametrize("attributes", [CONTROL, CONTROL | TRANSACTIONAL, DELETE_HORIZON])
def test_control_batches_and_delete_horizons_of_clients_are_refused(attributes: int) -> None:
    assert refusal(altered(IDEMPOTENT, attributes=attributes), transactional=True) == ErrorCode.INVALID_RECORD


def test_zstd_needs_produce_v7() -> None:
    zstd = build_batch(RECORDS, codec=4)
    assert refusal(zstd, produce_version=6) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert check_produced(zstd, produce_version=7).codec == 4


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    assert refusal(altered(PLAIN, attributes=codec)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_batches_above_the_limit_are_too_large() -> None:
    assert refusal(PLAIN, bytes_max=len(PLAIN) - 1) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("missing", ["producer_epoch", "base_sequence"])
def test_a_producer_id_needs_an_epoch_and_a_sequence(missing: str) -> None:
    assert refusal(altered(IDEMPOTENT, **{missing: -1})) == ErrorCode.INVALID_RECORD


def test_epoch_and_sequence_are_ignored_without_a_producer_id() -> None:
    """franz-go, sarama and kafkajs write sequence 0 into batches of producers that are not idempotent."""
    header = check_produced(altered(PLAIN, base_sequence=0), produce_version=7)
    assert not header.has_producer_id
    check_produced(altered(IDEMPOTENT, producer_id=-1), produce_version=7)


def test_transactional_batches_need_a_producer_and_a_transactional_id() -> None:
    assert refusal(altered(PLAIN, attributes=TRANSACTIONAL), transactional=True) == ErrorCode.INVALID_RECORD
    assert refusal(altered(IDEMPOTENT, attributes=TRANSACTIONAL)) == ErrorCode.INVALID_RECORD


@given(st.binary(max_size=200))
def test_random_bytes_raise_a_kafka_error(data: bytes) -> None:
    refusal(data)


@pytest.mark.proves("invalid-batch")
@given(st.data())
def test_a_mutated_batch_is_refused_or_differs_outside_the_crc(data: st.DataObject) -> None:
    batch = bytearray(IDEMPOTENT)
    at = data.draw(st.integers(0, len(batch) - 1))
    batch[at] ^= data.draw(st.integers(1, 255))
    try:
        header = check_produced(batch, produce_version=7)
    except KafkaError:
        return
    assert isinstance(header, BatchHeader)
    assert at < 8 or 12 <= at < 16
