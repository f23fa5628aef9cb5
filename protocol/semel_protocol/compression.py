"""The four compression codecs of record batches, in the formats of Kafka clients, with a limit on the output size.

gzip is one RFC 1952 member, lz4 one LZ4 *frame* of independent blocks (Java refuses dependent ones), zstd one frame.
snappy is written with the xerial framing that Java writes, and read with it or as the one bare block that librdkafka
and franz-go send. Output goes into a buffer that grows in steps up to `bytes_max`, so that a decompression bomb
takes no more memory than allowed. A declared size alone never causes an allocation.
"""

import zlib
from collections.abc import Callable, Generator, Iterator

import cramjam

from semel_protocol.batch import Bytes, CorruptBatch
from semel_protocol.errors import ErrorCode, KafkaError

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4

CODECS: dict[str, int] = {"none": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""Kafka's names (compression.type) to the codec in a batch's attributes."""
CODEC_NAMES: dict[int, str] = {codec: name for name, codec in CODECS.items()}

BYTES_MAX = 100 * 1024 * 1024
"""Default limit on decompressed records: Kafka's default of socket.request.max.bytes."""

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2
XERIAL_CHUNK_BYTES = 32 * 1024
SNAPPY_RATIO_MAX = 22
"""A snappy copy of 64 bytes takes three bytes, so the declared size is at most this multiple of the input."""

FIRST_ROOM_RATIO = 8
FIRST_ROOM_BYTES_MIN = 4096
ROOM_GROWTH = 4
NO_ROOM = "failed to write whole buffer"
"""The error text of cramjam if the output does not fit into the buffer."""

STEP_BYTES = 2 << 20
"""Output bytes of one step of `inflating`, for codecs that can be interrupted: 1 to 2 ms of work."""
GZIP_WINDOW = 31
"""wbits of zlib: a gzip member with a window of 32 KiB."""
GZIP_COST = 4
"""gzip decompresses about this many times slower than the other codecs."""

GZIP_LEVEL = 6
LZ4_LEVEL = 1
ZSTD_LEVEL = 3


class InflatesTooLarge(CorruptBatch):
    """The blob decompresses to more bytes than allowed; it may be valid otherwise."""


def compress(codec: int, data: Bytes, level: int | None = None) -> bytes:
    """Compress `data` with `codec` (0 to 4). `level`: of that codec; by default that of Kafka's producer."""
    return _COMPRESS[codec](data, level)


def decompress(codec: int, data: Bytes, bytes_max: int = BYTES_MAX) -> bytes:
    """Decompress a blob of `codec`.

    Raises CorruptBatch if the blob is invalid, its subclass InflatesTooLarge if the result would exceed `bytes_max`
    bytes, KafkaError UNSUPPORTED_COMPRESSION_TYPE for an unknown codec.
    """
    inflate = _DECOMPRESS.get(codec)
    if inflate is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} is unknown; codecs 0 to {ZSTD} are supported"
        )
    try:
        return inflate(data, bytes_max)
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"{len(data)} bytes are not a valid {CODEC_NAMES[codec]} blob: {error}") from error


def inflating(codec: int, data: Bytes, bytes_max: int) -> Generator[int, None, bytearray]:
    """Decompress as `decompress` does, in steps. Each step yields its cost in bytes of output.

    STEP_BYTES bounds a step of gzip and of snappy in chunks. lz4 and zstd cannot be interrupted: each step tries a
    larger buffer, and the last step takes 5 to 30 ms for 32 MiB. Raises as `decompress`.
    """
    try:
        if codec == GZIP:
            return (yield from _inflating_gzip(data, bytes_max))
        if codec == SNAPPY:
            return (yield from _inflating_snappy(data, bytes_max))
        into = {LZ4: cramjam.lz4.decompress_into, ZSTD: cramjam.zstd.decompress_into}[codec]
        return (yield from _inflating_at_once(into, data, _declared(codec, data, bytes_max), bytes_max))
    except (cramjam.DecompressionError, zlib.error) as error:
        raise CorruptBatch(f"{len(data)} bytes are not a valid {CODEC_NAMES[codec]} blob: {error}") from error


