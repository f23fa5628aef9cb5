"""Recompresses a batch with another codec, for topics with a `compression.type` (levels: KIP-390).

The work is done in slices, so that the caller can run other work between them. The caller limits the decompressed
size. A zstd, lz4 or snappy blob is decompressed in one step, which takes 1 ms for 1 MiB. gzip takes ten times as long
and is decompressed in slices. All codecs compress in slices.
"""

import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, Protocol

import cramjam
from msgspec.structs import replace

from semel_protocol.batch import CODEC_MASK, HEADER_BYTES, BatchHeader, Bytes, CorruptBatch, pack_batch
from semel_protocol.compression import (
    GZIP,
    GZIP_LEVEL,
    LZ4,
    LZ4_LEVEL,
    NONE,
    SNAPPY,
    XERIAL_CHUNK_BYTES,
    XERIAL_HEADER,
    ZSTD,
    InflatesTooLarge,
    decompress,
)

SLICE_BYTES: Final = XERIAL_CHUNK_BYTES
"""Record bytes compressed or gunzipped between two pauses: up to 5 ms of work at the slowest level."""
GZIP_WINDOW: Final = 31
"""wbits of zlib: the gzip format with the largest window."""

GZIP_DEFAULT: Final = -1
LZ4_DEFAULT: Final = 9
"""At this level Java's client uses the fast compressor, at every other level the high compressor."""
LZ4_HIGH_LEVELS: Final = (3, 12)
"""The levels of the high compressor in liblz4."""

Steps = Generator[int, None, bytes]
"""Yields the number of bytes processed since the last pause; returns the batch."""


class Compressor(Protocol):
    """Compresses the records slice by slice."""

    def compress(self, data: bytes, /) -> object: ...
    def finish(self) -> Any: ...


def recompress(batch: Bytes, header: BatchHeader, codec: int, level: int, bytes_max: int) -> Steps:
    """Recompress the batch at the start of `batch` with `codec`, at Kafka's `level` of that codec.

    Offsets, timestamps, producer fields and all attributes but the codec stay; the CRC is computed again. Raises
    InflatesTooLarge above `bytes_max` bytes of records, CorruptBatch if the blob is invalid.
    """
    body = memoryview(batch)[HEADER_BYTES : header.size]
    records: Bytes = body if header.codec == NONE else (yield from _inflated(header.codec, body, bytes_max))
    if len(records) > bytes_max:
        raise InflatesTooLarge(f"the records have {len(records)} bytes, at most {bytes_max} bytes are allowed")
    changed = replace(header, attributes=header.attributes & ~CODEC_MASK | codec)
    if codec == NONE:
        return pack_batch(changed, bytes(records))
    compressor = _COMPRESSORS[codec](level)
    view = memoryview(records)
    for at in range(0, len(view), SLICE_BYTES):
        part = bytes(view[at : at + SLICE_BYTES])  # cramjam compressors do not accept a memoryview
        compressor.compress(part)
        yield len(part)
    return pack_batch(changed, bytes(compressor.finish()))


def _inflated(codec: int, blob: memoryview, bytes_max: int) -> Generator[int, None, Bytes]:
    if codec != GZIP:
        records = decompress(codec, blob, bytes_max)
        yield 0
        return records
    gathered = bytearray()
    for part in _gunzipped(blob):
        gathered += part
        if len(gathered) > bytes_max:
            raise InflatesTooLarge(f"the records decompress to more, at most {bytes_max} bytes are allowed")
        yield len(part)
    return gathered


def _gunzipped(blob: memoryview) -> Iterator[bytes]:
    """Yield slices of the first gzip member; bytes after it are ignored, as in Java."""
    inflater = zlib.decompressobj(GZIP_WINDOW)
    rest: Bytes = blob
    try:
        while not inflater.eof:
            part = inflater.decompress(rest, SLICE_BYTES)
            rest = inflater.unconsumed_tail
            if not part and not rest and not inflater.eof:
                raise CorruptBatch(f"the gzip blob is cut short after {len(blob)} bytes")
            yield part
    except zlib.error as error:
        raise CorruptBatch(f"{len(blob)} bytes are not a valid gzip blob: {error}") from error


class _Xerial:
    """Snappy with Java's xerial framing: each slice is one chunk."""

    def __init__(self) -> None:
        self._out = bytearray(XERIAL_HEADER)

    def compress(self, data: bytes, /) -> None:
        block = bytes(cramjam.snappy.compress_raw(data))
        self._out += len(block).to_bytes(4, "big")
        self._out += block

    def finish(self) -> bytearray:
        return self._out


def _lz4(level: int) -> Compressor:
    low, high = LZ4_HIGH_LEVELS
    compressor: Compressor = cramjam.lz4.Compressor(
        LZ4_LEVEL if level == LZ4_DEFAULT else min(max(level, low), high), False, False
    )
    return compressor


def _gzip(level: int) -> Compressor:
    compressor: Compressor = cramjam.gzip.Compressor(GZIP_LEVEL if level == GZIP_DEFAULT else level)
    return compressor


def _zstd(level: int) -> Compressor:
    compressor: Compressor = cramjam.zstd.Compressor(level)
    return compressor


_COMPRESSORS: dict[int, Callable[[int], Compressor]] = {
    GZIP: _gzip,
    SNAPPY: lambda _: _Xerial(),
    LZ4: _lz4,
    ZSTD: _zstd,
}
