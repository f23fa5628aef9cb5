"""Records: round trips, the same bytes as other clients write, and refusal of invalid records."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from protocol.record_strategies import record_lists, vectors
from semel_protocol.batch import (
    DELETE_HORIZON,
    HEADER_BYTES,
    TRANSACTIONAL,
    CorruptBatch,
    check_produced,
    crc_ok,
    pack_batch,
    read_header,
    stamp,
)
from semel_protocol.compression import CODECS
from semel_protocol.errors import KafkaError
from semel_protocol.records import (
    BatchBuilder,
    Record,
    build_batch,
    decode_batch,
    decode_columns,
    encode_record,
    rebuild_batch,
    record_bytes_max,
)

codecs = st.sampled_from(sorted(CODECS.values()))
START = 1_700_000_000_000
VECTOR = bytes.fromhex(vectors("batch ")[0][1])
VECTOR_RECORDS = [
    Record(5, START, None, b"hello"),
    Record(6, START + 7, b"k", None, (("h", b"v"), ("n", None))),
]


def build(records: list[Record], codec: int = 0) -> bytes:
    """The batch of the records by BatchBuilder."""
    builder = BatchBuilder(codec, 1 << 30)
    for row, record in enumerate(records):
        assert builder.append(record.timestamp, record.key, record.value, record.headers) == row
    return builder.build(-1, -1, -1)


def with_body(body: bytes, count: int, last_delta: int | None = None) -> bytes:
    """A batch of any body, with a matching CRC."""
    header = read_header(build_batch([Record(0, 0)]))
    last = count - 1 if last_delta is None else last_delta
    return pack_batch(replace(header, record_count=count, last_offset_delta=last), body)


def test_vector_decodes() -> None:
    assert decode_batch(VECTOR) == VECTOR_RECORDS
    assert decode_batch(bytes.fromhex(vectors("empty ")[0][1])) == []


def test_vector_is_what_the_builder_writes() -> None:
    builder = BatchBuilder()
    for record in VECTOR_RECORDS:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    batch = bytearray(builder.build(1234, 2, 0, is_transactional=True))
    stamp(batch, 5, 0)
    assert batch == VECTOR


@settings(max_examples=150)
@given(record_lists(), codecs)
def test_round_trip(records: list[Record], codec: int) -> None:
    batch = build(records, codec)
    assert decode_batch(batch) == records
    header = check_produced(batch, produce_version=7)
    assert header.codec == codec
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert build_batch(records, codec=codec) == batch


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8191, 8192, 8193, 20_000])
@pytest.mark.parametrize("key", [None, b"carrier"])
def test_round_trip_of_many_equal_records(count: int, key: bytes | None) -> None:
    records = [Record(n, START + n // 10, key, b"%06d" % n) for n in range(count)]
    assert decode_batch(build(records)) == records


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 8183, 8191, 8192, 16_383, 16_384, 1_048_575, 1_048_576])
def test_round_trip_around_every_width_of_a_length(size: int) -> None:
    records = [Record(0, 0, None, b"v" * size), Record(1, 0, b"k" * size, b"v" * size), Record(2, 0, b"k" * size, None)]
    assert decode_batch(build(records)) == records


@given(record_lists(max_size=8), st.integers(0, 2**62))
def test_offsets_count_from_the_base_offset(records: list[Record], base_offset: int) -> None:
    batch = bytearray(build(records))
    stamp(batch, base_offset, 3)
    assert [record.offset for record in decode_batch(batch)] == [base_offset + n for n in range(len(records))]


def test_columns_are_equally_long() -> None:
    columns = decode_columns(VECTOR)
    assert list(columns.offsets) == [5, 6]
    assert list(columns.timestamps) == [START, START + 7]
    assert list(columns.keys) == [None, b"k"]
    assert list(columns.values) == [b"hello", None]
    assert list(columns.headers) == [(), (("h", b"v"), ("n", None))]


def test_header_keys_that_are_not_utf8_survive() -> None:
    body = b"\x00\x00\x00\x01\x01\x02" + b"\x04\xff\xfe" + b"\x02v"
    batch = with_body(bytes((len(body) * 2,)) + body, 1)
    records = decode_batch(batch)
    assert build_batch(records)[HEADER_BYTES:] == batch[HEADER_BYTES:]


# The builder


@given(record_lists(), st.integers(0, 2000))
def test_builder_exceeds_its_limit_only_for_a_single_record(records: list[Record], bytes_max: int) -> None:
    builder = BatchBuilder(0, bytes_max)
    taken = []
    for record in records:
        before = builder.size_bytes
        if builder.append(record.timestamp, record.key, record.value, record.headers) is None:
            assert builder.size_bytes == before
            break
        taken.append(record)
    assert taken
    assert builder.record_count == len(taken)
    stated = builder.size_bytes
    batch = builder.build(-1, -1, -1)
    assert len(batch) == stated == builder.size_bytes
    assert len(batch) <= bytes_max or len(taken) == 1
    assert decode_batch(batch) == taken


def test_builder_takes_exactly_up_to_the_limit() -> None:
    size = len(build([Record(0, 0, None, b"x" * 10)] * 3))
    fits, short = BatchBuilder(0, size), BatchBuilder(0, size - 1)
    assert [fits.append(0, None, b"x" * 10) for _ in range(4)] == [0, 1, 2, None]
    assert [short.append(0, None, b"x" * 10) for _ in range(4)] == [0, 1, None, None]


def test_builder_takes_no_record_after_build() -> None:
    builder = BatchBuilder()
    builder.append(0, None, b"a")
    batch = builder.build(-1, -1, -1)
    assert builder.append(0, None, b"b") is None
    assert builder.append(0, None, None) is None
    assert builder.build(-1, -1, -1) == batch


@given(record_lists(max_size=5), codecs)
def test_rebuilding_changes_the_producer_state_and_nothing_else(records: list[Record], codec: int) -> None:
    builder = BatchBuilder(codec, 1 << 30)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    first = builder.build(7, 1, 20)
    second = builder.build(7, 2, 0, is_transactional=True)
    assert builder.size_bytes == len(first) == len(second)
    assert first[HEADER_BYTES:] == second[HEADER_BYTES:]
    before, after = read_header(first), read_header(second)
    assert (before.producer_id, before.producer_epoch, before.base_sequence) == (7, 1, 20)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (7, 2, 0)
    assert after.attributes == before.attributes | TRANSACTIONAL
    assert crc_ok(first, before)
    assert crc_ok(second, after)


@given(record_lists(max_size=1))
def test_record_bytes_max_is_an_upper_bound(records: list[Record]) -> None:
    (record,) = records
    bound = record_bytes_max(record.key, record.value, record.headers)
    assert len(build(records)) <= bound <= len(build(records)) + 40 + 10 * len(record.headers)


# Compaction


@given(record_lists(), codecs, st.data())
def test_rebuild_keeps_offsets_and_producer_state(records: list[Record], codec: int, data: st.DataObject) -> None:
    batch = build_batch(records, base_offset=100, codec=codec, producer_id=7, producer_epoch=1, base_sequence=40)
    header = read_header(batch)
    kept = [record for record in decode_batch(batch) if data.draw(st.booleans())]
    thin = rebuild_batch(header, kept)
    assert decode_batch(thin) == kept
    after = read_header(thin)
    assert crc_ok(thin, after)
    for name in ("base_offset", "last_offset", "producer_id", "producer_epoch", "base_sequence", "last_sequence"):
        assert getattr(after, name) == getattr(header, name)
    if kept:
        assert after.codec == codec
        assert after.max_timestamp == max(record.timestamp for record in kept)


def test_rebuild_without_records_is_the_empty_vector() -> None:
    records = [Record(n, START + 7, None, b"x") for n in range(3)]
    batch = bytearray(build_batch(records, base_offset=9, codec=1, producer_id=1234, producer_epoch=2, base_sequence=5))
    stamp(batch, 9, 0)
    assert rebuild_batch(read_header(batch), []).hex() == vectors("empty ")[0][1]


def test_delete_horizon_replaces_the_base_timestamp_and_stays() -> None:
    batch = build_batch([Record(0, 100, b"a", None), Record(1, 90, b"b", None)])
    once = rebuild_batch(read_header(batch), decode_batch(batch), delete_horizon_ms=5_000)
    assert read_header(once).delete_horizon_ms == 5_000
    assert decode_batch(once) == decode_batch(batch)
    again = rebuild_batch(read_header(once), decode_batch(once)[1:])
    assert read_header(again).attributes & DELETE_HORIZON
    assert read_header(again).delete_horizon_ms == 5_000
    assert decode_batch(again) == decode_batch(batch)[1:]


# Lies


ONE = encode_record(0, 0, b"k", b"v", [("h", b"x")])


@pytest.mark.parametrize(
    ("body", "count", "last_delta"),
    [
        pytest.param(ONE, 2, None, id="count above what is there"),
        pytest.param(ONE * 2, 1, None, id="bytes after the last record"),
        pytest.param(ONE, 2**31 - 1, None, id="count that memory could not hold"),
        pytest.param(ONE, -1, 0, id="negative count"),
        pytest.param(ONE * 2, 2, None, id="offset delta repeated"),
        pytest.param(ONE + encode_record(0, 2, None, None, []), 2, None, id="offset delta beyond the last"),
        pytest.param(ONE + encode_record(0, -1, None, None, []), 2, 5, id="negative offset delta"),
        pytest.param(encode_record(0, 5, b"", b"", []) + ONE, 2, 6, id="offset delta going back"),
        pytest.param(encode_record(0, 1, b"", b"", []), 1, None, id="first offset delta above the last"),
        pytest.param(b"\x01" + ONE[1:], 1, None, id="negative length"),
        pytest.param(bytes((ONE[0] - 2,)) + ONE[1:], 1, None, id="length one too short"),
        pytest.param(bytes((ONE[0] + 2,)) + ONE[1:], 1, None, id="length one too long"),
        pytest.param(b"\x0e\x00\x00\x00\x03\x01\x00\x00", 1, None, id="key of length -2"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x03\x00\x00", 1, None, id="value of length -2"),
        pytest.param(b"\x0e\x00\x00\x00\x7e\x01\x00\x00", 1, None, id="key beyond the end"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x7e\x00\x00", 1, None, id="value beyond the end"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x01\x01\x00", 1, None, id="negative header count"),
        pytest.param(b"\x14\x00\x00\x00\x01\x01\xfe\xff\xff\xff\x0f", 1, None, id="header count beyond the end"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", 1, None, id="header key null"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x7e\x01", 1, None, id="header key beyond the end"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x00\x7e", 1, None, id="header value beyond the end"),
        pytest.param(b"\xff" * 40, 1, None, id="varint without an end"),
    ],
)
def test_records_that_contradict_the_header_are_corrupt(body: bytes, count: int, last_delta: int | None) -> None:
    with pytest.raises(CorruptBatch):
        decode_batch(with_body(body, count, last_delta))


def test_every_cut_of_the_records_is_corrupt() -> None:
    body = VECTOR[HEADER_BYTES:]
    assert len(decode_batch(with_body(body, 2))) == 2
    for cut in range(len(body)):
        with pytest.raises(CorruptBatch):
            decode_batch(with_body(body[:cut], 2))


def test_a_cut_batch_is_corrupt() -> None:
    for cut in range(len(VECTOR)):
        with pytest.raises(CorruptBatch):
            decode_batch(VECTOR[:cut])


@settings(max_examples=300)
@given(record_lists(max_size=5), codecs, st.data())
def test_mutated_batches_raise_only_kafka_errors(records: list[Record], codec: int, data: st.DataObject) -> None:
    batch = bytearray(build(records, codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_batch(batch, bytes_max=1 << 20)
    except KafkaError:
        return
    assert len(decoded) == read_header(batch).record_count


@given(st.binary(max_size=60), st.integers(0, 10), st.integers(-1, 20))
def test_random_records_raise_only_corrupt_batch(body: bytes, count: int, last_delta: int) -> None:
    try:
        decode_batch(with_body(body, count, last_delta))
    except CorruptBatch:
        pass