def _declared(codec: int, data: Bytes, bytes_max: int) -> int | None:
    declared = _zstd_content_bytes(data) if codec == ZSTD else None
    if declared is not None and declared > bytes_max:
        raise _too_large(declared, bytes_max)
    return declared


def _inflating_at_once(
    into: Callable[[Bytes, bytearray], int], data: Bytes, declared: int | None, bytes_max: int
) -> Generator[int, None, bytearray]:
    likely = max(FIRST_ROOM_BYTES_MIN, FIRST_ROOM_RATIO * len(data))
    room = min(bytes_max, likely if declared is None else min(declared, ROOM_GROWTH * likely))
    while True:
        out = bytearray(room)
        try:
            count = into(data, out)
        except cramjam.DecompressionError as error:
            if str(error) != NO_ROOM:
                raise
        else:
            if declared is not None and count < declared:
                raise CorruptBatch(f"a zstd frame declares {declared} bytes and contains {count}")
            del out[count:]
            yield count
            return out
        if room == bytes_max:
            raise _too_large(None, bytes_max)
        yield room
        room = min(bytes_max, ROOM_GROWTH * max(room, FIRST_ROOM_BYTES_MIN))


def _inflating_gzip(data: Bytes, bytes_max: int) -> Generator[int, None, bytearray]:
    out = bytearray()
    rest: Bytes = data
    member = zlib.decompressobj(GZIP_WINDOW)
    while not member.eof:
        some = member.decompress(rest, STEP_BYTES)
        rest = member.unconsumed_tail
        out += some
        if len(out) > bytes_max:
            raise _too_large(None, bytes_max)
        if not some and not rest and not member.eof:
            raise CorruptBatch(f"the gzip blob is cut short after {len(data)} bytes")
        yield max(1, len(some)) * GZIP_COST
    if member.unused_data:
        raise CorruptBatch(f"{len(member.unused_data)} bytes follow a gzip blob")
    return out


def _inflating_snappy(data: Bytes, bytes_max: int) -> Generator[int, None, bytearray]:
    out, unpaid = bytearray(), 0
    for block in _snappy_blocks(memoryview(data)):
        inflated = _snappy_block(block, bytes_max - len(out))
        out += inflated
        unpaid += len(inflated)
        if unpaid >= STEP_BYTES:
            yield unpaid
            unpaid = 0
    yield unpaid
    return out


def _compress_gzip(data: Bytes, level: int | None) -> bytes:
    return bytes(cramjam.gzip.compress(data, GZIP_LEVEL if level is None else level))


def _compress_snappy(data: Bytes, level: int | None) -> bytes:
    view = memoryview(data)
    out = bytearray(XERIAL_HEADER)
    for at in range(0, len(view), XERIAL_CHUNK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + XERIAL_CHUNK_BYTES]))
        out += len(block).to_bytes(4, "big")
        out += block
    return bytes(out)


def _compress_lz4(data: Bytes, level: int | None) -> bytes:
    compressor = cramjam.lz4.Compressor(LZ4_LEVEL if level is None else level, False, False)
    compressor.compress(data)
    return bytes(compressor.finish())


def _compress_zstd(data: Bytes, level: int | None) -> bytes:
    return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL if level is None else level))


def _as_is(data: Bytes, bytes_max: int) -> bytes:
    if len(data) > bytes_max:
        raise _too_large(len(data), bytes_max)
    return bytes(data)


def _decompress_gzip(data: Bytes, bytes_max: int) -> bytes:
    declared = int.from_bytes(data[-4:], "little")
    return _inflate(cramjam.gzip.decompress_into, data, declared, bytes_max)


def _decompress_lz4(data: Bytes, bytes_max: int) -> bytes:
    return _inflate(cramjam.lz4.decompress_into, data, None, bytes_max)


