"""Recompression of batches: fields that stay and change, slices, and refused batches."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from semel_protocol.batch import CODEC_MASK, CorruptBatch, check_produced, pack_batch, read_header
from semel_protocol.compression import CODECS, GZIP, LZ4, NONE, SNAPPY, ZSTD, InflatesTooLarge, compress
from semel_protocol.recompression import SLICE_BYTES, Steps, recompress
from semel_protocol.records import Record, build_batch, decode_batch

LEVELS = {NONE: (0,), GZIP: (-1, 1, 9), SNAPPY: (0,), LZ4: (1, 9, 12, 17), ZSTD: (-131072, -1, 0, 3, 10)}
MIB = 1 << 20


def records(count: int, value: bytes = b"value") -> list[Record]:
    return [Record(i, 1_700_000_000_000 + i, b"%d" % i, value, (("h", b"x"),)) for i in range(count)]


def done(steps: Steps) -> tuple[bytes, list[int]]:
    slices: list[int] = []
    while True:
        try:
            slices.append(next(steps))
        except StopIteration as end:
            return end.value, slices


@given(
    source=st.sampled_from(sorted(CODECS.values())),
    target=st.sampled_from([(codec, level) for codec, levels in LEVELS.items() for level in levels]),
    count=st.integers(1, 60),
    value=st.binary(max_size=2000),
    transactional=st.booleans(),
)
def test_only_codec_length_and_crc_change(
    source: int, target: tuple[int, int], count: int, value: bytes, transactional: bool
) -> None:
    batch = build_batch(
        records(count, value),
        codec=source,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        is_transactional=transactional,
    )
    header = read_header(batch)
    again, _ = done(recompress(batch, header, *target, MIB))
    changed = check_produced(again, produce_version=7, transactional=True)
    assert changed.codec == target[0]
    assert changed.attributes & ~CODEC_MASK == header.attributes & ~CODEC_MASK
    for field in header.__struct_fields__:
        if field not in ("attributes", "batch_length", "crc"):
            assert getattr(changed, field) == getattr(header, field), field
    assert decode_batch(again) == decode_batch(batch)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_recompression_works_in_slices(codec: int) -> None:
    value = random.Random(1).randbytes(1000)
    batch = build_batch(records(500, value), codec=GZIP)
    _, slices = done(recompress(batch, read_header(batch), codec, LEVELS[codec][0], MIB))
    assert max(slices) <= SLICE_BYTES
    assert len(slices) > 2 * 500_000 // SLICE_BYTES, "out of gzip, and into the other"


@pytest.mark.parametrize("source", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_records_above_the_limit_are_refused(source: int) -> None:
    batch = build_batch(records(10, bytes(100_000)), codec=source)
    for target in (NONE, LZ4):
        with pytest.raises(InflatesTooLarge):
            done(recompress(batch, read_header(batch), target, 9, 200_000))


@pytest.mark.parametrize("source", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("damage", ["garbage", "cut", "empty"])
def test_an_invalid_blob_is_corrupt(source: int, damage: str) -> None:
    blob = compress(source, random.Random(2).randbytes(5000))
    bad = {"garbage": b"\x00garbage" * 5, "cut": blob[:-20], "empty": b""}[damage]
    batch = pack_batch(read_header(build_batch(records(1), codec=source)), bad)
    with pytest.raises(CorruptBatch):
        done(recompress(batch, read_header(batch), NONE, 0, MIB))


def test_bytes_after_a_gzip_member_are_ignored_as_in_java() -> None:
    batch = build_batch(records(5), codec=GZIP)
    longer = pack_batch(read_header(batch), batch[61:] + b"trailing")
    again, _ = done(recompress(longer, read_header(longer), NONE, 0, MIB))
    assert decode_batch(again) == records(5)
