"""A batch under another codec: the same header and records, another blob (topics' `compression.type`; KIP-390 levels).

The work is cut into slices, so that the caller can do something else in between. Inflated are at most as many bytes as
the caller allows. A zstd, lz4 or snappy blob is inflated in one go, which takes 1 ms for a MiB; gzip takes ten times as
long and is inflated in slices, as all codecs compress.
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
"""Records that are compressed, or come out of gzip, between two pauses: up to 5 ms of work at the slowest level."""
GZIP_WINDOW: Final = 31
"""zlib's code for the largest window in the gzip format."""

GZIP_DEFAULT: Final = -1
LZ4_DEFAULT: Final = 9
"""Java's client takes its fast compressor at this level, and the thorough one at any other, also at lower ones."""
LZ4_THOROUGH: Final = (3, 12)
"""The levels that liblz4 has for the thorough one."""

Steps = Generator[int, None, bytes]
"""Yields the bytes it has dealt with since the last pause; returns the batch."""


class Compressor(Protocol):
    """Takes the records slice by slice."""

    def compress(self, data: bytes, /) -> object: ...
    def finish(self) -> Any: ...


def recompress(batch: Bytes, header: BatchHeader, codec: int, level: int, bytes_max: int) -> Steps:
    """The batch at the start of `batch` with its records under `codec`, at Kafka's `level` of that codec.

    Offsets, timestamps, producer state and all attributes but the codec stay; the CRC is computed anew. Raises
    InflatesTooLarge above `bytes_max` bytes of records, CorruptBatch when the blob is not what its codec says.
    """
    body = memoryview(batch)[HEADER_BYTES : header.size]
    records: Bytes = body if header.codec == NONE else (yield from _inflated(header.codec, body, bytes_max))
    if len(records) > bytes_max:
        raise InflatesTooLarge(f"the records take {len(records)} bytes, at most {bytes_max} bytes are allowed")
    changed = replace(header, attributes=header.attributes & ~CODEC_MASK | codec)
    if codec == NONE:
        return pack_batch(changed, bytes(records))
    compressor = _COMPRESSORS[codec](level)
    view = memoryview(records)
    for at in range(0, len(view), SLICE_BYTES):
        part = bytes(view[at : at + SLICE_BYTES])  # cramjam's compressors take no view
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
    """The slices of the one member that a blob is; what follows it is ignored, as in Java."""
    inflater = zlib.decompressobj(GZIP_WINDOW)
    rest: Bytes = blob
    try:
        while not inflater.eof:
            part = inflater.decompress(rest, SLICE_BYTES)
            rest = inflater.unconsumed_tail
            if not part and not rest and not inflater.eof:
                raise CorruptBatch(f"{len(blob)} bytes of gzip end too soon")
            yield part
    except zlib.error as error:
        raise CorruptBatch(f"{len(blob)} bytes are no gzip blob: {error}") from error


class _Xerial:
    """Snappy as Java frames it: each slice is a chunk of its own."""

    def __init__(self) -> None:
        self._out = bytearray(XERIAL_HEADER)

    def compress(self, data: bytes, /) -> None:
        block = bytes(cramjam.snappy.compress_raw(data))
        self._out += len(block).to_bytes(4, "big")
        self._out += block

    def finish(self) -> bytearray:
        return self._out


def _lz4(level: int) -> Compressor:
    low, high = LZ4_THOROUGH
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