def _decompress_zstd(data: Bytes, bytes_max: int) -> bytes:
    declared = _zstd_content_bytes(data)
    if declared is not None and declared > bytes_max:
        raise _too_large(declared, bytes_max)
    out = _inflate(cramjam.zstd.decompress_into, data, declared, bytes_max)
    if declared is not None and len(out) < declared:
        raise CorruptBatch(f"a zstd frame declares {declared} bytes and contains {len(out)}")
    return out


def _inflate(into: Callable[[Bytes, bytearray], int], data: Bytes, declared: int | None, bytes_max: int) -> bytes:
    """Decompress into a buffer of the declared size if the input size makes it plausible, else into growing buffers."""
    likely = max(FIRST_ROOM_BYTES_MIN, FIRST_ROOM_RATIO * len(data))
    room = min(bytes_max, likely if declared is None else min(declared, ROOM_GROWTH * likely))
    while True:
        out = bytearray(room)
        try:
            count = into(data, out)
        except cramjam.DecompressionError as error:
            if str(error) != NO_ROOM:
                raise
        else:
            return bytes(memoryview(out)[:count])
        if room == bytes_max:
            raise _too_large(None, bytes_max)
        room = min(bytes_max, ROOM_GROWTH * max(room, FIRST_ROOM_BYTES_MIN))


def _zstd_content_bytes(data: Bytes) -> int | None:
    """The content size in the header of the frame (RFC 8878, 3.1.1.1); None if the header has none."""
    if len(data) < 6 or bytes(data[:4]) != ZSTD_MAGIC:
        return None
    descriptor = data[4]
    single_segment = descriptor & 0x20
    size_flag = descriptor >> 6
    if not size_flag and not single_segment:
        return None
    at = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    width = (1, 2, 4, 8)[size_flag]
    declared = int.from_bytes(data[at : at + width], "little")
    return declared + 256 if width == 2 else declared


def _decompress_snappy(data: Bytes, bytes_max: int) -> bytes:
    out: list[bytes] = []
    room = bytes_max
    for block in _snappy_blocks(memoryview(data)):
        out.append(_snappy_block(block, room))
        room -= len(out[-1])
    return b"".join(out)


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    """Yield the chunks of the xerial framing, or the one bare block. Raises CorruptBatch for a truncated chunk."""
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        yield view
        return
    at = len(XERIAL_HEADER)
    while at < len(view):
        length = int.from_bytes(view[at : at + 4], "big")
        at += 4
        if length > len(view) - at:
            raise CorruptBatch(f"a snappy chunk states {length} bytes, {max(0, len(view) - at)} are left")
        yield view[at : at + length]
        at += length


def _snappy_block(block: memoryview, bytes_max: int) -> bytes:
    declared = cramjam.snappy.decompress_raw_len(block)
    if declared > SNAPPY_RATIO_MAX * len(block):
        raise CorruptBatch(f"{len(block)} bytes of snappy cannot hold {declared}")
    if declared > bytes_max:
        raise _too_large(declared, bytes_max)
    out = bytearray(declared)
    return bytes(memoryview(out)[: cramjam.snappy.decompress_raw_into(block, out)])


def _too_large(size: int | None, bytes_max: int) -> InflatesTooLarge:
    stated = "more" if size is None else f"{size} bytes"
    return InflatesTooLarge(f"the records decompress to {stated}, at most {bytes_max} bytes are allowed")


_COMPRESS: dict[int, Callable[[Bytes, int | None], bytes]] = {
    NONE: lambda data, _: bytes(data),
    GZIP: _compress_gzip,
    SNAPPY: _compress_snappy,
    LZ4: _compress_lz4,
    ZSTD: _compress_zstd,
}
_DECOMPRESS: dict[int, Callable[[Bytes, int], bytes]] = {
    NONE: _as_is,
    GZIP: _decompress_gzip,
    SNAPPY: _decompress_snappy,
    LZ4: _decompress_lz4,
    ZSTD: _decompress_zstd,
}
