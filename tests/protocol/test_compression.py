"""The four codecs, both snappy formats, and the limit on the decompressed size."""

import tracemalloc

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_protocol.batch import CorruptBatch
from semel_protocol.compression import CODECS, GZIP, LZ4, NO_ROOM, SNAPPY, ZSTD, compress, decompress
from semel_protocol.errors import ErrorCode, KafkaError

COMPRESSING = [GZIP, SNAPPY, LZ4, ZSTD]
MIB = 1 << 20


@settings(max_examples=60)
@given(codec=st.sampled_from(sorted(CODECS.values())), data=st.binary(max_size=3000), times=st.integers(0, 100))
def test_round_trip(codec: int, data: bytes, times: int) -> None:
    data *= times
    blob = compress(codec, data)
    assert isinstance(blob, bytes)
    assert decompress(codec, blob, len(data)) == data
    assert decompress(codec, memoryview(blob)) == data
    assert decompress(codec, bytearray(blob)) == data


@pytest.mark.parametrize(
    ("codec", "magic"),
    [(GZIP, "1f8b08"), (SNAPPY, "82534e4150505900 00000001 00000001"), (LZ4, "04224d18"), (ZSTD, "28b52ffd")],
)
def test_blobs_have_the_format_of_kafka_clients(codec: int, magic: str) -> None:
    assert compress(codec, b"hello " * 100).startswith(bytes.fromhex(magic))


def test_lz4_blocks_are_independent_since_java_reads_no_others() -> None:
    flags = compress(LZ4, b"hello " * 100_000)[4]
    assert flags >> 6 == 1, "frame version"
    assert flags & 0x20, "block independence"


@pytest.mark.parametrize("codec", COMPRESSING)
def test_level_does_not_change_the_decompressed_bytes(codec: int) -> None:
    data = b"".join(b"%d," % (n * n) for n in range(5000))
    assert decompress(codec, compress(codec, data, 9)) == data


def test_a_bare_snappy_block_is_read() -> None:
    data = b"hello " * 1000
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_large_output_needs_no_declared_size() -> None:
    data = b"abcdefgh" * MIB
    compressor = cramjam.zstd.Compressor()
    compressor.compress(data)
    streamed = bytes(compressor.finish())
    assert decompress(ZSTD, streamed) == data
    assert decompress(LZ4, compress(LZ4, data)) == data


@pytest.mark.parametrize("codec", list(CODECS.values()))
def test_output_one_byte_above_the_limit_is_refused(codec: int) -> None:
    blob = compress(codec, bytes(10_000))
    assert len(decompress(codec, blob, 10_000)) == 10_000
    with pytest.raises(CorruptBatch, match="at most 9999 bytes"):
        decompress(codec, blob, 9_999)


@pytest.mark.proves("decompression-bomb")
@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_decompression_bomb_takes_no_memory_above_the_limit(codec: int) -> None:
    bomb = compress(codec, bytes(64 * MIB))
    tracemalloc.start()
    with pytest.raises(CorruptBatch):
        decompress(codec, bomb, 2 * MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 * MIB


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_declared_size_alone_takes_no_memory(codec: int) -> None:
    liars = {
        GZIP: compress(GZIP, b"x" * 100)[:-4] + b"\xff\xff\xff\x7f",
        SNAPPY: b"\xff\xff\xff\x2f" + b"\x00x",
        LZ4: compress(LZ4, b"x" * 100)[:-8],
        ZSTD: bytes.fromhex("28b52ffd a0 ffffff05") + b"\x01\x00\x00",
    }
    tracemalloc.start()
    with pytest.raises(CorruptBatch):
        decompress(codec, liars[codec])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MIB


def test_unknown_codec_is_unsupported() -> None:
    with pytest.raises(KafkaError) as caught:
        decompress(5, b"data")
    assert caught.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@settings(max_examples=150)
@given(codec=st.sampled_from(COMPRESSING), data=st.data())
def test_mutated_blobs_raise_only_corrupt_batch(codec: int, data: st.DataObject) -> None:
    blob = bytearray(compress(codec, b"some record bytes " * 20))
    for _ in range(data.draw(st.integers(1, 3))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    blob = blob[: data.draw(st.integers(0, len(blob)))]
    try:
        decompress(codec, blob, MIB)
    except CorruptBatch:
        pass


@given(codec=st.sampled_from(COMPRESSING), blob=st.binary(max_size=100))
def test_random_bytes_raise_only_corrupt_batch(codec: int, blob: bytes) -> None:
    try:
        decompress(codec, blob, MIB)
    except CorruptBatch:
        pass


@pytest.mark.parametrize("module", [cramjam.gzip, cramjam.lz4, cramjam.zstd])
def test_cramjam_error_for_a_small_buffer_is_the_expected_text(module: object) -> None:
    blob = bytes(module.compress(bytes(1000)))
    with pytest.raises(cramjam.DecompressionError, match=f"^{NO_ROOM}$"):
        module.decompress_into(blob, bytearray(999))
